package segment

import (
	"errors"
	"io/fs"
	"os"
	"slices"
)

var (
	// ErrClosed is returned by Read after Close.
	ErrClosed  = errors.New("the log is closed")
	errMissing = errors.New("records are missing or damaged")
)

// reader is where the last Read ended.
type reader struct {
	segment *segment
	file    *os.File
	scanner
	// returned are the records of the last Read: not all of them have to be used.
	returned []place
}

// place is where a record is.
type place struct {
	number uint64
	off    int64
}

// Read appends the records from the number from on to dst: one at least, which may be a run of lost ones, and not more than limit and, but for the first, than
// have so many bytes. The number must be one that is in the log and not acknowledged. An error means that it may work later.
func (l *Log) Read(dst []Record, from uint64, limit int, bytes int64) ([]Record, error) {
	l.reading.Lock()
	defer l.reading.Unlock()
	s, last, err := l.seek(from)
	if errors.Is(err, fs.ErrNotExist) {
		l.damage(s)
		return append(dst, Record{First: from, Last: last, Err: errMissing}), nil
	}
	if err != nil {
		return dst, err
	}
	r := &l.reader
	r.returned = r.returned[:0]
	for from <= last && limit > 0 && bytes > 0 {
		r.returned = append(r.returned, place{from, r.off})
		f, ok := r.next(last)
		if ok && f.number < from {
			continue
		}
		if !ok {
			f.number = last + 1
		}
		if f.number > from {
			dst = append(dst, Record{First: from, Last: f.number - 1, Err: errMissing})
		}
		if ok {
			dst = append(dst, Record{First: f.number, Last: f.number, Data: append([]byte{}, f.data...), Err: f.err})
			bytes -= int64(len(f.data))
		}
		if f.number > from || f.err != nil {
			l.damage(s)
		}
		from = f.number + 1
		limit--
	}
	return dst, nil
}

// seek makes the reader stand at or in front of a record, and gives its segment and the number of the last one in that.
func (l *Log) seek(number uint64) (s *segment, last uint64, err error) {
	s, last, end := l.segmentOf(number)
	if s == nil {
		return nil, 0, ErrClosed
	}
	r := &l.reader
	if r.segment != s {
		file, err := os.Open(s.path)
		if err != nil {
			return s, last, err
		}
		window := r.window
		r.close()
		*r = reader{segment: s, file: file, scanner: scanner{file: file, seed: l.seed, low: s.first, window: window[:0]}}
	}
	i := slices.IndexFunc(r.returned, func(p place) bool { return p.number == number })
	switch {
	case i >= 0:
		r.low, r.off = r.returned[i].number, r.returned[i].off
	case number < r.low:
		r.low, r.off = s.first, 0
	}
	r.end = end
	return s, last, nil
}

// segmentOf gives the segment of a record, the number of its last one, and where its records end; nil after Close.
func (l *Log) segmentOf(number uint64) (s *segment, last uint64, end int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.segments, func(s *segment) bool { return number <= s.last })
	if i < 0 || l.closed {
		return nil, 0, 0
	}
	return l.segments[i], l.segments[i].last, l.segments[i].size
}

// damage notes that a segment is damaged.
func (l *Log) damage(s *segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.damaged = true
}

func (r *reader) close() {
	if r.file != nil {
		_ = r.file.Close()
	}
	*r = reader{}
}

// closeReader closes the file of a segment that is removed, or its room on disk would stay taken.
func (l *Log) closeReader(s *segment) {
	l.reading.Lock()
	defer l.reading.Unlock()
	if l.reader.segment == s {
		l.reader.close()
	}
}

// Close closes the log. What Ack and Append returned for is durable without it.
func (l *Log) Close() (err error) {
	l.reading.Lock()
	defer l.reading.Unlock()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.reader.close()
	l.seal()
	if l.state != nil {
		err = errors.Join(l.state.file.Sync(), l.state.file.Close())
		l.state = nil
	}
	return err
}
