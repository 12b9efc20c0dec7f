//go:build darwin || freebsd || linux

package doctor

import "golang.org/x/sys/unix"

// freeSpace is how many bytes the bridge could write below a folder.
func freeSpace(folder string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil //nolint:unconvert // the types differ between systems
}
