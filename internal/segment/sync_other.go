//go:build !linux

package segment

import "os"

// datasync makes what was written to a file durable.
func datasync(file *os.File) error { return file.Sync() }
