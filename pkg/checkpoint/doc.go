// Package checkpoint stores on disk which events are settled for each source ([ledger.State]), and the rows of each
// source. A restart uses both to continue where the previous process stopped.
//
// # Guarantees
//
// A commit is atomic. When [Store.Commit] returns, the rows of each source (the last settled state of each object), the
// watermark of each source, and the watermarks, configurations and positions of the sinks are on disk together. If a
// commit fails, the previous content is still there, and the next commit may succeed. If the process is killed at any
// moment, the file contains the result of exactly one commit.
//
// [Store.Load] returns the rows and the watermark of the same commit, or an error. It does not rely on bbolt alone. The
// record of a source contains the number of its rows and the sum of their checksums. This detects pages that are lost
// or that an earlier commit wrote. In addition, every row has a checksum of its key and content. If one source is
// damaged, the others stay usable. If the newest meta page is damaged, the previous commit is used, and the events that
// were settled after that commit are brought again.
//
// An initial list is committed in parts, as a source without a watermark. The source becomes valid with the commit that
// sets its watermark. [Open] removes sources without a watermark, and sources whose record is damaged.
//
// A file that cannot be used is quarantined (internal/boltfile): it is renamed to checkpoint.db.REASON-TIME and never
// deleted. The reasons are
//
//	corrupt        the file is damaged, empty, or of another program
//	other-cluster  the file belongs to a cluster with another uid ([Store.BeginCluster])
//
// Open fails if a newer version has written the file, or if the environment prevents it from using the file: the
// directory is not writable, the disk has no space for a new file, or another process uses the file.
//
// Only one process at a time can use a directory. The file checkpoint.lock is locked with flock(2) while the store is
// open. It is never removed. The checkpoint and the lock file have mode 0600, and a directory that Open creates has
// mode 0700. Rows contain objects unchanged unless [Privacy] restricts this. If the Privacy has changed, Open rewrites
// all rows and then copies the file, so that its free pages do not contain old data either. Open also compacts a file
// if more than half of it is free. It does so only if the file has at least 8 MiB and at most 512 MiB are in use, so
// the start is not delayed for long.
//
// # Copies
//
// With [Options.Log], each transaction passes its changes to the log before they are written to the file. Other
// processes apply these changes to their files ([Store.Copy], internal/statelog), which then contain the same bytes.
// The log and the copies contain the rows exactly as the file does, redacted or encrypted.
//
// The file also contains the point of the log that it corresponds to. If the process ends after a transaction is in the
// log and before it is in the file, the point shows that the file is behind, and the next process applies the missing
// changes. A transaction whose result is unknown is applied before the next one, as after a failed commit. A file that
// was lost or quarantined is read from the log again. A transaction without Log removes the point.
//
// If the log does not accept changes for some time, the file can go on without it ([Log].Append). It then notes which
// values the log lacks, and [Store.Unsent] returns them, so that they can be sent later. The notes survive a restart.
//
// Otherwise, such a file changes only with the log. Open therefore leaves the content as it is, and [Store.TakeOver]
// does the rest when the process is the writer of the log.
//
// # Events
//
// With a Log, the spilled and the parked events of the sinks are part of the checkpoint too ([Store.Events],
// [Store.Parked]), so that they survive the loss of the file. Each change of them is a transaction like any other. The
// watermarks of a commit count an event as settled only after the transaction that has stored the event.
//
// A damaged event is lost without others. The file does not contain the events of a sink that was removed, nor those of
// another cluster, which are quarantined with the file.
//
// Events contain what the sink is sent: the filter, the redaction and the encoder come before the queue. They contain
// secret values if and only if the sink is sent secret values in plain text. Privacy does not apply to
// events, and events that were spilled before a change of the redaction stay as they are.
//
// # The file
//
// checkpoint.db is one bbolt file with three buckets, a fourth one if it has had events, and a fifth one while it is
// ahead of the log:
//
//	deltabridge   format -> see boltfile; store -> JSON: cluster, sinks, their positions in their destinations, their
//	              pauses and losses, sources, privacy, `watch`, epoch and installation (see storeRecord)
//	              point -> JSON: the point in the log
//	sources       name -> JSON: the source, its watermarks, number of rows and sum of their checksums
//	rows          name -> bucket: "namespace/name" or "name" -> row
//	events        "spill-SINK" -> bucket: number (8 bytes, big endian) -> event; log -> JSON: see eventsRecord
//	              "parked-SINK" -> bucket: key of package parked -> event
//	unsent        bucket, source and key of a value that the log lacks, separated by zero bytes -> nothing
//
// All values except the format and those of unsent begin with a CRC-32C of key and content (see seal). A row contains
// the manager, which is not part of the JSON, and the object's JSON (see bodyRaw). The JSON is compressed as one s2
// block if compression saves at least one eighth. If Privacy has a Seal, the row contains the redacted JSON and,
// encrypted, the original JSON (see appendSealed).
//
// The store record names all sources, so the loss of a source record is detected.
//
// # Performance
//
// The figures were measured by go test -bench with 20,000 Pods of 2.5 KB, which s2 compresses to 1.7 KB, on two cores
// of a busy machine, with a local disk and fsync:
//
//	commit of      1 row      0.25 to 1 ms
//	             100 rows     2 to 3 ms
//	          10,000 rows     0.11 s; 11 us and 3.3 KB of allocations per row
//	          20,000 rows     0.18 s, into an empty file
//	load of   20,000 rows     0.07 to 0.1 s
//	open and inspect          0.03 to 0.09 s
//	file                      43 MB; 74 MB after half of the rows were replaced in one commit
//
// Without s2, the file is 84 MB (146 MB after the replacement). A commit of 10,000 rows then takes longer and
// allocates three times as much. Only loading is slightly faster.
package checkpoint
