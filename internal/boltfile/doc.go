// Package boltfile opens bbolt files that a crash, a full disk or a failing one may have left in any state.
//
// bbolt trusts its file. A wrong offset makes it read memory that is not its own, a page that is its own ancestor
// makes it run until memory ends, and neither can be recovered from. So [Open] reads the whole file, page by page and
// without bbolt, before bbolt maps it (see inspect). A fault or panic later, when something changes the file while it
// is in use, becomes an error of [File.View] and [File.Update] where that is possible; where not, the process ends,
// and the next start notices the damage.
//
// All errors about what is in a file wrap [ErrDamaged]. The caller then renames the file (files.Quarantine) and
// begins a new one. [Prepare] and [Install] put a file under its name only when it is complete and on the disk.
// [Remedy] says what to do about errors of the file system.
//
// # Settings of bbolt
//
//   - NoFreelistSync: the list of free pages is not written, which saves a page or more with each commit, and is one
//     thing less that can be damaged; it is found again on opening, by a walk that costs about as much as inspect. A
//     transaction that changes nothing then writes a meta page alone, which is what File.Update needs after an error.
//   - FreelistType map: the other one is slow when many pages are free.
//   - Pages of 4 KiB wherever the file is made. 16 KiB cost 20 % less CPU for each row, but scattered changes write as
//     much more as pages are larger.
//   - InitialMmapSize 256 MiB of address space, since bbolt copies all changes of a transaction whenever the file
//     outgrows its map: the first 20,000 rows in one commit took 95 instead of 900 MB of allocations, and a third of
//     the time.
//   - The file grows in steps of 1 MiB and never shrinks.
package boltfile
