//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package boltfile

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// lockPoll is how often a lock that another process holds is tried.
const lockPoll = 50 * time.Millisecond

// Lock takes an advisory lock, flock(2), on a file of its own: others take the place of the file that it is for. The
// kernel frees it when the process ends, however it ends. It waits up to patience, because a process that is about to
// end may still hold it.
func Lock(path string, patience time.Duration) (unlock func() error, err error) {
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
