// Package boltfile opens bbolt files that may be damaged by a crash, a full disk or a failing disk.
//
// bbolt does not validate its file. A wrong offset makes bbolt read memory outside of the file. A page that is its own
// ancestor makes bbolt run until memory is exhausted. A process cannot recover from either of these faults. Therefore
// [Open] reads the whole file page by page, without bbolt, before bbolt maps it (see inspect). If another program
// changes the file while it is in use, the resulting fault or panic becomes an error of [File.View] or [File.Update]
// where possible. Otherwise the process ends, and the next start detects the damage.
//
// All errors about the content of a file wrap [ErrDamaged]. The caller then quarantines the file (files.Quarantine) and
// starts a new one. [Prepare] and [Install] create a file that gets its name only when it is complete and durable.
// [Remedy] returns instructions for file-system errors.
//
// # bbolt settings
//
//   - NoFreelistSync: bbolt does not write the list of free pages. This saves one or more page writes per commit, and
//     the list cannot be damaged. When bbolt opens the file, it rebuilds the list by walking the tree, which takes
//     about as long as inspect. With this setting, an empty transaction writes only a meta page, which File.Update
//     requires after an error.
//   - FreelistType map: the other type is slow when many pages are free.
//   - PageSize is 4 KiB on all systems. With 16 KiB, each row costs 20 % less CPU time, but scattered changes write up
//     to four times as much data.
//   - InitialMmapSize is 256 MiB of address space, because bbolt copies all changes of a transaction whenever the file
//     outgrows its map. With this setting, the first 20,000 rows in one commit allocated 95 MB instead of 900 MB, and
//     took a third of the time.
//   - AllocSize is 1 MiB: the file grows in steps of this size. It never shrinks.
package boltfile
