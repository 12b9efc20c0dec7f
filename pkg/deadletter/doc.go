// Package deadletter stores messages that a destination has rejected, until an operator re-sends or drops them.
//
// # Files
//
// A [Store] is a directory with one file for each message. The name of a file is derived from the event's id, so a
// message that is stored again (because the bridge was killed before the checkpoint was written) stays one dead letter.
// A file is a line of JSON, which is the [Letter], followed by the message as it was encoded for its sink, without the
// values that are redacted for it. Files have mode 0600.
//
// # Durability
//
// Keep returns after the message has been synced to disk. After a kill -9 or a power failure, a message is either
// complete or absent, because each file is written under a temporary name and then renamed.
//
// # Concurrent access
//
// One goroutine calls Keep. All other methods may be called at any time, also by other processes, so that commands can
// list, read and remove dead letters while the bridge runs.
//
// # Limits
//
// A store has a limit in bytes. If a message would exceed it, Keep returns [ErrFull] and the caller reports it: older
// dead letters are never overwritten or dropped.
package deadletter
