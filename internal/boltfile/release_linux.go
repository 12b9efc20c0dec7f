package boltfile

import (
	"os"
	"syscall"

	"go.etcd.io/bbolt"
)

// release tells the kernel that the pages of the map are not needed now (madvise(2), MADV_DONTNEED: of a shared file
// mapping nothing is lost). The open transaction keeps the map where it is.
func release(db *bbolt.DB, tx *bbolt.Tx) {
	file, err := os.Stat(db.Path())
	if err != nil {
		return
	}
	// A file that was cut off has less than it says, and behind its map there may be other memory.
	size := min(tx.Size(), file.Size())
	// The address is no Go pointer. Should the call fail, the process looks larger than it is, and that is all.
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, db.Info().Data, uintptr(size), syscall.MADV_DONTNEED)
}
