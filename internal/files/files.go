// Package files has what the stores of the bridge need of the file system: locks, durable names, and one scheme of
// names for files that cannot be used.
package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// ErrLocked is wrapped by the errors of Lock and LockFile if another process holds the lock.
var ErrLocked = errors.New("in use by another process")

// Lock takes a lock (LockFile) on the file with this path, which is created if it does not exist. Use a file of its own
// for the lock if the file that it protects can be replaced.
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

// WriteFile writes a file under a temporary name, and renames it: after a crash the file is complete or absent. It is
// durable when WriteFile returns nil.
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

// SyncDir makes the names in a directory durable.
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

// QuarantineName returns a name that does not exist yet: NAME.REASON-TIME.
func QuarantineName(path, reason string, now time.Time) string {
	name := fmt.Sprintf("%s.%s-%s", path, reason, now.UTC().Format("20060102T150405Z"))
	for n, unique := 2, name; ; n++ {
		if _, err := os.Lstat(unique); err != nil {
			return unique
		}
		unique = fmt.Sprintf("%s-%d", name, n)
	}
}
