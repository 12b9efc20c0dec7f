package segment

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/internal/files"
)

const (
	// DefaultBytes is the default maximum size of a segment. A segment with a single batch may be larger.
	DefaultBytes = 16 << 20
	// lockPatience is the time to wait for another process to close the log.
	lockPatience = 2 * time.Second

	suffix = ".log"
)

// Log is a log on disk; see the package comment.
type Log struct {
	dir   string
	bytes int64 // maximum size of a segment
	seed  uint32
	log   *slog.Logger
	make  func(path string) (file, error) // creates the file of a segment

	// The following fields are used only by the goroutine that writes.
	state    *stateFile // nil if the directory does not exist yet
	active   file       // file of the last segment; nil if the next Append begins a segment
	unsynced bool       // the creation or removal of a file is not durable yet

	mu sync.Mutex // guards the following fields; not held during I/O
	// segments are in order. Invariant: the number of every record in the log is in the range from first to last of a
	// segment.
	segments    []*segment
	acked, last uint64
	positions   map[string]string
	closed      bool
	// unnamed is the number up to which lost records may belong to sources that are not in positions. It is the last
	// number when the log was opened, if not all records could be read from which positions were found.
	unnamed uint64

	reading sync.Mutex // guards the following fields, which Read and Close use
	reader  reader
}

// segment is a file of records.
type segment struct {
	path        string
	first, last uint64 // numbers of the first and last record; last < first if there are no records
	size        int64  // offset at which the records end
	damaged     bool
	failed      bool // a write failed, so records after size must be ignored
}

// Open opens the log in a directory, or starts a new log, which creates the directory when its first record is written.
// If a newer version has written the log, it returns a files.NewerFormatError.
// If the log cannot be used, Open calls onDamage with the reason, quarantines the log, and starts an empty one. If Open
// returns an error, an operator has to fix the cause, such as missing permissions or another process that uses the log.
func Open(dir string, segmentBytes int64, log *slog.Logger, onDamage func(error)) (*Log, error) {
	l := newLog(dir, segmentBytes, log)
	err := l.load(os.O_RDWR, lockPatience)
	switch {
	case err == nil:
		if err := l.removeAcked(); err != nil { // every Ack tries again
			log.Warn("cannot remove an acknowledged segment", "err", err)
		}
		return l, nil
	case !errors.Is(err, errState):
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	onDamage(err)
	aside, renameErr := files.Quarantine(dir, "damaged")
	if renameErr != nil {
		return nil, fmt.Errorf("%s cannot be used (%w), and renaming it failed: %w", dir, err, renameErr)
	}
	log.Error("spill quarantined because it cannot be used; starting with an empty one",
		"path", dir, "renamedTo", aside, "err", err)
	return newLog(dir, segmentBytes, log), nil
}

func newLog(dir string, segmentBytes int64, log *slog.Logger) *Log {
	return &Log{
		dir: dir, bytes: segmentBytes, seed: rand.Uint32(), log: log, make: makeFile, positions: map[string]string{},
	}
}

// file is a segment file that is open for writing.
type file interface {
	io.WriterAt
	io.Closer
	Sync() error
}

func makeFile(path string) (file, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

// Peek returns the number of unacknowledged records in a log that is not open. It does not change any file. It returns
// 0 if the log does not exist.
func Peek(dir string) (records int64, err error) {
	l := newLog(dir, DefaultBytes, slog.New(slog.DiscardHandler))
	if err := l.load(os.O_RDONLY, 0); err != nil {
		return 0, fmt.Errorf("read %s: %w", dir, err)
	}
	if l.state != nil {
		defer l.state.file.Close()
	}
	return int64(l.last - l.acked), nil
}

// load reads the state and the newest segments. If it returns an error, it leaves no file open.
func (l *Log) load(flags int, patience time.Duration) error {
	info, err := os.Stat(l.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%w: it is not a directory", errState)
	}
	if err := l.list(); err != nil {
		return err
	}
	state, err := openState(filepath.Join(l.dir, stateName), flags, patience)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: its state file is missing", errState)
	}
	if errors.Is(err, errState) && len(l.segments) == 0 {
		return nil // the first record was not written, or all records were acknowledged
	}
	if err != nil {
		return err
	}
	l.state, l.seed, l.acked, l.last = state, state.Seed, state.Acked, state.Last
	if err := l.find(); err != nil {
		return errors.Join(err, state.file.Close())
	}
	return nil
}

// list sets l.segments to the segment files in the directory.
func (l *Log) list() error {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, e := range entries { // sorted by name; all segment names have the same length
		first, _ := strconv.ParseUint(strings.TrimSuffix(e.Name(), suffix), 16, 64)
		if first == 0 || e.Name() != segmentName(first) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		s := &segment{path: filepath.Join(l.dir, e.Name()), first: first, last: first - 1, size: info.Size()}
		if n := len(l.segments); n > 0 {
			l.segments[n-1].last = first - 1
		}
		l.segments = append(l.segments, s)
	}
	return nil
}

func segmentName(first uint64) string { return fmt.Sprintf("%016x%s", first, suffix) }

// find finds the last record and the positions. It reads the newest segments, back to the newest one with readable
// positions at its beginning.
func (l *Log) find() error {
	l.last = max(l.last, l.acked)
	var count, before uint64 // how many records were read, and the number before the first one that had to be read
	complete := false
	for i, s := range slices.Backward(l.segments) {
		newest := i == len(l.segments)-1
		if newest {
			s.last = max(l.last, s.first+uint64(s.size)/headBytes)
		}
		positions, found, read, err := l.scan(s)
		if err != nil {
			return err
		}
		count += read
		complete = !s.damaged
		maps.Copy(positions, l.positions) // these are of newer segments
		l.positions = positions
		if newest {
			l.last = max(l.last, found, s.first-1) // a segment is created only when all earlier records are durable
			s.last = l.last
			s.damaged = s.damaged && s.last >= s.first // otherwise the damage is a torn tail
		}
		if complete {
			before = s.first - 1
			break
		}
	}
	if max(before, l.acked)+count < l.last {
		l.unnamed = l.last
	}
	if !complete && l.last > l.acked && len(l.segments) > 0 {
		l.log.Error("positions in the spill are damaged; their sources resume from the checkpoint", "path", l.dir)
	}
	return nil
}

// unnamedKey is the key of Log.unnamed among the positions at the beginning of a segment. A source has a name.
const unnamedKey = ""

// scan returns the positions at the end of a segment, the number of its last record, and how many unacknowledged
// records it could read. It marks the segment as damaged if the positions at its beginning cannot be read.
func (l *Log) scan(s *segment) (positions map[string]string, last, count uint64, err error) {
	file, err := os.Open(s.path)
	if err != nil {
		return nil, 0, 0, err
	}
	defer file.Close()
	positions = map[string]string{}
	records := scanner{file: file, seed: l.seed, end: s.size}
	if f, ok := records.here(s.first - 1); ok && f.err == nil && json.Unmarshal(f.data, &positions) == nil {
		l.acked = max(l.acked, f.number)
		l.unnamed, _ = strconv.ParseUint(positions[unnamedKey], 10, 64)
		delete(positions, unnamedKey)
	} else {
		s.damaged = true
	}
	records.low = s.first
	end, written := int64(0), max(l.last, s.first-1)
	for {
		f, ok := records.next(s.last)
		if !ok || f.number > written+1 { // behind a part that was not written, there is only the rest of a torn tail
			break
		}
		if f.err != nil {
			continue // this is a torn tail at the end of the log; elsewhere, Read detects the damage
		}
		written = max(written, f.number)
		if last, end = f.number, records.off; len(f.source) > 0 {
			positions[string(f.source)] = string(f.position)
		}
		if f.number > l.acked {
			count++
		}
	}
	s.size = end
	return positions, last, count, nil
}

// Acked returns the number up to which all records are acknowledged.
func (l *Log) Acked() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

// Last returns the number of the newest record, even if it is acknowledged.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Positions returns the last position of every source.
func (l *Log) Positions() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.positions)
}

// Size returns the size of the segments on disk, including acknowledged records.
func (l *Log) Size() (total int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments {
		total += s.size
	}
	return total
}
