package control

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/deltabridge/deltabridge/internal/files"
)

// pauseFile returns the file that exists while a sink is paused. Its modification time is the start of the pause.
func pauseFile(state, sink string) string { return filepath.Join(state, "paused-"+sink) }

// PausedSince returns when a sink was paused, by this process or an earlier one. It returns the zero time if the sink
// is not paused.
func PausedSince(state, sink string) (time.Time, error) {
	info, err := os.Stat(pauseFile(state, sink))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// StorePaused stores in the state directory whether a sink is paused. The result is durable when it returns nil.
func StorePaused(state, sink string, paused bool) error {
	path := pauseFile(state, sink)
	if paused {
		return files.WriteFile(path, nil)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return files.SyncDir(state)
}
