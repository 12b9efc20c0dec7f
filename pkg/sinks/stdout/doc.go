// Package stdout writes events as JSON lines, for people and for pipes: one CloudEvent in its JSON form per line,
// in both content modes.
//
// A line that was written is taken for delivered: there is nobody to acknowledge it. If a write fails in the
// middle of a line (a full disk), that line and those behind it are tried again, on a new line, so that a reader
// finds at most one torn line for each failure. A reader that does not read stops the sink, not the bridge; one that
// is gone (a closed pipe) is an error that the sink reports again and again, since only an operator can mend it.
package stdout
