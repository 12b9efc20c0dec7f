package boltfile

import (
	"fmt"
	"os"
	"time"
)

// Quarantine renames a file that is not to be used, and returns its new name.
func Quarantine(path, reason string) (renamedTo string, err error) {
	renamedTo = quarantineName(path, reason, time.Now())
	return renamedTo, os.Rename(path, renamedTo)
}

// quarantineName returns a name that no file has yet.
func quarantineName(path, reason string, now time.Time) string {
	name := fmt.Sprintf("%s.%s-%s", path, reason, now.UTC().Format("20060102T150405Z"))
	for n, unique := 2, name; ; n++ {
		if _, err := os.Lstat(unique); err != nil {
			return unique
		}
		unique = fmt.Sprintf("%s-%d", name, n)
	}
}
