package statelog

import "github.com/deltabridge/deltabridge/internal/files"

// SetInterval sets the minimum number of bytes that are appended between two passes.
func (w *Writer) SetInterval(bytes int64) { w.interval = bytes }

// Changes returns the record of a commit that follows a point, but has another epoch.
func Changes(after Point, epoch uint64, pairs ...Pair) []byte {
	c := &commit{
		header{kind: kindChanges, epoch: epoch, number: after.Number + 1, previous: after.Chain},
		encodePairs(pairs),
	}
	return c.record(1<<20, 0)
}

// ErrNewer is the error about a record of a later version.
var ErrNewer = files.NewerFormatError{What: "the state log", Format: files.Format + 1}

// Newer returns a record of a later version.
func Newer() []byte { return resum([]byte{files.Format + 1, 0, 0, 0, 0, 0}) }
