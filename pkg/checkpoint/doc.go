// Package checkpoint stores on disk what is settled of each source ([ledger.State]) and its rows, so that a restart goes on
// where the process before it stopped.
//
// # What the store promises
//
// A commit is all or nothing: the rows of each source (the last settled state of each object), its watermark, each
// sink's own watermark and the sinks' configurations are on the disk together when [Store.Commit] returns. If it
// fails, what was there before is still there, and the next one may succeed. A process that is killed at any moment
// leaves what one commit left.
//
// [Store.Load] gives the rows and the watermark of one and the same commit, or nothing. That is not only bbolt's word:
// a source's record holds the number and the sum of the checksums of its rows, so that a page that is lost, or is that
// of an earlier commit, is noticed, and each row has a checksum over its key and its content. A source that does not
// add up is as if it had never had a checkpoint; the others stay. The newest commit that can be read counts: if its
// meta page is damaged, the commit before it is used, which repeats what was settled in between.
//
// [Open] never fails for what is in the file. A file that can't be used is renamed, never deleted, and says why in its
// name: checkpoint.db.REASON-TIME, with the reasons
//
//	corrupt        it is damaged, or no bbolt file at all; an empty file too, since none is ever left empty
//	foreign        a sound bbolt file that holds something else
//	newer-format   made by a later version of this program
//	other-cluster  of a cluster with another uid ([Store.BeginCluster])
//
// and what callers give to [Store.SetAside]. Open fails for what is around the file: a folder that can't be written, no
// room for a new file, another process that uses it.
//
// One process at a time uses a folder: checkpoint.lock is locked with flock(2) for as long as the store is open, and
// never removed. File and lock have mode 0600, a folder that is made has 0700. Rows hold objects as they are, but for what
// [Privacy] says: rows of another one are rewritten by Open, into a new file, so that nothing stays in free pages.
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
// block of s2 where that makes it an eighth smaller, and the manager, which is not in the JSON (see bodyRaw). Where Privacy
// seals, it is the redacted JSON, and beside it the JSON itself, encrypted (see appendSealed).
//
// The store record names all sources, so that one whose record is lost is noticed. Format numbers only grow; a program
// sets aside what has a higher one than it knows.
//
// # Before bbolt opens it
//
// bbolt trusts its file. A wrong offset makes it read memory that is not its own, a page that is its own ancestor makes
// it run for ever, and on opening it walks the tree in a goroutine of its own, whose panics end the process. So inspect
// walks through the whole file first, reading page by page. A fault or panic later, when something changes the file
// while it is in use, is turned into an error where that is possible; where not, the process ends, and the next start
// sets the file aside.
//
// # Settings of bbolt
//
//   - NoFreelistSync: the list of free pages is not written, which saves a page or more with each commit, and is one
//     thing less that can be damaged; it is found again on opening, by a walk that costs about as much as inspect. A
//     transaction that changes nothing then writes a meta page alone, which is what settle needs.
//   - FreelistType map: the other one is slow when many pages are free.
//   - Pages of 4 KiB wherever the file is made. 16 KiB cost 20 % less CPU for each row, but scattered changes write as
//     much more as pages are larger.
//   - InitialMmapSize 256 MiB of address space, since bbolt copies all changes of a transaction whenever the file
//     outgrows its map: the first 20,000 rows in one commit took 95 instead of 900 MB of allocations, and a third of
//     the time.
//   - The file grows in steps of 1 MiB and never shrinks, but Open rewrites it if more than half of it is free (from
//     8 MiB on, and up to 512 MiB in use, so that a start is not held up for long).
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
