// Package stdout writes events as JSON lines, for people and for pipes. Each line is one CloudEvent in its JSON form,
// in both content modes.
//
// A written line counts as delivered, because readers do not acknowledge lines. If a write fails in the middle of a
// line (for example because the disk is full), the sink writes that line and all later lines again, beginning on a new
// line. Therefore a reader finds at most one incomplete line per failure. A reader that stops reading blocks the sink,
// but not the rest of the bridge. If the reader has closed the pipe, the sink returns an error for every attempt,
// because only an operator can fix that.
package stdout
