// Package statelog keeps everything that the checkpoint contains in a log in a broker as well. The file then is a
// cache: a process that has lost it, or another process, reads the log and continues. The package knows no broker: a
// [Log] is a sequence of records, and pkg/sinks has the implementations. logtest has their conformance suite.
//
// # Guarantees
//
// The log contains commits. A commit is a list of pairs that are put or removed together. Only the process that claimed
// the log last can append commits ([Writer]). Any process can apply them to its local copy ([Follower]). A copy always
// has the content of exactly one commit, except while it is [Point].Partial. When [Writer.Append] has returned, every
// later leader has the commit.
//
// A commit is cut into records that the broker accepts, and only one record is on its way at any time. A reader applies
// a commit when it has the last record, and drops a commit that is followed by another one before it is complete. So
// neither atomic batches nor transactions of the broker are required.
//
// If it is unknown whether a record was written, the writer repeats it until the broker answers, or until the caller
// gives up. In that case, [Writer.Sync] completes the commit later: it is never replaced by another one of the same
// term.
//
// # Passes
//
// From time to time, the leader writes everything again between ordinary commits: a pass. Everything before a complete
// pass is removed. A pass begins with a claim. A pass that its leader did not finish begins again with the next claim.
// A reader without a copy, or with a copy that does not continue in the log, begins at the first pass of the log. Its
// copy is Partial until this pass or a later one has ended.
//
// # What goes wrong
//
// Each commit has a number, and the chain: a checksum of all commits before it. A copy stores both. So a reader notices
// commits that are missing, and a log that is not the one that its copy was made from. It then skips commits until a
// pass begins, and reports [ErrIncomplete].
//
//	a record of an earlier epoch behind a claim   it is dropped
//	the log was purged or created again           [Writer.Check] notices it, or the next Claim; the leader begins a pass
//	the log has lost its end, the copy has it     the same at the next Claim, which reports ErrIncomplete
//	commits are missing in the middle             followers report ErrIncomplete until the next pass
//	no copy and no complete pass                  Claim reports ErrIncomplete, or begins with nothing
//	another installation or another cluster       [ErrForeign]; nothing is read or written
//	a newer format                                [ErrNewer]; nothing is written
//
// If the log was emptied and no process has a copy, nothing shows that it ever had content. If a broker loses
// exactly the last commits, that is noticed only by a process whose copy has them. If the log was emptied, and a
// process without a copy claims it with a clock that is behind the epoch of the last leader, running followers of that
// leader drop what it writes, until they start again or claim the log.
//
// # Format
//
// A record consists of
//
//	version, 1 byte: 1
//	CRC-32C of everything else, 4 bytes, little endian; the same in all versions
//	kind: 1 claim, 2 changes, 3 refresh (a chunk of a pass); plus 0x80 if a pass begins, 0x40 if it ends; 1 byte
//	epoch, number of the commit, part, parts: unsigned varints; part counts from 0
//	chain of the previous commit, 4 bytes, little endian
//	a part of the payload
//
// The payload of a claim is JSON (see [Claim]). Any other payload consists of pairs. A pair is four fields: bucket,
// source, key and value. A field is an unsigned varint and the bytes. The varint is the length plus one, or zero for a
// value that is removed. The chain of a commit is the CRC-32C of its header as in a record, from the kind on, with part
// and parts 0, and of the payload.
//
// Numbers grow by one. After a loss, a claim that begins a pass can skip some. The epoch of the first claim is the
// time in seconds, so that it is higher than in a log that nobody remembers, and grows by one with each claim.
package statelog
