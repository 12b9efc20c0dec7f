package boltfile

import (
	"os"
	"syscall"

	"go.etcd.io/bbolt"
)

// release tells the kernel that the process currently does not need the pages of the memory map (madvise(2),
// MADV_DONTNEED). No data is lost, because the map is a shared file mapping. While tx is open, bbolt does not move the
// map.
func release(db *bbolt.DB, tx *bbolt.Tx) {
	file, err := os.Stat(db.Path())
	if err != nil {
		return
	}
	// If another program truncated the file, the file is smaller than tx.Size. Use the smaller size, because other memory
	// may follow the map.
	size := min(tx.Size(), file.Size())
	// The address is not a Go pointer. The error is ignored: if the call fails, the process only appears to use more
	// memory than it does.
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, db.Info().Data, uintptr(size), syscall.MADV_DONTNEED)
}
