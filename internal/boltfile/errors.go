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
	// ErrDamaged is wrapped by errors about file content that is not as it was written.
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
		return "the disk or quota is full: make room or enlarge the volume; until then nothing is lost, but a restart repeats what was sent since the last commit"
	case is(err, syscall.EFBIG):
		return "the file may not grow: raise the limit on the size of files (ulimit -f)"
	case is(err, syscall.EROFS):
		return "the volume is mounted read-only: mount it writable, or set state.path to a folder that is writable"
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf(
			"make the folder and what is in it writable for user id %d (in Kubernetes: securityContext.fsGroup), or set state.path to another folder",
			os.Geteuid(),
		)
	case errors.Is(err, files.ErrLocked):
		return "another bridge uses this folder: stop it, or give each bridge a state.path of its own"
	case errors.Is(err, bolterrors.ErrTimeout):
		return "another program has the file open: close it"
	case is(err, syscall.ENOTDIR):
		return "a part of the path is a file: set state.path to a folder"
	case errors.Is(err, ErrDamaged):
		return "something else changed the file while it was in use: restart the bridge, which examines it and begins a new one if it must"
	case is(err, syscall.EIO):
		return "the disk fails: see the kernel's log, and move the folder to another volume"
	}
	return ""
}

// is reports whether err is errno. It also compares error texts, because bbolt does not wrap all errors.
func is(err error, errno syscall.Errno) bool {
	return errors.Is(err, errno) || strings.Contains(err.Error(), errno.Error())
}
