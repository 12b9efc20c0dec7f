package checkpoint

import (
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/internal/files"
	"github.com/deltabridge/deltabridge/internal/segment"
)

// CheckFormats returns a files.NewerFormatError if a newer version has written anything in a state directory: spills,
// parked events, the audit journal, or the checkpoint. It changes nothing, so call it before anything is opened. Other
// errors are ignored, because whatever opens a file reports them.
func CheckFormats(dir string) error {
	newer := error(nil)
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil: // there is no such directory, for example
		case entry.IsDir() && strings.Contains(entry.Name(), ".") && path != dir:
			return fs.SkipDir // quarantined
		case entry.IsDir():
			_, err = segment.Peek(path)
		case filepath.Ext(path) == ".db":
			var file *boltfile.File
			if file, err = boltfile.Open(path, boltfile.Options{ReadOnly: true}); err == nil {
				_ = file.Close()
			}
		}
		if !files.IsNewerFormat(err) {
			return nil
		}
		newer = err
		return fs.SkipAll
	})
	return newer
}
