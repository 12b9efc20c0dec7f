//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package segment

import (
	"os"
	"time"
)

// lock does nothing where there is no flock(2).
func lock(*os.File, time.Duration) error { return nil }
