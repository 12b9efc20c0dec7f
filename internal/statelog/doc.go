// Package statelog writes the content of the checkpoint to a log in a broker as well. The checkpoint file is then only
// a cache: a process that has lost the file, or another process, reads the log and continues. The package does not
// depend on a broker. A [Log] is a sequence of records. Packages below pkg/sinks implement it, and logtest contains the
// conformance suite for these implementations.
//
// # Guarantees
//
// The log is a sequence of commits. A commit is a list of pairs that are put or removed together. Only the process that
// was the last to claim the log can append commits ([Writer]). This process is the leader. Any process can apply the
// commits to its local copy ([Follower]). The content of a copy always corresponds to exactly one commit, except while
// the copy is [Point].Partial. If [Writer.Append] has returned no error, every later leader has the commit.
//
// A commit is split into records that are small enough for the broker. The writer appends a record only after the
// broker has acknowledged the previous one. A reader applies a commit when it has read the last record of the commit.
// If another commit begins before this record, the reader drops the incomplete commit. The broker therefore has to
// support neither atomic batches nor transactions.
//
// If it is unknown whether the broker has written a record, the writer repeats the record until the broker answers or
// the caller gives up. If the caller gives up, [Writer.Sync] completes the commit later. The commit is never replaced
// by another commit of the same term.
//
// # Passes
//
// From time to time, the leader writes the whole content to the log again. This is a pass. It consists of several
// commits, and ordinary commits can be appended between them. When the pass is complete, everything before it is
// removed from the log. Every pass begins with a claim. If a leader does not complete its pass, the next claim begins
// the pass again.
//
// A reader starts at the first pass in the log if it has no copy, or if its copy does not continue in the log. The copy
// is Partial until this pass or a later one is complete.
//
// # Copies that are ahead of the log
//
// The leader's copy can go on while the log is unavailable. It then sets [Point].Unsent to a random name. A reader with
// such a copy skips the commits of the same process, and those of later processes with this copy, whose claims contain
// this name. If any other process has claimed the log, the reader empties the copy and reads the log from its
// beginning. The caller appends what the log lacks, and clears Unsent when the log has everything. A claim then says so
// ([Claim].Sent), so that a copy that was restored from a backup does not skip what follows.
//
// # Missing commits and other failures
//
// Every commit has a number and a chain. The chain is a checksum of the commit and of all commits before it. A copy
// stores the number and the chain of its last commit. A reader therefore detects missing commits, and a log that is not
// the one that its copy was made from. It then skips commits until a pass begins, and reports [ErrIncomplete].
//
//	record of an earlier epoch after a claim     Readers drop the record.
//	log purged, or deleted and created again     [Writer.Check] or the next Claim detects this; a pass begins.
//	log without its last commits, copy has them  The next Claim detects this and reports ErrIncomplete.
//	commits missing in the middle                Followers report ErrIncomplete until the next pass.
//	neither a copy nor a complete pass           Claim reports ErrIncomplete or, if acceptLoss is set, starts empty.
//	log of another installation or cluster       [ErrForeign]. Nothing is read or written.
//	log of replicas with another Lease           [ErrForeign]. Nothing is read or written, unless the log was purged.
//	log of a newer format                        files.NewerFormatError. Nothing is written.
//
// Three failures are not detected, or not by every process:
//
//   - If the log was emptied and no process has a copy, nothing shows that the log ever had content.
//   - If a broker loses exactly the last commits, only a process whose copy has these commits detects the loss.
//   - If the log was emptied, a process without a copy may claim it while its clock is behind the epoch of the last
//     leader. Running followers of that leader then drop the records of the new leader, until the followers start again
//     or claim the log.
//
// # Format
//
// A record consists of
//
//	files.Format, 1 byte
//	CRC-32C of everything else, 4 bytes, little endian; the same in all versions
//	kind: 1 claim, 2 changes, 3 refresh (a chunk of a pass); plus 0x80 if a pass begins, 0x40 if it ends; 1 byte
//	epoch, number of the commit, part, parts: unsigned varints; part counts from 0
//	chain of the previous commit, 4 bytes, little endian
//	a part of the payload
//
// The payload of a claim is JSON (see [Claim]). Every other payload is a list of pairs. A pair has four fields: bucket,
// source, key and value. A field is an unsigned varint, followed by the bytes of the field. The varint is the length of
// the field plus one, or zero for a value that is removed.
//
// The chain of a commit is a CRC-32C. It covers the header, encoded as in a record from the kind on, but with part and
// parts set to 0, and then the payload. The header contains the chain of the previous commit.
//
// The number of a commit is one higher than the number of the previous commit. After a loss, a claim that begins a pass
// can skip numbers. The epoch of the first claim is the Unix time in seconds, so it is higher than the epochs of an
// earlier log of which no process has a copy. Each further claim increases the epoch by one.
package statelog
