package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/deltabridge/deltabridge/internal/files"
)

// Format is the number of the format of the checkpoint, the spills and the files of parked events. They have one
// number, because a restart needs all of them to determine what to send.
//
// The files of format 1 are in the state directory. The files of a later format N are in its subdirectory format-N. A
// version converts the files of an older format into a new directory, and never changes the older files. An older
// version can therefore go back to them (see leaveNewer).
//
// Increase Format when the format of any of these files changes incompatibly, and make Options.convert read the older
// formats. From then on, all code that reads these files must look for them in that subdirectory.
const Format = 1

const formatPrefix, incomplete = "format-", ".new"

// directory returns the directory of the files of a format.
func directory(root string, format int) string {
	if format == 1 {
		return root
	}
	return filepath.Join(root, formatPrefix+strconv.Itoa(format))
}

// formats returns the formats in a state directory, in ascending order. Format 1 always counts.
func formats(root string) ([]int, error) {
	found := []int{1}
	entries, err := os.ReadDir(root)
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), formatPrefix)
		if format, err := strconv.Atoi(digits); ok && err == nil && format > 1 { // others are incomplete or quarantined
			found = append(found, format)
		}
	}
	slices.Sort(found)
	return found, err
}

// newerFormats returns the formats that this program does not support.
func newerFormats(root string, format int) ([]int, error) {
	found, err := formats(root)
	return slices.DeleteFunc(found, func(f int) bool { return f <= format }), err
}

// enter returns the directory of the files of a format. If it does not exist, enter converts the files of the newest
// older format. If the conversion fails, the older files are unchanged, and the next start tries again.
func enter(root string, format int, convert func(from, to string) error) (dir string, err error) {
	entries, err := os.ReadDir(root)
	for _, e := range entries { // a process that was killed may have left a part of a conversion
		if err == nil && strings.HasPrefix(e.Name(), formatPrefix) && strings.HasSuffix(e.Name(), incomplete) {
			err = os.RemoveAll(filepath.Join(root, e.Name()))
		}
	}
	found, listErr := formats(root)
	at, exists := slices.BinarySearch(found, format)
	if dir, err = directory(root, format), errors.Join(err, listErr); exists || err != nil {
		return dir, err
	}
	older, fresh := found[at-1], dir+incomplete
	if err = os.Mkdir(fresh, 0o700); err == nil {
		err = convert(directory(root, older), fresh)
	}
	if err == nil {
		err = files.SyncDir(fresh)
	}
	if err == nil {
		err = os.Rename(fresh, dir)
	}
	if err != nil {
		_ = os.RemoveAll(fresh) // if this fails, the next start tries again
		return "", fmt.Errorf("convert the state from format %d to format %d: %w", older, format, err)
	}
	return dir, files.SyncDir(root)
}

// leaveNewer quarantines the files of newer formats. They exist if a newer version has used the directory since this
// program last wrote its own files. The time of this write is s.lastWrite, which is zero if there was none. This
// program then sends again what has happened since s.lastWrite.
//
// It changes the epoch first, so that nothing is dropped as a repetition of what the newer version sent. The lowest
// format is renamed first: if the process ends in between, the files that were used last keep their name, so that the
// next process notices them, whatever its version is.
func (s *Store) leaveNewer() error {
	newer, err := newerFormats(s.opts.Path, s.opts.format)
	if err != nil || len(newer) == 0 {
		return err
	}
	if err := s.change((*storeRecord).beginEpoch); err != nil {
		return err
	}
	for _, format := range newer {
		renamedTo, err := files.Quarantine(directory(s.opts.Path, format), "newer-format")
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.stats.Quarantined++
		s.mu.Unlock()
		log := s.logger.With("format", format, "renamedTo", renamedTo)
		if s.lastWrite.IsZero() {
			log.Warn("a newer version has used the state directory, and this version has no state of its own; " +
				"starting with an empty checkpoint, so everything is listed")
			continue
		}
		log.Warn("a newer version has used the state directory; going back to the state that this version has left",
			"lastWrite", s.lastWrite, "effect", "what has happened since then is sent again, and deletions are found by "+
				"comparing that state with the cluster",
			"remedy", "if watch or a filter was changed meanwhile, run bridge resync; "+
				"delete the renamed directory when you no longer need it")
	}
	return files.SyncDir(s.opts.Path)
}
