// Package fifo implements the bounded queue between the informers and a sink. A [Queue] has many producers (one per
// informer), one consumer (the sink's drain), a log on disk, and an overflow policy for a consumer that is slow while
// the disk is full.
//
// # Why not a channel
//
// A channel drops an item as soon as the item is received. The consumer of this queue takes a batch, delivers it and
// then acknowledges it. The batch counts as queued until it is acknowledged, so the bounds include all items that the
// sink has not acknowledged. In addition, a channel cannot be bounded in bytes, cannot drop its oldest item, cannot
// merge two items, and never releases memory.
//
// # Spilling to disk
//
// The queue keeps its items only in memory until a Push finds no room, an item has waited for ten seconds,
// [Queue.Persist] is called, or Run ends. Then the queue spills: it writes all unacknowledged items, including taken
// items, to its log, the oldest first, followed by all items that are pushed later. The log is a directory
// (Options.Path, internal/segment), or another one (Options.Log). Written items stay in memory as long as they fit in
// half of the bounds. Take returns these, and reads the others from disk. When all items on disk are acknowledged and
// the other items fit in half of the bounds, the queue stops spilling. It then does no I/O and keeps no records on
// disk.
//
// Options.HoldUp delays spilling. When a quarter of the bounds is in use, pushes wait for the consumer for up to
// HoldUp. After that, they are accepted until memory is full, and then the queue spills at once. If the queue is not
// empty for 20 times HoldUp, HoldUp has no effect until the queue is empty again.
//
// Durability: at any time, there is a number up to which every item is acknowledged or in the log. For each source, the
// log contains the position (Options.Mark) of the source's last item up to that number. After a crash, a source
// that continues after this position loses no items and keeps their order. Take then returns the items on disk first,
// in order, followed by pushed items. Items that were acknowledged after the last commit can be returned again, with
// the same content. If OnSettled was called for an item, Take returns the item after a crash unless the item was
// acknowledged or cannot be read. While the log has items, an item that was acknowledged before it was written becomes
// settled only when its acknowledgement is durable.
//
// [Queue.Gone] reports whether a restart can return an item with a number up to a given one. The watermarks of the
// sources must be compared too: an item that was never on disk comes again from its source.
//
// Numbers: an item gets its number when it is taken or written. Until then, the number is its place in the queue, which
// the overflow policy can change. Therefore the numbers in the log have no holes.
//
// Commits: while the queue spills, [Queue.Run] commits every 200 ms, and at once when a Push waits or enough
// items wait to be written. A commit makes the acknowledgements durable, removes files that are no longer required, and
// then writes up to 4 MiB of items, or 1 MiB to Options.Log.
//
// Failures: while writing fails, the items stay in memory, the overflow policy applies when memory is full, the commit
// is retried, and [Queue.SpillStats] returns the error. Items that are acknowledged during the failure do not have to
// be written any more. If the log cannot be used or has an unknown format, it is quarantined, and the queue starts with
// an empty log. Items that are damaged or missing are skipped and reported (OnCorrupt); other items are not affected.
// ADR 23 explains why Deltabridge has its own log format.
//
// # Bounds
//
// MaxItems and MaxBytes apply to all items in memory, waiting and taken. Until Lift is called, MaxItems is never
// exceeded. While items are only on disk, one half of both bounds is reserved for items that are taken or wait to be
// taken, and the other half for items that wait to be written. Otherwise, items that wait to be written can use what
// the taken items leave. Taken items can use at most half of the bounds, or consist of one larger item. Therefore a
// slow consumer cannot block the pushes. Until then, MaxBytes is exceeded only in two cases: an item is larger than
// half of MaxBytes (each half accepts one such item), or Merge returns an item that is larger than its two arguments
// together (it should not). Two kinds of items do not count: gap items (see below), and the items of producers that
// wait in Push (one per producer).
//
// In addition, a commit uses about 5 MiB of memory for encoded items, and reading uses 256 KiB; no file is
// memory-mapped. Memory use follows the content: it grows during a burst and shrinks afterwards. The queue does not
// keep references to acknowledged, dropped or merged items. Take clears the batch that is passed to it, so a consumer
// that passes its previous batch does not keep references to the old items either.
//
// MaxDiskBytes bounds the size of the items on disk, except at the end of Run. Acknowledged items count until all items
// in their file are acknowledged. A file is at most a sixteenth of MaxDiskBytes, and at most 16 MiB.
//
// # Overflow policies
//
// A policy applies to a Push for which there is no room in memory if the last commit failed or found no room on disk.
// Otherwise, the Push waits until Run has written items.
//
// By default, Push waits until there is room. Nothing is lost, but the producer's source has to wait too.
//
// Options.Gap: Push never waits. The queue drops the oldest items until the new one fits. If there still is no room
// when no other item can be dropped, the new item itself is dropped. All dropped items are consecutive. In their place
// the queue inserts gap items: Gap adds each dropped item to a gap item, or makes a new one. A gap item that was taken,
// or that Run may be writing, never changes: the next drop starts a new gap item after it.
//
// Dropping only the new item is not an alternative. The gap would then stand for newer states than the waiting items
// that are sent after it. A consumer that lists all objects again when it receives the gap would be set back to older
// states.
//
// Options.Merge: the queue makes room by merging two waiting items of the same key. An item is superseded when a newer
// item of its key is pushed. The item that was superseded first is merged into its successor, the next item of its key.
// If no two waiting items have the same key, the new item is merged with the waiting item of its own key. If no waiting
// item has that key, Push waits. Therefore memory use is bounded. Choose the bounds for the number of objects that may
// change during an outage.
//
// No policy changes an item that is taken, on disk or being written. While the disk is full, a commit tries to write
// only the oldest item, and the policies apply to the items after it.
//
// # Concurrency
//
// Any goroutine may call Push, Close and Stats. Only the consumer may call Take and Ack. Options documents how its
// functions are called. Gap and OnMerge are called in queue order, by the goroutine that changes the queue. This is the
// goroutine that pushes. If the push had to wait, it is Run, or the goroutine whose Take, Ack, Push or cancellation
// made room.
//
// After Close, Push returns [ErrClosed], even to producers that already wait in it; their items are not queued. Take
// returns the remaining items and then ErrClosed. Taken items can still be acknowledged.
//
// # Details
//
//   - Push checks its context only when it has to wait. Take checks its context first, so a consumer that has to stop
//     does not receive another batch.
//   - A waiting producer does not have to try again: the goroutine that makes room queues the producer's item, and then
//     wakes the producer. Therefore waiting producers are served in order, and there are no spurious or lost wake-ups.
//     If the context ends at the same moment, Push returns nil if and only if the item was queued.
//   - If the first waiting producer has a large item, it blocks producers with smaller items; otherwise the large item
//     could wait forever. The exception is a push that replaces the waiting item of its key and does not need room.
//   - Merge merges forwards: the merged item takes the place of the newer item. If it took the place of the older
//     item, as in client-go's DeltaFIFO, a state could overtake earlier changes to other objects, and a watermark
//     ("everything up to this resourceVersion is delivered") would be wrong. The disadvantage is that while the queue
//     stays full, an object that changes faster than the queue is consumed moves back with every change. Merging the
//     item that was superseded first keeps this effect small, because its result is closest to the front of the queue.
//   - Order between keys: merging moves an item only within the range between its key's oldest and newest items. If an
//     object is deleted and created again under the same name, the new object has another uid and therefore another
//     key. The ranges of the two keys do not overlap, so "deleted, then added" stays in order. An item may move behind
//     an item without a key: a state from before a control event may be sent after the control event, as part of a
//     newer state.
//   - With Merge, items without a key are never merged. If they fill the queue, pushes wait.
//   - With Gap, MaxBytes should be several times the sum of the consumer's batch size and the largest item size.
//     Otherwise, one large item can cause all waiting items to be dropped.
//   - Gap items are included in Stats.Items and Stats.Taken and, when they are acknowledged, in Stats.Acked, but not in
//     Bytes or Pushed. A gap item that was read back from disk is an item like any other.
//
// # Costs
//
// The following numbers compare the CPU time of an item with that of an item that is sent through a channel, which
// takes 30 to 80 ns. They were measured with Go 1.26 on 2 shared cores (go test -bench .), and are ranges because the
// machine had other load. Items are pointers, keys are uids:
//
//	never full: push + take + ack                    3-4
//	push that drops the oldest                       3-4
//	push that merges two others                      4-6
//	push that replaces the item of its key           1-2
//	push that waits and is let in                     10
//	2.6 KB, written to disk                        40-80
//	2.6 KB, read back and acknowledged             20-50
//
// Each item in memory costs one allocation of 64 bytes (for pointer items) in addition to the item itself. While items
// are merged, each key costs about 50 bytes. An empty queue keeps less than 1 KiB.
package fifo
