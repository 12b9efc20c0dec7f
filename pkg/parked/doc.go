// Package parked stores events on disk while their part of the destination cannot accept them, for example because a
// topic does not exist, a partition has no leader, or no stream has the subject. The bridge continues to send events to
// the other parts of the destination.
//
// A [Store] contains the parked events of one sink, in a file or in another [Storage]. It has one queue per part of the
// destination; the sink defines the queue's name (sinks.Sink). All events are numbered in the order in which they were
// parked, so an event that concerns several queues (a gap event or synced event) can be placed in the correct order. An
// event is durable when Park returns nil. Head returns the oldest events of a queue without removing them. If the
// caller removes an event only after delivering it, a crash cannot lose the event, but the event may be delivered
// again.
//
// The file is created when the first event is parked, and removed when no parked events are left. If the file cannot be
// read, it is quarantined (internal/boltfile) and the store starts with an empty file. If an event cannot be read back,
// it is skipped, and so is anything in a [Storage] that is not an event. In all cases, the loss is logged, counted and
// reported to Options.OnLost.
//
// If an event cannot be parked, it may still be stored. The next change of the storage, or Close, removes it. If the
// process is killed before that, the next one delivers the event, although its source may bring it again.
package parked
