// Package segment is a log on disk: numbered records are appended at its end and acknowledged from its beginning.
//
// A [Log] is a directory with segments, which are files of records, and a state file. Each record has a checksum, and
// can have a source and a position in that source. A segment is removed when all its records are acknowledged.
// Nothing in a segment is overwritten.
//
// # What is durable
//
// When [Log.Append] returns nil, its records are durable; when [Log.Ack] returns nil, so is the number up to which
// records are acknowledged. [Log.Positions] returns the positions of the records in the log, and those that Append
// was given for sources whose records were acknowledged before they were written. They are valid while the log has
// records. After a crash at any moment the log has a prefix of the appended records, which includes all records for
// which Append returned nil, and the positions of exactly that prefix. An Ack is durable before the next Append
// begins. So if records were acknowledged and never written, that is durable before newer records are in the log.
//
// # Damage
//
// Damage to a record costs only that record: if its head cannot be read, the head of the next record is searched for.
// [Log.Read] returns a run of lost records as one record with an error. Records that are missing at the end of the
// log are a torn tail, which is ignored, unless the state file says that they were written: then they are lost. If
// the state file cannot be used, [Open] quarantines the whole directory. Read errors of the disk count as damage.
// Damaged segments are quarantined instead of removed.
//
// # Full disk
//
// The state is written in place, and acknowledged segments are removed before anything is written. After a failed
// Append the segment is truncated to its records, and the next Append begins a new one.
//
// # Concurrency
//
// One goroutine calls Append, Ack and Close, and one, which may be another, calls Read. Any goroutine may call the
// other methods.
package segment
