// Package deadletter stores messages that a destination has rejected, until an operator re-sends or drops them.
//
// # Durability
//
// Keep returns after the message has been synced to disk. A file is a bbolt database: after a kill -9 or a power
// failure, a message is either complete or absent. The key is the event's id, so a message that is stored again
// (because the bridge was killed before the checkpoint was written) stays one entry. Files have mode 0600. They contain
// messages as they were encoded for their sink, without the values that are redacted for it.
//
// # Concurrent access
//
// Each call opens the file and closes it again, so that commands can use it while the bridge runs. bbolt's file lock
// serializes access; a call waits a few seconds for it.
//
// # Limits
//
// A file has a limit in bytes. If a message would exceed it, Keep returns [ErrFull] and the caller reports it: older
// dead letters are never overwritten or dropped.
package deadletter
