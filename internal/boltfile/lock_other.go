//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package boltfile

import "time"

// Lock does nothing where there is no flock(2). bbolt locks the file itself where it can.
func Lock(string, time.Duration) (unlock func() error, err error) {
	return func() error { return nil }, nil
}
