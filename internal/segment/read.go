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

// Record is a record that was read or, if Err is set, a range of consecutive records that could not be read. Data
// shares memory with the records next to it, up to 256 KiB.
type Record struct {
	First, Last uint64
	Data        []byte
	Err         error
	// Unnamed means that the records could not be read, and that Positions may not contain their sources.
	Unnamed bool
}

// reader is the position at which the last Read ended.
type reader struct {
	segment *segment
	file    *os.File
	scanner
	// lastLow and lastOff are the values of low and off before the last record was read, because it may be read again.
	lastLow uint64
	lastOff int64
}

// Read returns the record with the given number, or the range of lost records that begins with this number. The number
// must be in the log and not acknowledged. If Read returns an error, a later call may succeed.
func (l *Log) Read(number uint64) (Record, error) {
	l.reading.Lock()
	defer l.reading.Unlock()
	s, last, err := l.seek(number)
	lost := Record{First: number, Last: last, Err: errMissing, Unnamed: number <= l.unnamed}
	if errors.Is(err, fs.ErrNotExist) {
		return lost, nil
	}
	if err != nil {
		return Record{}, err
	}
	r := &l.reader
	for {
		r.lastLow, r.lastOff = r.low, r.off
		f, ok := r.next(last)
		switch {
		case ok && f.number < number:
			continue
		case ok && f.number == number && f.err == nil:
			return Record{First: number, Last: number, Data: slices.Clip(f.data)}, nil
		case ok && f.number == number:
			lost.Last, lost.Err = number, f.err
		case ok:
			lost.Last = f.number - 1
			r.low, r.off = f.number, r.off-f.bytes
		}
		l.mu.Lock()
		s.damaged = true
		l.mu.Unlock()
		return lost, nil
	}
}

// seek moves the reader to the record, or to a place before it, and returns the record's segment and the number of the
// last record in that segment. If no segment contains the record, it returns fs.ErrNotExist and the number of the last
// record that is missing.
func (l *Log) seek(number uint64) (s *segment, last uint64, err error) {
	s, last, end, err := l.segmentOf(number)
	if err != nil {
		return nil, last, err
	}
	r := &l.reader
	if r.segment != s {
		file, err := os.Open(s.path)
		if err != nil {
			return s, last, err
		}
		r.close()
		*r = reader{
			segment: s,
			file:    file,
			scanner: scanner{file: file, seed: l.seed, low: s.first, keep: true},
			lastLow: s.first,
		}
	}
	if number < r.low {
		r.low, r.off = r.lastLow, r.lastOff
	}
	if number < r.low {
		r.low, r.off = s.first, 0
	}
	r.end = end
	return s, last, nil
}

// segmentOf returns the segment of a record, the number of the last record in that segment, and the offset at which the
// records end. If no segment contains the record, it returns fs.ErrNotExist and the number of the last record that is
// missing.
func (l *Log) segmentOf(number uint64) (s *segment, last uint64, end int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.segments, func(s *segment) bool { return number <= s.last })
	switch {
	case l.closed:
		return nil, 0, 0, ErrClosed
	case i < 0:
		return nil, l.last, 0, fs.ErrNotExist
	case number < l.segments[i].first:
		return nil, l.segments[i].first - 1, 0, fs.ErrNotExist
	}
	s = l.segments[i]
	return s, s.last, s.size, nil
}

func (r *reader) close() {
	if r.file != nil {
		_ = r.file.Close()
	}
	*r = reader{}
}

// Close closes the log. All appended records are durable even without Close.
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
