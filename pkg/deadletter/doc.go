// Package deadletter stores messages that a destination has rejected, until an operator re-sends or drops them.
//
// # Files
//
// A [Store] is a directory with one file per message. The file name is derived from the event id. Therefore a message
// that is stored again (because the bridge was killed before the checkpoint was written) does not become a second dead
// letter. A file contains the [Letter] as one line of JSON, followed by the message as it was encoded for its sink,
// without the values that are redacted for this sink. Files have mode 0600.
//
// # Durability
//
// When Keep returns nil, the message has been synced to disk. After a kill -9 or a power failure, a message is either
// complete or absent, because every file is written under a temporary name and then renamed.
//
// # Concurrent access
//
// Only one goroutine at a time may call Keep. All other methods may be called at any time, even by other processes.
// Therefore commands can list, read and remove dead letters while the bridge runs.
//
// # Limits
//
// A store has a size limit in bytes. If a message would exceed the limit, Keep returns [ErrFull], which the caller
// reports. Older dead letters are never overwritten or dropped.
package deadletter
