// Package segment is a log on disk: numbered records are appended at its end and acknowledged from its beginning.
//
// A [Log] is a directory with segments, which are files of records, and a state file. Each record has a checksum, and
// may say which position of which source it has. A segment is removed when all its records are acknowledged; nothing
// in it is ever overwritten.
//
// # What is durable
//
// When [Log.Append] returns, its records are; when [Log.Ack] returns, so is the number up to which records are
// acknowledged. [Log.Positions] are those of the records in the log, and what Append was given for sources whose
// records were acknowledged before they were written; they are valid as long as the log has records. After a crash at
// any moment the log has a prefix of what was appended that includes all that Append returned for, and the positions
// of exactly that. Ack is durable before Append begins, if it was called before, so that records which were never
// written are known to be acknowledged before newer ones are in the log.
//
// # Damage
//
// A record that can't be read costs itself; one whose head can't be read costs nothing else either, for the head of
// the next is searched. [Log.Read] returns such a run of records as one with an error. What is missing at the end of
// the log is a torn tail, which is cut off, as far as the state file does not say that it was there; else it is lost,
// like any other. A state file that can't be used makes the whole directory unusable: [Open] renames it. Read errors
// of the disk count as damage. Damaged segments are renamed instead of removed.
//
// # Full disk
//
// The state is written in place, and acknowledged segments are removed before anything is written. What a failed Append
// left is cut off, and a new segment begins with the next one.
//
// # Who may call what
//
// Append, Ack and Close: one goroutine. Read: one goroutine, which may be another. All others: any.
package segment
