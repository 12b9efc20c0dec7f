// Package fifo has the bounded queues between the informers and a sink: many producers (one for each informer), one
// consumer (the sink's drain), and an overflow policy for a slow consumer.
//
// # Why not a channel
//
// A channel forgets an item when it is received. Here the consumer takes a batch, delivers it and then acknowledges
// it. Until then the batch counts as queued, so the bounds include everything that the sink has not settled. Also, a
// channel cannot be bounded in bytes, cannot drop its oldest item, cannot merge two items, and never releases memory.
//
// # Bounds
//
// Items and bytes count waiting and taken items together. MaxItems is never exceeded. MaxBytes is exceeded in two
// cases only: by one item that is larger than the whole bound and is alone in the queue, and by a Merge whose result
// is larger than both of its parts (it should not be). Two kinds of items do not count: gap items (below), and the
// items of producers that wait in Push, one for each producer.
//
// Memory follows the content: it grows with a burst and shrinks afterwards. The queue keeps no reference to an item
// that was taken; only the consumer's batch has one. Take clears the part of the old batch that it is given, so a
// consumer that passes its last batch keeps no reference either.
//
// # The policies
//
// [NewRing] with [Block]: Push waits. Nothing is lost, and the producer's source waits as well.
//
// [NewRing] with [DropOldest]: Push never waits. The queue drops the oldest waiting items until the new one fits. If
// nothing waits any more and there still is no room, because taken items fill the queue, the new item is the oldest
// waiting one and is dropped. So the waiting items are always an unbroken run that ends with the newest item, and each
// hole is directly in front of that run. There the queue inserts gap items: each dropped item is folded into them
// (RingOptions.Gap), and the next Take returns them first. From then on they belong to that batch and are acknowledged
// with it. A later drop begins a new gap, so a gap that is being sent is never changed.
//
// The alternative, to drop only the new item, was rejected: older states would be sent after the gap that stands for
// newer ones, and a consumer that lists again at the gap would be set back to an old state.
//
// [NewCompacting]: below its bounds an ordinary queue that keeps every change. A Push to a full queue makes room by
// merging: of all waiting items that have a newer waiting item of the same key, the one that was superseded first is
// merged into its successor. If there is none, the new item can replace an earlier item of its key. If that does not
// help either, because all keys are distinct, Push waits. So memory is bounded: choose the bounds for the number of
// objects that may change during an outage.
//
// [NewSpill]: below its bounds an ordinary queue in memory. A Push to a full queue makes it spill: see below.
//
// [NewLossy]: a Ring with DropOldest, or a Compacting queue, in front of a Spill. The policy of the front applies only
// while the Spill has no room on disk or cannot write. Otherwise a Push to a full front waits until the Spill has taken
// something from it.
//
// # Spilling to disk
//
// A [Spill] keeps its items in memory until a Push finds no room, an item has waited for longer than MaxAge,
// [Spill.Persist] is called, or Run ends. Then it spills: it writes all items that are not acknowledged, taken ones
// included, to a log on disk (internal/segment), the oldest first, and after them everything that is pushed. The
// consumer gets the items that are still in memory from there, and the others from disk. When all items on disk are
// acknowledged and the rest fits in half of the bounds, the queue is in memory again, does no I/O, and has no files.
//
// What is durable: at each moment the log and the acknowledgements together cover an unbroken run of the queue from
// its beginning. The log has the position of each source (SpillOptions.Mark) up to which that run goes, as a part of
// the items. A source that continues after its position after a crash loses nothing and keeps the order. After a
// crash Take returns the items on disk first, in order, then pushed items. Items that were acknowledged after the
// last commit can be returned again, with the same content. An item that OnSettled was called for is missing only if
// it was acknowledged or cannot be read. While the log has items, an item that was acknowledged before it was written
// is settled only when its acknowledgement is durable.
//
// Commits: [Spill.Run] makes one each SyncInterval while the queue spills, and at once when a Push waits or enough
// items wait to be written. A commit makes the acknowledgements durable, removes files that are not required any
// more, and then writes up to 4 MiB.
//
// Bounds: while the queue spills, one half of MaxItems and MaxBytes is for items that are taken or wait to be taken,
// the other half for items that wait to be written. So the consumer can never stop the pushes. The total is at most
// MaxItems and MaxBytes, except for items larger than half of MaxBytes: each half can have one. For the same reason
// the consumer can have taken at most half of the bounds without acknowledging it, or one item. In addition a commit
// takes about 5 MiB of memory for encoded items, and reading takes 256 KiB; nothing is mapped. MaxDiskBytes bounds
// what the items take on disk. Acknowledged items count until all items of their file are acknowledged; a file takes
// at most a sixteenth of the bound, or 16 MiB.
//
// Failures: while nothing can be written, the items stay in memory, pushes wait, the commit is retried, and
// [Spill.SpillStats] returns the error. Items that the consumer acknowledges meanwhile need not be written any more.
// A log that cannot be used, or has an unknown format, is quarantined, and the queue begins with an empty one. An
// item that is damaged or missing is skipped and reported (OnCorrupt), and costs no other item. ADR 23 says why the
// log is our own.
//
// # Concurrency
//
// Any goroutine may call Push, Close and Stats. Only the one consumer calls Take and Ack. SpillOptions says who calls
// its functions. The functions in the other options (Gap, OnDrop, Merge, OnMerge, Key, Mergeable, Size) must be quick
// and must not call the queue. Except for Size of a pushed item they are called with the queue locked, so OnDrop and
// OnMerge are called in the order of the queue. The caller is the goroutine that makes the change: a Push, or, for a
// push that had waited, the Ack, Push or cancellation that made room for it.
//
// After Close, Push returns [ErrClosed], also to producers that wait in it; their items are not queued. Take returns
// the remaining items and then ErrClosed. Taken items can still be acknowledged.
//
// # Not obvious
//
//   - No policy can reach taken items: Take moves them out of the waiting part, and the queue keeps only their size.
//   - Push checks its context only when it has to wait. Take checks it first: a consumer that must stop gets no further
//     batch.
//   - A waiting producer is not woken to try again: the goroutine that makes room queues the item, and then wakes the
//     producer. So waiting producers are served in order, none wakes for nothing, and no wake-up is lost. If the
//     context ends at the same moment, Push returns nil if and only if the item was queued.
//   - A large item at the head of the waiting producers blocks smaller ones behind it; otherwise it could wait forever.
//     The exception is a push to a Compacting queue that replaces an earlier item of its key and needs no room.
//   - Compacting merges forwards: the result is where the newer item was. If it merged backwards, as client-go's
//     DeltaFIFO does, a state could overtake earlier changes of other objects, and a watermark "everything up to this
//     resourceVersion is delivered" would be wrong. The price: while the queue stays full, an object that changes more
//     often than the queue turns over moves back with each change. Merging the item that was superseded first keeps
//     this effect small: of all pairs it is the one whose result is nearest to the front.
//   - Order between keys: merging moves an item only between its key's oldest and newest item. The items of a deleted
//     object and of its successor under the same name (another uid, so another key) do not overlap, so "deleted, then
//     added" stays in order. An item may move behind one that is not Mergeable: a state from before a control event may
//     follow it, as part of the newer state.
//   - Items that are not Mergeable are never dropped or merged: a queue that is full of them blocks.
//   - With DropOldest, MaxBytes should be several times the consumer's batch plus the largest item. Otherwise one large
//     item can drop everything that waits.
//   - Gap items count in Stats.Items and Taken, and in Acked when they are acknowledged, but neither in Bytes nor in
//     Pushed. A consumer that takes without acknowledging must bound them itself.
//
// # What it costs
//
// Measured with Go 1.26 on 2 shared cores (2.6 GHz, EPYC) under other load, hence the ranges; items are pointers,
// keys are uids; nanoseconds for each item, without allocation unless noted (go test -bench .):
//
//	Ring, never full: push + take + ack            50-130   (a channel: 60-80)
//	Ring, push that drops the oldest               40-80
//	Compacting, never full: push + take + ack     135-200   (a map entry for each waiting key)
//	Compacting, push that merges two others        90-120
//	Compacting, push that replaces its own key     55-75
//	push that waits and is let in                 530-870   (80 bytes: its waiter)
//	100 producers, one consumer                    80-490
//	Spill, 2.6 KB, written to disk               2600-6300 CPU
//	Spill, 2.6 KB, read back and acknowledged    1200-4000 CPU
//
// In addition to the items, a ring takes 16 to 64 bytes of memory for each waiting item (pointer items), a compacting
// queue about 130 bytes (a node and a map entry), and each taken item 8 to 32 bytes. When it is empty, a ring keeps
// about 30 KiB and a compacting queue up to 85 KiB for the next batch.
package fifo
