// Package deadletter keeps messages that a destination refuses for good, until a person sends them again or drops them.
//
// # Durability
//
// Keep returns when the message lies on the disk. A file is a bbolt database: what a kill -9 or a power failure interrupts
// is there as a whole or not at all. A message that is kept twice (the bridge was killed before the checkpoint knew) is one
// entry, for the key is the event's id. Files have the mode 0600, and hold messages as they were encoded for their sink:
// secret values that the sink may not know are not in them.
//
// # Two processes
//
// The file is opened for each call and closed behind it, so that the commands of a person can work on it while the bridge
// runs. bbolt's lock on the file keeps two of them apart; a call waits for it for a few seconds.
//
// # Bounds
//
// A file has a limit in bytes. Keep refuses what would exceed it with [ErrFull], and the caller says so: nothing is
// overwritten and nothing old is dropped.
package deadletter
