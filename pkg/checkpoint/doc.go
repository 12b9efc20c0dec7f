// Package checkpoint stores on disk what is settled of each source ([ledger.State]) and its rows, so that a restart
// goes on where the process before it stopped.
//
// # What the store promises
//
// A commit is all or nothing: the rows of each source (the last settled state of each object), its watermark, each
// sink's own watermark and the sinks' configurations are on the disk together when [Store.Commit] returns. If it
// fails, what was there before is still there, and the next one may succeed. A process that is killed at any moment
// leaves what one commit left.
//
// [Store.Load] returns the rows and the watermark of one and the same commit, or nothing. That is not only bbolt's
// word: a source's record holds the number and the sum of the checksums of its rows, so that a page that is lost, or
// is that of an earlier commit, is noticed, and each row has a checksum over its key and its content. A source that
// does not add up is as if it had never had a checkpoint; the others stay. The newest commit that can be read counts:
// if its meta page is damaged, the commit before it is used, which repeats what was settled in between.
//
// [Open] never fails for what is in the file. A file that can't be used is quarantined (internal/boltfile): renamed to
// checkpoint.db.REASON-TIME, never deleted, with the reasons
//
//	corrupt        it is damaged, or no bbolt file at all; an empty file too, since none is ever left empty
//	foreign        a sound bbolt file that holds something else
//	newer-format   made by a later version of this program
//	other-cluster  of a cluster with another uid ([Store.BeginCluster])
//
// Open fails for what is around the file: a directory that can't be written, no room for a new file, another process
// that uses it.
//
// One process at a time uses a directory: checkpoint.lock is locked with flock(2) for as long as the store is open,
// and never removed. File and lock have mode 0600, a directory that is made has 0700. Rows hold objects as they are,
// except for what [Privacy] says: rows of another one are rewritten by Open, into a new file, so that nothing stays
// in free pages. Open also rewrites a file of which more than half is free (from 8 MiB on, and up to 512 MiB in use,
// so that a start is not held up for long).
//
// # The file
//
// One bbolt file, checkpoint.db, with three buckets:
//
//	deltabridge   format -> "1"; store -> JSON: cluster's name and uid, sinks' configurations, names of the sources
//	sources       name -> JSON: what is watched, watermarks, number of rows and sum of their checksums
//	rows          name -> bucket: "namespace/name" or "name" -> row
//
// All values but the format's begin with a CRC-32C of key and content (see seal). A row is the object's JSON, as one
// block of s2 where that makes it an eighth smaller, and the manager, which is not in the JSON (see bodyRaw). Where
// Privacy seals, it is the redacted JSON, and beside it the JSON itself, encrypted (see appendSealed).
//
// The store record names all sources, so that one whose record is lost is noticed. Format numbers only grow; a program
// quarantines what has a higher one than it knows.
//
// # What it costs
//
// Pods of 2.5 KB, of which s2 makes 1.7 KB, 20,000 of them; 2 cores of a busy machine, local disk, with fsync; go test
// -bench . tells:
//
//	commit of      1 row      0.25 to 1 ms
//	             100 rows     2 to 3 ms
//	          10,000 rows     0.11 s, 11 us and 3.3 KB of allocations a row
//	          20,000 rows     0.18 s, into an empty file
//	load of   20,000 rows     0.07 to 0.1 s
//	open and inspect          0.03 to 0.09 s
//	file                      43 MB; 74 MB once half of it was replaced at once
//
// Without s2 the file has 84 (146) MB, a commit of 10,000 rows allocates three times as much and takes longer, and only
// loading is a little faster.
package checkpoint
