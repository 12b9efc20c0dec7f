//go:build !unix

package embedded

import "os"

// lockFile does nothing on systems without flock.
func lockFile(*os.File) error { return nil }
