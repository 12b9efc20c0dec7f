//go:build unix

package embedded

import (
	"os"
	"syscall"
)

// lockFile takes f for this process. The lock ends with the file.
func lockFile(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
