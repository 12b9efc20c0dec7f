// Package fifo has the bounded queues that stand between the informers and a sink: many producers (one for each
// informer), one consumer (the sink's drain), and a named policy for what happens when the consumer is slow.
//
// # Why not a channel
//
// A channel forgets an item when it is received. Here the consumer takes a batch, delivers it and then
// acknowledges it: until then the batch counts as queued, so that the bound holds for all that the sink has not
// settled, and not only for what it has not yet looked at. A channel also can't be bounded in bytes, can't give up
// its oldest item, can't merge two items, and keeps the memory of its largest size for ever.
//
// # Bounds
//
// Items and bytes count what waits and what is taken, together. MaxItems is never exceeded. MaxBytes is exceeded
// in two cases only: by one item that is larger than the whole bound and is alone in the queue, and by a Merge
// whose result is larger than both of its parts (it should not be). Outside the bounds are gap items (below), and
// one item for each producer that waits in Push: that item is still the producer's.
//
// Memory follows what is in the queue: it grows with a burst and shrinks with its end, and the queue lets go of an
// item when it is taken; from then on the consumer's batch holds it. A queue at rest pins no object. Take clears
// the part of the old batch that it is given, so a consumer that passes its last batch pins none either.
//
// # The policies
//
// [NewRing] with [Block]: Push waits. Nothing is lost, and the producer's source waits as well.
//
// [NewRing] with [DropOldest]: Push never waits. The oldest waiting item goes, again and again until the new one
// fits. The queue acts as if the new item were appended first: when nothing waits any more and there still is no
// room, because taken items fill the queue, the new item is the oldest waiting one and is the one to go. So what
// waits is always an unbroken run that ends with the newest item, and every hole lies exactly in front of that
// run. That is where the gap items stand: each dropped item is folded into them (RingOptions.Gap), the next Take
// gives them first, and from then on they are items of that batch and are acknowledged with it. A later drop
// starts anew, so that a gap that is being sent is never changed.
//
// The alternative, to refuse only the new item, was not taken: older states would then be sent behind the gap that
// stands for newer ones, and a reader that repairs its picture at the gap would be put back to an old state.
//
// [NewCompacting]: below its bounds an ordinary queue that keeps every change. A Push that finds it full makes
// room by merging: of all waiting items that have a newer waiting item of the same key, the one that has been
// superseded for the longest time is merged into its successor. If there is none, the new item itself may
// take up an earlier one of its key. If that does not help either, because all keys are distinct, Push waits:
// memory stays bounded. Size the buffer for the number of objects that may change during an outage.
//
// [NewSpill]: below its bounds an ordinary queue in memory. A Push that finds it full makes it spill: see below.
//
// [NewLossy]: a Ring with DropOldest or a Compacting queue in front of a Spill. Its policy applies only when the
// Spill has no room on disk, or can't write; until then a Push that finds the front full waits until the Spill has
// taken something from there.
//
// # Spilling to disk
//
// A [Spill] keeps its items in memory only, until a Push finds no room, or an item has waited for longer than MaxAge,
// or [Spill.Persist] is called, or Run ends. From then on it spills: everything that is not acknowledged goes to a
// log on disk (internal/segment), oldest first, also what is taken; then, in order, all that is pushed. The consumer
// gets what is in memory from there, and the rest from disk. When everything on disk is acknowledged and what is left
// fits in half of the bounds, the queue is back in memory, does no I/O, and has nothing on disk.
//
// What is durable. At each moment the log and the acknowledgements together cover an unbroken run of the queue from
// its beginning. For each source (SpillOptions.Mark) the log has the position up to which that run goes, as a part of
// the items; a source that goes on behind its position after a crash loses nothing and mixes nothing up. After a
// crash at any moment Take gives first what is on disk, in order, then what is pushed. What was acknowledged after
// the last commit can come again; it has the same content. An item that OnSettled was called for is missing only if
// it was acknowledged, or its bytes can't be read. OnSettled and the log agree on one order: while the log has items,
// what was acknowledged behind them is settled only when it is durable that those were acknowledged.
//
// Commits. [Spill.Run] makes them: each SyncInterval while the queue spills, and at once when a Push waits or enough
// is there. One commit makes durable what was acknowledged, removes the files that are not needed any more, and then
// writes up to 4 MiB.
//
// Bounds. While the queue spills, one half of MaxItems and MaxBytes is for what is taken and what waits to be taken,
// the other for what waits to be written; hence nothing that the consumer does, or leaves undone, stops the pushes.
// In all it holds not more than MaxItems and MaxBytes, except for items that are larger than half of MaxBytes: one
// such may be in each half. For the same reason not more than half may be taken and unacknowledged at a time, or one
// item. In addition there is the memory of a commit, about 5 MiB of encoded items, and 256 KiB for reading; nothing
// is mapped. MaxDiskBytes bounds what the items take on disk, including those that are acknowledged, as long as
// others in their file are not: a file takes at most a sixteenth of the bound, or 16 MiB.
//
// Failures. While nothing can be written, all stays as it was: the items are in memory, pushes wait, the commit is
// tried again, and [Spill.SpillStats] says why. What the consumer takes and acknowledges meanwhile need not be
// written any more. A log that can't be used, or has an unknown format, is renamed and the queue begins with an empty
// one. An item that is damaged or missing is skipped and reported (OnCorrupt), and costs no other. ADR 23 says why
// the log is one of our own.
//
// # Who may call what
//
// Push, Close and Stats: any goroutine. Take and Ack: the one consumer. For the functions in SpillOptions see there.
// Those in the other options (Gap, OnDrop, Merge, OnMerge, Key, Mergeable, Size) must be quick and must not call the
// queue: all of them but the Size of a pushed item are called with the queue locked, which makes OnDrop and OnMerge
// come in the order of the queue. They are called by whoever makes the change happen: a Push, and for a push that had
// waited the Ack, Push or cancellation that let it in.
//
// After Close, Push gives [ErrClosed], also to those who wait in it, whose items are not taken up. Take gives what
// is left and then ErrClosed; items that are taken can be acknowledged as before.
//
// # Non-obvious
//
//   - Taken items are out of reach for a policy by construction: Take moves them out of the waiting part, and what
//     stays behind is their size alone.
//   - Push looks at its context only when it has to wait. Take looks at it first: a consumer that was told to stop
//     does not get another batch.
//   - A producer that waits is not woken to try again: whoever makes room moves its item into the queue and then
//     tells it. Hence waiting producers are served in order, none of them wakes for nothing (no thundering herd
//     when 300 of them wait), and no wake-up can be lost. If its context ends at the same moment, what was decided
//     first stands: Push returns nil if and only if the item was taken up.
//   - A large item at the head of the waiting producers holds up smaller ones behind it; else it would wait for
//     ever. The exception is a push into a Compacting queue that replaces an earlier item of its own key and needs
//     no room: it does not queue behind those that do.
//   - Compacting merges forwards: the result stands where the newer item stood. Merging backwards, as client-go's
//     DeltaFIFO does in effect, would let an object's state overtake earlier changes of other objects, and a
//     watermark "all up to this resourceVersion is delivered" would be wrong. The price: while the queue stays
//     full, an object that changes more often than the queue turns over moves back with each change, and its state
//     comes when the pressure ends. To merge the longest-superseded item first keeps that effect small: of all
//     pairs it is the one whose result stands nearest to the front.
//   - Order between keys. Merging moves an item only within the span from its key's oldest to its key's newest item.
//     Spans of a deleted object and of its successor under the same name (another uid, so another key) do not
//     overlap, so "deleted, then added" stays in order. An item may move behind one that is not Mergeable: a state
//     from before a control event may come after it, as part of the newer state.
//   - Items that are not Mergeable are never given up: a queue that is full of them blocks.
//   - Under DropOldest a byte bound that is not several times the consumer's batch plus the largest item can make
//     one large item cost all that waits. The policy is kept to, the hole is told in the gap, but it is no use.
//   - Gap items are counted in Stats.Items and Taken, and in Acked when acknowledged, but neither in Bytes nor in
//     Pushed. A consumer that goes on taking without acknowledging bounds them itself.
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
//	push that waits and is let in                 530-870   (88 bytes: its waiter)
//	100 producers, one consumer                    80-490
//	Spill, 2.6 KB, written to disk               2600-6300 CPU
//	Spill, 2.6 KB, read back and acknowledged    1200-4000 CPU
//
// Memory beside the items: 16 to 64 bytes for each waiting item of a ring (pointer items), about 130 bytes in a
// compacting queue (its node, its map entry), 8 to 32 bytes for each taken item. At rest a ring keeps about 30 KiB
// and a compacting queue up to 85 KiB for the next batch.
package fifo
