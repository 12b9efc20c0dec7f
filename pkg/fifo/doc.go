// Package fifo implements the bounded queues between the informers and a sink. A queue has many producers (one per
// informer), one consumer (the sink's drain), and an overflow policy for a slow consumer.
//
// # Why not a channel
//
// A channel drops an item as soon as the item is received. The consumer of these queues takes a batch, delivers it and
// then acknowledges it. The batch counts as queued until it is acknowledged, so the bounds include all items that the
// sink has not acknowledged. In addition, a channel cannot be bounded in bytes, cannot drop its oldest item, cannot
// merge two items, and never releases memory.
//
// # Bounds
//
// The bounds apply to waiting and taken items together. MaxItems is never exceeded. MaxBytes is exceeded in only two
// cases: an item that is larger than the whole bound is accepted when the queue is empty, and Merge may return an item
// that is larger than its two arguments together (it should not). Two kinds of items do not count: gap items (see
// below), and the items of producers that wait in Push (one per producer).
//
// Memory use follows the content: it grows during a burst and shrinks afterwards. The queue does not keep references to
// taken items; only the consumer's batch refers to them. Take clears the batch that is passed to it, so a consumer that
// passes its previous batch does not keep references to the old items either.
//
// # The policies
//
// [NewRing] with [Block]: Push waits until there is room. Nothing is lost, but the producer's source has to wait too.
//
// [NewRing] with [DropOldest]: Push never waits. The queue drops the oldest waiting items until the new one fits. If
// there still is no room when no item waits any more, because taken items fill the queue, the new item itself is
// dropped. Therefore the waiting items are always consecutive, and all dropped items come directly before the oldest
// waiting item. At that place the queue inserts gap items: RingOptions.Gap adds each dropped item to the gap items, and
// the next Take returns the gap items first. They are then part of the batch and are acknowledged with it. The next
// drop starts new gap items, so a gap item that is being sent never changes.
//
// Dropping only the new item is not an alternative. The gap would then stand for newer states than the waiting items
// that are sent after it. A consumer that lists all objects again when it receives the gap would be set back to older
// states.
//
// [NewCompacting]: while the queue is below its bounds, it keeps every change. A Push to a full queue makes room by
// merging two waiting items of the same key: of all waiting items with a newer waiting item of the same key, the one
// that was superseded first is merged into its successor. If no two waiting items have the same key, the new item is
// merged with the waiting item of its own key. If no waiting item has that key, Push waits. Therefore memory use is
// bounded. Choose the bounds for the number of objects that may change during an outage.
//
// [NewSpill]: while the queue is below its bounds, its items are only in memory. A Push to a full queue makes it spill
// (see below).
//
// [NewLossy]: a Ring with DropOldest, or a Compacting queue, in front of a Spill. The policy of the front queue applies
// only while the Spill has no room on disk or cannot write. Otherwise, a Push to a full front queue waits until the
// Spill has accepted items from the front queue.
//
// # Spilling to disk
//
// A [Spill] keeps its items only in memory until a Push finds no room, an item has waited for ten seconds,
// [Spill.Persist] is called, or Run ends. Then the queue spills: it writes all unacknowledged items, including taken
// items, to a log on disk (internal/segment), the oldest first, followed by all items that are pushed later. Written
// items stay in memory as long as they fit in half of the bounds. Take returns these, and reads the others from disk.
// When all items on disk are acknowledged and the other items fit in half of the bounds, the queue stops spilling. It
// then does no I/O and keeps no records on disk.
//
// SpillOptions.HoldUp delays spilling. When a quarter of the bounds is in use, pushes wait for the consumer for up to
// HoldUp. After that, they are accepted until memory is full, and then the queue spills at once. Once the queue has not
// been empty for 20 times HoldUp, pushes do not wait because of HoldUp until the queue has been empty again.
//
// Durability: at any time, there is a number up to which every item is acknowledged or in the log. For each source, the
// log contains the position (SpillOptions.Mark) of the source's last item up to that number. After a crash, a source
// that continues after this position loses no items and keeps their order. Take then returns the items on disk first,
// in order, followed by pushed items. Items that were acknowledged after the last commit can be returned again, with
// the same content. If OnSettled was called for an item, Take returns the item after a crash unless the item was
// acknowledged or cannot be read. While the log has items, an item that was acknowledged before it was written becomes
// settled only when its acknowledgement is durable.
//
// Commits: while the queue spills, [Spill.Run] commits every 200 ms, and at once when a Push waits or enough
// items wait to be written. A commit makes the acknowledgements durable, removes files that are no longer required, and
// then writes up to 4 MiB of items.
//
// Bounds: while the queue spills, one half of MaxItems and MaxBytes is reserved for items that are taken or wait to be
// taken, and the other half for items that wait to be written. Therefore a slow consumer cannot block the pushes. The
// total stays within MaxItems and MaxBytes, unless an item is larger than half of MaxBytes: each half accepts one such
// item. Unacknowledged taken items can use at most half of the bounds, or consist of one larger item. In addition, a
// commit uses about 5 MiB of memory for encoded items, and reading uses 256 KiB; no file is memory-mapped. MaxDiskBytes
// bounds the size of the items on disk, except at the end of Run. Acknowledged items count until all items in their
// file are acknowledged. A file is at most a sixteenth of MaxDiskBytes, and at most 16 MiB.
//
// Failures: while writing fails, the items stay in memory, pushes wait when memory is full, the commit is retried, and
// [Spill.SpillStats] returns the error. Items that are acknowledged during the failure do not have to be written any
// more. If the log cannot be used or has an unknown format, it is quarantined, and the queue starts with an empty log.
// Items that are damaged or missing are skipped and reported (OnCorrupt); other items are not affected. ADR 23 explains
// why Deltabridge has its own log format.
//
// # Concurrency
//
// Any goroutine may call Push, Close and Stats. Only the consumer may call Take and Ack. SpillOptions documents which
// goroutine calls its functions. The functions in the other options (Gap, Merge, OnMerge, Key, Mergeable, Size)
// must be fast and must not call the queue. They are called with the queue locked (except Size for a pushed item), so
// Gap and OnMerge are called in queue order. They are called by the goroutine that changes the queue: the goroutine
// that pushes or, if the push had to wait, the goroutine whose Ack, Push or cancellation made room.
//
// After Close, Push returns [ErrClosed], even to producers that already wait in it; their items are not queued. Take
// returns the remaining items and then ErrClosed. Taken items can still be acknowledged.
//
// # Details
//
//   - No policy can change taken items: Take removes them from the waiting items, and the queue keeps only their sizes.
//   - Push checks its context only when it has to wait. Take checks its context first, so a consumer that has to stop
//     does not receive another batch.
//   - A waiting producer does not have to try again: the goroutine that makes room queues the producer's item, and then
//     wakes the producer. Therefore waiting producers are served in order, and there are no spurious or lost wake-ups.
//     If the context ends at the same moment, Push returns nil if and only if the item was queued.
//   - If the first waiting producer has a large item, it blocks producers with smaller items; otherwise the large item
//     could wait forever. The exception is a push to a Compacting queue that replaces the waiting item of its key and
//     does not need room.
//   - Compacting merges forwards: the merged item takes the place of the newer item. If it took the place of the older
//     item, as in client-go's DeltaFIFO, a state could overtake earlier changes to other objects, and a watermark
//     ("everything up to this resourceVersion is delivered") would be wrong. The disadvantage is that while the queue
//     stays full, an object that changes faster than the queue is consumed moves back with every change. Merging the
//     item that was superseded first keeps this effect small, because its result is closest to the front of the queue.
//   - Order between keys: merging moves an item only within the range between its key's oldest and newest items. If an
//     object is deleted and created again under the same name, the new object has another uid and therefore another
//     key. The ranges of the two keys do not overlap, so "deleted, then added" stays in order. An item may move behind
//     an item that is not Mergeable: a state from before a control event may be sent after the control event, as part
//     of a newer state.
//   - Items that are not Mergeable are never dropped or merged. If they fill the queue, pushes wait.
//   - With DropOldest, MaxBytes should be several times the sum of the consumer's batch size and the largest item size.
//     Otherwise, one large item can cause all waiting items to be dropped.
//   - Gap items are included in Stats.Items and Stats.Taken and, when they are acknowledged, in Stats.Acked, but not in
//     Bytes or Pushed. A consumer that takes items without acknowledging them must limit the number of gap items
//     itself.
//
// # Costs
//
// The following numbers are nanoseconds per item, measured with Go 1.26 on 2 shared cores (2.6 GHz, EPYC). They are
// ranges because the machine had other load. Items are pointers, keys are uids, and there are no allocations unless
// noted (go test -bench .):
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
// In addition to the items themselves, a ring uses 16 to 64 bytes of memory per waiting item (for pointer items), a
// compacting queue about 130 bytes (a node and a map entry), and both use 8 to 32 bytes per taken item. An empty ring
// keeps about 30 KiB for the next batch, an empty compacting queue up to 85 KiB.
package fifo
