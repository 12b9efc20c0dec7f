//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package files

import (
	"os"
	"time"
)

// LockFile does nothing where flock(2) does not exist. bbolt locks its files itself where it can.
func LockFile(*os.File, time.Duration) error { return nil }
