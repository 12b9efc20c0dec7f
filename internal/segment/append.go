package segment

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/deltabridge/deltabridge/internal/files"
)

// NewBatch returns an empty batch for this log.
func (l *Log) NewBatch() *Batch {
	b := NewBatch()
	b.seed = l.seed
	return b
}

// Append writes the records of a batch, which must not be empty, to one segment. If Append returns nil, the records are
// durable. If it returns an error, the log does not contain them. The first number of the batch must follow Last, so
// records that are never written must be acknowledged first. positions contains the positions of their sources.
func (l *Log) Append(b *Batch, positions map[string]string) error {
	if err := l.create(); err != nil {
		return err
	}
	if l.acked > l.state.Acked || l.last > l.state.Last { // what is behind state.Last must be a part of this batch only
		if err := l.state.write(l.acked, l.last, true); err != nil {
			return fmt.Errorf("cannot write the spill's state file: %w", err)
		}
	}
	l.mu.Lock()
	maps.Copy(l.positions, positions)
	l.mu.Unlock()
	if l.active != nil && l.segments[len(l.segments)-1].size+b.Bytes() > l.bytes {
		l.seal()
	}
	if err := l.write(b); err != nil {
		return fmt.Errorf("write to the spill: %w", err)
	}
	_ = l.state.write(l.acked, l.last, false) // if this fails, the next Ack fails too
	return nil
}

// create creates the directory and the state file, if they do not exist.
func (l *Log) create() error {
	if l.state != nil {
		return nil
	}
	if err := os.Mkdir(l.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	state, err := createState(filepath.Join(l.dir, stateName), l.seed, l.acked, max(l.acked, l.last))
	if err != nil {
		return fmt.Errorf("cannot create the spill's state file: %w", err)
	}
	if err := files.SyncDir(filepath.Dir(l.dir)); err != nil {
		return errors.Join(err, state.discard())
	}
	l.state, l.unsynced = state, true
	return nil
}

// seal closes the active segment. The next append starts a new one.
func (l *Log) seal() {
	if l.active != nil {
		_ = l.active.Close() // the file is already synced
		l.active = nil
	}
}

// write writes a batch to the active segment, or to a new one.
func (l *Log) write(b *Batch) (err error) {
	s := &segment{path: filepath.Join(l.dir, segmentName(b.first)), first: b.first, last: b.first - 1}
	if l.active == nil {
		err = l.begin(s)
	} else {
		s = l.segments[len(l.segments)-1]
	}
	if err == nil {
		_, err = l.active.WriteAt(b.data, s.size)
	}
	if err == nil {
		err = l.active.Sync()
	}
	if err == nil && l.unsynced {
		err = l.syncDir()
	}
	if err != nil {
		l.abandon(s)
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.Copy(l.positions, b.positions)
	s.size += b.Bytes()
	s.last, l.last = b.last, b.last
	return nil
}

// abandon ends a segment that could not be written or synced, because the operating system reports such a failure only
// once. To make room, it truncates the file to the end of its last complete record.
func (l *Log) abandon(s *segment) {
	l.seal()
	if s.failed = true; s.last < s.first {
		l.mu.Lock()
		s.size = 0
		l.mu.Unlock()
	}
	_ = os.Truncate(s.path, s.size)
}

// begin creates the file of a segment and writes its first record, which contains all positions.
func (l *Log) begin(s *segment) (err error) {
	for n := len(l.segments) - 1; n >= 0 && l.segments[n].last < l.segments[n].first; n-- { // an earlier Append failed
		if err := l.remove(l.segments[n]); err != nil {
			return err
		}
		l.mu.Lock()
		l.segments = l.segments[:n]
		l.mu.Unlock()
	}
	l.active, err = l.make(s.path)
	if errors.Is(err, fs.ErrNotExist) { // the directory was removed
		_ = l.state.file.Close()
		if l.state = nil; l.create() == nil {
			l.active, err = l.make(s.path)
		}
	}
	if err != nil {
		l.active = nil
		return err
	}
	l.unsynced = true
	l.mu.Lock()
	l.segments = append(l.segments, s) // if the segment gets no records, the next Append or Ack removes it
	l.mu.Unlock()
	head := l.NewBatch()
	_, err = head.Add(l.acked, "", "", math.MaxInt64, func(dst []byte) ([]byte, error) {
		positions := l.positions
		if l.unnamed > l.acked {
			positions = maps.Clone(positions)
			positions[unnamedKey] = strconv.FormatUint(l.unnamed, 10)
		}
		data, err := json.Marshal(positions)
		return append(dst, data...), err
	})
	if err == nil {
		_, err = l.active.WriteAt(head.data, 0)
	}
	l.mu.Lock()
	s.size = head.Bytes()
	l.mu.Unlock()
	return err
}

// Ack makes the acknowledgement of all records up to upTo durable, and removes the segments that contain only
// acknowledged records.
func (l *Log) Ack(upTo uint64) error {
	if upTo > l.acked {
		if len(l.segments) > 0 {
			if err := l.create(); err != nil { // the directory may have been removed
				return err
			}
			if err := l.state.write(upTo, max(upTo, l.last), true); err != nil {
				return fmt.Errorf("cannot write the spill's state file: %w", err)
			}
		}
		l.mu.Lock()
		l.acked, l.last = upTo, max(upTo, l.last)
		l.mu.Unlock()
	}
	return l.removeAcked()
}

// removeAcked removes the segments that contain only acknowledged records.
func (l *Log) removeAcked() error {
	for len(l.segments) > 0 && l.segments[0].last <= l.acked {
		if len(l.segments) == 1 {
			l.seal()
		}
		if err := l.remove(l.segments[0]); err != nil {
			return fmt.Errorf("remove an acknowledged segment: %w", err)
		}
		l.mu.Lock()
		l.segments = l.segments[1:]
		l.mu.Unlock()
	}
	if l.unsynced {
		return l.syncDir()
	}
	return nil
}

// remove removes the file of a segment, or quarantines the file if it is damaged. It closes the reader if the reader
// uses the file, because an open file would still use disk space.
func (l *Log) remove(s *segment) error {
	l.reading.Lock()
	if l.reader.segment == s {
		l.reader.close()
	}
	l.reading.Unlock()
	l.mu.Lock()
	damaged := s.damaged
	l.mu.Unlock()
	l.unsynced = l.unsynced || s.failed
	var err error
	if name := files.QuarantineName(l.dir, "damaged", time.Now()); !damaged {
		err = os.Remove(s.path)
	} else if err = os.Rename(s.path, name); err == nil {
		l.log.Error("damaged spill segment quarantined", "path", s.path, "renamedTo", name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// syncDir makes the creation and removal of files durable.
func (l *Log) syncDir() error {
	err := files.SyncDir(l.dir)
	l.unsynced = err != nil
	return err
}
