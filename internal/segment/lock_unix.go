//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package segment

import (
	"errors"
	"os"
	"syscall"
	"time"
)

const lockPoll = 50 * time.Millisecond

// lock takes an advisory lock, flock(2), which the kernel frees when the file is closed or the process ends, however
// it ends. It waits up to patience, because a process that is about to end may still hold it.
func lock(file *os.File, patience time.Duration) error {
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
