//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package files

import (
	"os"
	"time"
)

// LockFile does nothing on systems without flock(2). On some of these systems, bbolt locks its own files.
func LockFile(*os.File, time.Duration) error { return nil }
