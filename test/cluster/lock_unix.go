//go:build unix

package cluster

import (
	"errors"
	"os"
	"syscall"
)

// tryLock takes the lock on an open file if no other process has it. The lock
// ends with the file or the process.
func tryLock(file *os.File) (bool, error) {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
