package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/deltabridge/deltabridge/internal/files"
)

var (
	// ErrDamaged is wrapped by errors about corrupted files.
	ErrDamaged = errors.New("damaged")
	// ErrClosed is wrapped by errors of operations on a closed File.
	ErrClosed = bolterrors.ErrDatabaseNotOpen
)

// Explain adds the failed operation, the path and, if one is known, the remedy to err. If err is nil, Explain returns
// nil.
func Explain(what, path string, err error) error {
	if err == nil {
		return nil
	}
	if remedy := Remedy(err); remedy != "" {
		return fmt.Errorf("%s %s: %w: %s", what, path, err, remedy)
	}
	return fmt.Errorf("%s %s: %w", what, path, err)
}

// Remedy returns what to do about a file-system error, or an empty string if no remedy is known.
func Remedy(err error) string {
	switch {
	case is(err, syscall.ENOSPC), is(err, syscall.EDQUOT):
		return "the disk or quota is full: make room or enlarge the volume; " +
			"until then nothing is lost, but a restart sends the events since the last commit again"
	case is(err, syscall.EFBIG):
		return "the file has reached the maximum file size: raise the limit (ulimit -f)"
	case is(err, syscall.EROFS):
		return "the volume is mounted read-only: mount it writable, or set state.path to a writable directory"
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf(
			"make the directory and its content writable for user id %d (in Kubernetes: securityContext.fsGroup), "+
				"or set state.path to another directory",
			os.Geteuid(),
		)
	case errors.Is(err, files.ErrLocked):
		return "another bridge uses this directory: stop it, or give each bridge its own state.path"
	case errors.Is(err, bolterrors.ErrTimeout):
		return "another program has the file open: close it"
	case is(err, syscall.ENOTDIR):
		return "part of the path is a file, not a directory: set state.path to a directory"
	case errors.Is(err, ErrDamaged):
		return "restart the bridge, which checks the file and quarantines it if necessary"
	case is(err, syscall.EIO):
		return "the disk reports I/O errors: check the kernel log, and move the directory to another volume"
	}
	return ""
}

// is reports whether err is errno. It also compares error texts, because bbolt does not wrap all errors.
func is(err error, errno syscall.Errno) bool {
	return errors.Is(err, errno) || strings.Contains(err.Error(), errno.Error())
}
