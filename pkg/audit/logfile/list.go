package logfile

import (
	"cmp"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// stampFormat is how lumberjack writes the time of a rotation, in UTC. The order of such times is that of their texts.
	stampFormat = "2006-01-02T15-04-05.000"
	compressed  = ".gz"
)

// errMoved says that a file was renamed or removed between two steps, which must be repeated.
var errMoved = errors.New("the log was rotated in the meantime")

// generation is a file with a part of the log: the log itself, or a backup.
type generation struct {
	path  string
	stamp string // the time of the rotation that has made it a backup, or empty for the log itself
	info  os.FileInfo
}

// follows reports whether the generation is newer than the backup with this stamp.
func (g *generation) follows(stamp string) bool { return g.stamp == "" || g.stamp > stamp }

func (g *generation) isCompressed() bool { return strings.HasSuffix(g.path, compressed) }

// list returns the generations of a log, the oldest first.
func list(path string) ([]generation, error) {
	for range 10 {
		names, err := backups(path)
		if err != nil {
			return nil, err
		}
		var found []generation
		for _, stamp := range append(slices.Sorted(maps.Keys(names)), "") {
			g := generation{path: cmp.Or(names[stamp], path), stamp: stamp}
			g.info, err = os.Stat(g.path)
			switch {
			case err == nil:
				found = append(found, g)
			case !errors.Is(err, fs.ErrNotExist):
				return nil, err
			}
		}
		// If there was a rotation in the meantime, one of the generations may be missing.
		if again, err := backups(path); err == nil && maps.Equal(names, again) {
			return found, nil
		}
	}
	return nil, fmt.Errorf("list the backups of %s: %w", path, errMoved)
}

// backups returns the paths of the backups of a log, by stamp. While lumberjack compresses a backup, there are two
// files of it, of which the compressed one is not complete.
func backups(path string) (map[string]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	ext := filepath.Ext(path)
	prefix := strings.TrimSuffix(filepath.Base(path), ext) + "-"
	names := map[string]string{}
	for _, entry := range entries {
		name, isCompressed := strings.CutSuffix(entry.Name(), compressed)
		name, hasPrefix := strings.CutPrefix(name, prefix)
		stamp, hasExt := strings.CutSuffix(name, ext)
		if _, err := time.Parse(stampFormat, stamp); err != nil || !hasPrefix || !hasExt {
			continue
		}
		if _, known := names[stamp]; !known || !isCompressed {
			names[stamp] = filepath.Join(filepath.Dir(path), entry.Name())
		}
	}
	return names, nil
}

// content is an open generation.
type content struct {
	generation
	io.Reader
	file *os.File
}

// open opens a generation. It returns errMoved if the path has another file now.
func (g *generation) open() (*content, error) {
	file, err := os.Open(g.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = errMoved
	}
	if err != nil {
		return nil, err
	}
	c := &content{generation: *g, Reader: file, file: file}
	if g.isCompressed() {
		c.Reader, err = gzip.NewReader(file)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
	}
	if info, statErr := file.Stat(); statErr == nil && !os.SameFile(info, g.info) {
		err = errMoved
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return c, nil
}

// isAtEnd reports whether there is nothing more to read. It reads on.
func (c *content) isAtEnd() bool {
	n, err := io.ReadFull(c, make([]byte, 1))
	return n == 0 && errors.Is(err, io.EOF)
}

func (c *content) close() { _ = c.file.Close() } // it was only read

// isDamaged reports whether an error of a read says that a compressed backup cannot be read, now or later.
func isDamaged(err error) bool {
	_, isCorrupt := errors.AsType[flate.CorruptInputError](err)
	return isCorrupt || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader) ||
		errors.Is(err, io.ErrUnexpectedEOF)
}
