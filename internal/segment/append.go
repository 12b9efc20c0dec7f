package segment

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
)

// NewBatch makes an empty batch for this log.
func (l *Log) NewBatch() *Batch { return &Batch{seed: l.seed} }

// Append writes the records of a batch, which must not be empty. If the first number does not follow the newest one
// of the log, all between was acknowledged, and all in the log too. positions are those of sources whose records were
// acknowledged without being written. Records up to the number last are durable; with an error these may be some of
// the batch, or none.
func (l *Log) Append(b *Batch, positions map[string]string) (last uint64, err error) {
	if err := l.create(); err != nil {
		return l.last, err
	}
	before := b.marks[0].number - 1
	if before != l.last || len(l.segments) == 0 && before > l.state.acked {
		if err := l.skipTo(before); err != nil {
			return l.last, err
		}
	}
	l.mu.Lock()
	maps.Copy(l.positions, positions)
	l.mu.Unlock()
	for from := 0; from < len(b.marks); {
		if from, err = l.write(b, from); err != nil {
			return l.last, fmt.Errorf("write to the spill: %w", err)
		}
	}
	_ = l.state.write(l.acked, l.last, false) // the next Ack fails if this does
	return l.last, nil
}

// create makes the directory and the state file, if they are not there.
func (l *Log) create() error {
	if l.state != nil {
		return nil
	}
	if err := os.Mkdir(l.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	state, err := createState(filepath.Join(l.dir, stateName), l.seed, l.acked, max(l.acked, l.last))
	if err != nil {
		return fmt.Errorf("make the state of the spill: %w", err)
	}
	if err := syncDir(filepath.Dir(l.dir)); err != nil {
		return errors.Join(err, state.file.Close())
	}
	l.state, l.unsynced = state, true
	return nil
}

// skipTo makes durable that all records up to a number are acknowledged, the newest of which were never written.
func (l *Log) skipTo(number uint64) error {
	if err := l.state.write(number, number, true); err != nil {
		return fmt.Errorf("write the state of the spill: %w", err)
	}
	l.seal()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked, l.last = number, number
	return nil
}

// seal ends the active segment.
func (l *Log) seal() {
	if l.active != nil {
		_ = l.active.Close() // it is synced
		l.active = nil
	}
}

// write writes to one segment the records from the from-th on, and gives the one that follows them.
func (l *Log) write(b *Batch, from int) (next int, err error) {
	s := &segment{first: b.marks[from].number, last: b.marks[from].number - 1}
	if l.active == nil {
		s.path = filepath.Join(l.dir, segmentName(s.first))
		err = l.begin(s)
	} else {
		s = l.segments[len(l.segments)-1]
	}
	next = from + 1
	for next < len(b.marks) && s.size+int64(b.marks[next-1].end-b.start(from)) < l.bytes {
		next++
	}
	data := b.data[b.start(from):b.marks[next-1].end]
	if err == nil {
		_, err = l.active.WriteAt(data, s.size)
	}
	if err == nil {
		err = l.active.Sync()
	}
	if err == nil && l.unsynced {
		err = l.syncDir()
	}
	if err != nil {
		// The system reports only once what it could not write: nothing more is written to this segment. What is in
		// it behind its records is cut off to make room.
		l.seal()
		if s.failed = true; s.last < s.first {
			l.mu.Lock()
			s.size = 0
			l.mu.Unlock()
		}
		_ = os.Truncate(s.path, s.size)
		return from, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range b.marks[from:next] {
		if m.source != "" {
			l.positions[m.source] = m.position
		}
	}
	s.size += int64(len(data))
	s.last = b.marks[next-1].number
	l.last = s.last
	if s.size >= l.bytes {
		l.seal()
	}
	return next, nil
}

// begin makes the file of a segment, which begins with a record of all positions.
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
	if errors.Is(err, fs.ErrNotExist) { // somebody removed the directory
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
	l.segments = append(l.segments, s) // without records; as long as it has none, the next Append or Ack removes it
	l.mu.Unlock()
	head := l.NewBatch()
	err = head.Add(l.acked, "", "", func(dst []byte) ([]byte, error) {
		data, err := json.Marshal(l.positions)
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

// Ack makes durable that all records up to a number are acknowledged, and removes the segments that have no others.
func (l *Log) Ack(upTo uint64) error {
	if upTo > l.acked {
		if len(l.segments) > 0 {
			if err := l.create(); err != nil { // it is not there if somebody removed it
				return err
			}
			if err := l.state.write(upTo, max(upTo, l.last), true); err != nil {
				return fmt.Errorf("write the state of the spill: %w", err)
			}
		}
		l.mu.Lock()
		l.acked, l.last = upTo, max(upTo, l.last)
		l.mu.Unlock()
	}
	return l.removeAcked()
}

// removeAcked removes the segments that have no records but acknowledged ones.
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

// remove removes the file of a segment, or renames it if it is damaged. A reader would keep its room on disk.
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
	if name := asidePath(l.dir); !damaged {
		err = os.Remove(s.path)
	} else if err = os.Rename(s.path, name); err == nil {
		l.log.Error("a damaged segment of the spill was renamed", "path", s.path, "renamed", name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// syncDir makes durable which files there are.
func (l *Log) syncDir() error {
	err := syncDir(l.dir)
	l.unsynced = err != nil
	return err
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
