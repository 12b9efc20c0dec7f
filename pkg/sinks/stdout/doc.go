// Package stdout writes events as JSON lines, for people and for pipes. Each line is one CloudEvent in its JSON form,
// in both content modes.
//
// A written line counts as delivered, because readers do not acknowledge lines. If a write fails in the middle of a
// line (for example because the disk is full), the sink writes that line and all later lines again, beginning on a new
// line. Therefore a reader finds at most one incomplete line per failure. If a reader stops reading, the sink waits,
// and the rest of the bridge continues until the sink's queue is full in memory and on disk. If the reader closes a
// pipe that is the standard output, SIGPIPE ends the process; the next process sends what was not settled. For any
// other closed pipe, every attempt returns an error.
package stdout
