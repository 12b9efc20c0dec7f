//go:build unix

package embedded

import (
	"os"
	"syscall"
)

// lockFile locks f for this process. Closing f releases the lock.
func lockFile(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
