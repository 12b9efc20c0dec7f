//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package checkpoint

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// lock takes an advisory lock, flock(2), on a file of its own: that of the checkpoint is replaced by others, and a lock
// on it with it. The kernel frees it when the process ends, however it ends. It waits up to patience, because a bridge
// that is about to end may still hold it.
func lock(path string, patience time.Duration) (unlock func() error, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(patience)
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return file.Close, nil // closing frees the lock
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(err, file.Close())
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(ErrLocked, file.Close())
		}
		<-time.After(lockPoll)
	}
}
