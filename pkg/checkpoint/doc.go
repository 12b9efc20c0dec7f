// Package checkpoint stores on disk what is settled of each source ([ledger.State]), and the rows of each source, so
// that a restart continues where the previous process stopped.
//
// # What the store promises
//
// A commit is all or nothing: the rows of each source (the last settled state of each object), its watermark, the
// watermark of each sink and the sinks' configurations are on the disk together when [Store.Commit] returns. If it
// fails, the previous content is still there, and the next commit may succeed. A process that is killed at any moment
// leaves the result of one commit.
//
// [Store.Load] returns the rows and the watermark of one and the same commit, or an error. It does not rely on bbolt
// alone: a source's record holds the number and the sum of the checksums of its rows, so that a page that is lost, or
// that an earlier commit wrote, is noticed; and each row has a checksum of its key and its content. The other sources
// stay usable. If the newest meta page is damaged, the commit before it is used, which repeats what was settled in
// between.
//
// A first list is committed in parts, as a source without a watermark. It counts when a commit gives the source a
// watermark. [Open] removes the sources without one, and those whose record is damaged.
//
// [Open] never fails because of what is in the file. A file that cannot be used is quarantined (internal/boltfile):
// renamed to checkpoint.db.REASON-TIME, never deleted. The reasons are
//
//	corrupt        it is damaged, not a bbolt file, or empty
//	foreign        it is an undamaged bbolt file of another program
//	newer-format   a later version of this program wrote it
//	other-cluster  it is of a cluster with another uid ([Store.BeginCluster])
//
// Open fails because of what is around the file: the directory is not writable, there is no room for a new file,
// another process uses it.
//
// One process at a time uses a directory: checkpoint.lock is locked with flock(2) as long as the store is open, and
// never removed. File and lock have mode 0600, a directory that Open makes has 0700. Rows hold objects as they are,
// except for what [Privacy] says: Open rewrites rows of another Privacy into a new file, so that nothing stays in free
// pages. Open also compacts a file of which more than half is free (from 8 MiB on, and up to 512 MiB in use, so that a
// start is not delayed for long).
//
// # The file
//
// checkpoint.db is one bbolt file with three buckets:
//
//	deltabridge   format -> "1"; store -> JSON: name and uid of the cluster, configurations of the sinks, names of the sources
//	sources       name -> JSON: what is watched, watermarks, number of rows and sum of their checksums
//	rows          name -> bucket: "namespace/name" or "name" -> row
//
// All values except the format's begin with a CRC-32C of key and content (see seal). A row is the object's JSON, as one
// block of s2 if that makes it an eighth smaller, and the manager, which is not in the JSON (see bodyRaw). If Privacy
// seals, it is the redacted JSON, and the JSON itself, encrypted (see appendSealed).
//
// The store record names all sources, so that a lost source record is noticed. Format numbers only grow; a program
// quarantines a file with a higher number than it knows.
//
// # What it costs
//
// Measured by go test -bench with 20,000 Pods of 2.5 KB, which s2 makes 1.7 KB, on two cores of a busy machine, with a
// local disk and fsync:
//
//	commit of      1 row      0.25 to 1 ms
//	             100 rows     2 to 3 ms
//	          10,000 rows     0.11 s, 11 us and 3.3 KB of allocations a row
//	          20,000 rows     0.18 s, into an empty file
//	load of   20,000 rows     0.07 to 0.1 s
//	open and inspect          0.03 to 0.09 s
//	file                      43 MB; 74 MB once half of it was replaced at once
//
// Without s2 the file has 84 (146) MB, a commit of 10,000 rows allocates three times as much and takes longer; only
// loading is a little faster.
package checkpoint
