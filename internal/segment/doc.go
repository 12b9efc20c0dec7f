// Package segment implements a log on disk. Numbered records are appended at its end and acknowledged from its
// beginning.
//
// A [Log] is a directory that contains a state file and segments, which are files of records. Every record has a
// checksum, and can have a source and a position in that source. A segment is removed when all its records are
// acknowledged. Records in a segment are never overwritten.
//
// # Durability
//
// When [Log.Append] returns nil, its records are durable. When [Log.Ack] returns nil, the number up to which records
// are acknowledged is durable. [Log.Positions] returns the last position of every source. If the last records of a
// source were acknowledged before they were written, its position is the one that was passed to Append. The positions
// are valid while the log has records. After a crash at any time, the log contains a prefix of the appended records,
// including all records for which Append returned nil, and the positions of exactly this prefix. An Ack is durable
// before the next Append begins. Therefore, if records were acknowledged but never written, their acknowledgement is
// durable before the log contains newer records.
//
// # Damage
//
// If a record is damaged, only that record is lost: if the head of a record cannot be read, the log searches for the
// head of the next record. [Log.Read] returns consecutive lost records as one record with an error. If records are
// missing at the end of the log and the state file records that they were written, they are lost. Otherwise they are a
// torn tail, which is ignored, with all records behind it: if the power fails, the disk may have written only a later
// part of a batch. Before a batch is written, the state file therefore records all earlier ones. If the state file
// cannot be used and there are segments, [Open] quarantines the whole directory. Read errors of the disk are treated as
// damage. Damaged segments are quarantined instead of removed.
//
// # Full disk
//
// The state file is overwritten in place, so records can be acknowledged, and their segments removed, even if the disk
// is full. After a failed Append, the segment is truncated to the end of its last complete record, and the next Append
// starts a new segment.
//
// # Concurrency
//
// Only one goroutine at a time may call Append, Ack and Close, and only one goroutine at a time may call Read; these
// may be different goroutines. Any goroutine may call the other methods.
package segment
