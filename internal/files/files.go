// Package files contains the file-system functions that all stores of the bridge use: locks, durable file names, and
// the names of quarantined files.
package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Free returns the number of bytes that the bridge can still write to a directory.
func Free(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil //nolint:unconvert // the types differ between systems
}

// ErrLocked is wrapped by the errors of Lock and LockFile if another process holds the lock.
var ErrLocked = errors.New("in use by another process")

// Lock locks the file at path (see LockFile) and creates the file if it does not exist. If the file that is to be
// protected can be replaced, use a separate lock file.
func Lock(path string, patience time.Duration) (unlock func() error, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := LockFile(file, patience); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file.Close, nil
}

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

// WriteFile writes a file under a temporary name and then renames it to path. Therefore a crash never leaves an
// incomplete file at path. The file is durable when WriteFile returns nil.
func WriteFile(path string, data []byte) error {
	temporary := path + ".new"
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		_ = os.Remove(temporary)
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes the file names in a directory durable.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	err = dir.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil // the file system cannot sync directories
	}
	return err
}

// Quarantine renames a file or directory that cannot be used, and returns its new name.
func Quarantine(path, reason string) (renamedTo string, err error) {
	renamedTo = QuarantineName(path, reason, time.Now())
	return renamedTo, os.Rename(path, renamedTo)
}

// QuarantineName returns a name of the form NAME.REASON-TIME that does not exist yet.
func QuarantineName(path, reason string, now time.Time) string {
	name := fmt.Sprintf("%s.%s-%s", path, reason, now.UTC().Format("20060102T150405Z"))
	for n, unique := 2, name; ; n++ {
		if _, err := os.Lstat(unique); err != nil {
			return unique
		}
		unique = fmt.Sprintf("%s-%d", name, n)
	}
}
