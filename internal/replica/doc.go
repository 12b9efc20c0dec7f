// Package replica keeps the checkpoints of several processes the same. They share a state log in a broker
// (internal/statelog). One process, the leader, runs an engine, and appends every transaction of its checkpoint to the
// log before the file is changed. The others are standbys, which apply the log to their own files. A standby that
// becomes the leader continues with the rows, watermarks and positions of the previous leader. A process without a file
// reads them from the log.
//
// # Use
//
// The package does not choose the leader. The caller does, for example with a Lease, and calls the methods of a [Copy]
// in this order:
//
//	Open
//	Follow     until this process is chosen
//	Lead       claims the log, and reads the rest of it
//	Maintain   beside an engine that uses Store
//	Follow     after the engine has ended; and so on
//	Close
//
// Follow, Lead, Maintain and Close must not be called concurrently. Store, Behind, and the methods of the store can be
// called at any time. An engine must not close the store, and must have ended before Follow, Lead or Close is called.
// While the process does not lead, changes of the store fail with [statelog.ErrConflict].
//
// The log decides which process may write, not the caller. If two processes lead, the one that claimed the log last
// continues. Changes of the other one fail, and its Maintain returns. So a wrong choice costs time, but no state.
//
// # Guarantees
//
// If a change of the store has succeeded, every later leader has it, unless the store is detached (see below). If the
// change has failed, later leaders may have it. This process then applies it before its next change, or while it
// follows. Transactions are atomic in every copy. Package statelog describes which losses of records are detected.
//
// Follow and Maintain repeat what fails because the broker or the disk does not respond. They return only if the
// context ends or if the process must not use the log: the log belongs to another installation or cluster
// ([statelog.ErrForeign]), a newer version has written to it (files.NewerFormatError), the file was changed without it
// ([statelog.ErrDiverged]), or, in Maintain, the term has ended ([statelog.ErrConflict]).
//
// # If the broker is unavailable
//
// If the broker acknowledges nothing for 2 seconds, the change of the store that waits for it succeeds without the log,
// and the store is detached: it goes on with the file alone, which notes what the log lacks. A transaction of many
// records can take longer, as long as the broker acknowledges them. When the broker responds again, Maintain sends what
// the log lacks: the new events first, in small commits, and then everything else in one commit. A copy of the log is
// therefore consistent at any time. Changes of the store do not wait meanwhile, except for the last part if it is
// small.
//
// Until then, only this process has these changes. If another process claims the log, Maintain returns ErrConflict when
// it notices that, and Follow discards the changes. If this process leads again, also after a restart, and no other
// process has claimed the log meanwhile, Maintain sends them.
//
// If the file cannot be written when the broker is unavailable, changes of the store fail until Maintain has completed
// the transaction that the log may have. While the store is not detached, a change waits for one or two steps of
// Maintain at most. A step writes a chunk of a pass, or fails if the broker does not respond for 2 seconds.
//
// A standby that cannot read the log does not know how far it is behind: Behind returns -1.
package replica
