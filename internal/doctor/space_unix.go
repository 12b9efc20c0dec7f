//go:build darwin || freebsd || linux

package doctor

import "golang.org/x/sys/unix"

// freeSpace returns the number of bytes that the bridge can still write to a directory.
func freeSpace(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil //nolint:unconvert // the types differ between systems
}
