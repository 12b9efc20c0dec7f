// Package parked keeps, on disk, the events of parts of a destination that cannot take them now: of a topic that does
// not exist, a partition without a leader, a subject that no stream takes. The rest of the destination goes on
// meanwhile.
//
// A [Store] is one file for one sink. It has a queue for each such part, named by the sink (sinks.Router), and all
// events are numbered in the order in which they were parked, so that an event that concerns several queues (a gap or
// synced event) can be given its place among them. An event is durable when Park returns. Head gives the oldest
// events of a queue without removing them, so that what is removed only after its delivery is delivered again after a
// crash.
//
// The file is created with the first event and removed with the last one. A file that cannot be read is quarantined
// (internal/boltfile) and the store begins with an empty one; an event that cannot be read back is skipped. Both are
// logged and counted as lost.
package parked
