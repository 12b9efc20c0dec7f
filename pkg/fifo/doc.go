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
// A policy that writes to disk would be one more implementation of [Queue]; it shares nothing that is not in that
// interface.
//
// # Who may call what
//
// Push, Close and Stats: any goroutine. Take and Ack: the one consumer. The functions in the options (Gap, OnDrop,
// Merge, OnMerge, Key, Mergeable, Size) must be quick and must not call the queue: all of them but the Size of a
// pushed item are called with the queue locked, which makes OnDrop and OnMerge come in the order of the queue. They
// are called by whoever makes the change happen: a Push, and for a push that had waited the Ack, Push or cancellation
// that let it in.
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
//
// Memory beside the items: 16 to 64 bytes for each waiting item of a ring (pointer items), about 130 bytes in a
// compacting queue (its node, its map entry), 8 to 32 bytes for each taken item. At rest a ring keeps about 30 KiB
// and a compacting queue up to 85 KiB for the next batch.
package fifo
