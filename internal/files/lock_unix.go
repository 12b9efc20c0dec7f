//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package files

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// lockPoll is the interval between attempts to take a lock that another process holds.
const lockPoll = 50 * time.Millisecond

// LockFile takes an advisory lock (flock(2)) on an open file. The kernel releases the lock when the file is closed or
// the process ends for any reason. LockFile waits for up to patience, because a process that is about to end may still
// hold the lock.
func LockFile(file *os.File, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		if time.Now().After(deadline) {
			return ErrLocked
		}
		<-time.After(lockPoll)
	}
}
