package parked

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/internal/files"
	"github.com/deltabridge/deltabridge/pkg/event"
)

// ErrFull is returned by Park if the events would exceed MaxBytes.
var ErrFull = errors.New("no room for parked events: buffer.spill.maxBytes is reached")

// Options configures a Store.
type Options struct {
	Dir  string // the state directory; it must exist when the first event is parked
	Sink string
	// MaxBytes bounds the total size of the parked events and the bytes that Used returns. The file itself can be larger.
	// 0 means no bound.
	MaxBytes int64
	Used     func() int64 // returns other bytes that count against MaxBytes; may be nil
	// OnLost is called, with locks held, when Open or Head finds that stored events are damaged and lost; may be nil.
	OnLost func()
	Logger *slog.Logger // nil means slog.Default()
}

// Store contains the parked events of one sink. Its methods are safe for concurrent use. No method may be called after
// Close.
type Store struct {
	opts Options
	path string

	mu     sync.Mutex
	file   *boltfile.File // nil if no file exists
	queues map[string]*Queue
	lost   int64
}

// Queue describes the parked events of one part of the destination.
type Queue struct {
	Destination string
	First       uint64 // the number of the oldest event
	Events      int
	Bytes       int64
	Since       time.Time // time of the first event
	// Resources contains the resources of the events, such as "pods" and "deployments.apps". A resource is not removed
	// until the queue is empty.
	Resources []string
}

// Entry is an event and its number.
type Entry struct {
	Number  uint64
	Message *event.Message
}

// Open returns the Store of a sink with the events in its file, if the file exists. If the file is damaged, Open
// quarantines it and returns an empty Store. If the file is in the format of an earlier version, Open returns an error.
func Open(opts Options) (*Store, error) {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	s := &Store{opts: opts, path: filepath.Join(opts.Dir, prefix+opts.Sink+suffix), queues: map[string]*Queue{}}
	err := s.open(boltfile.Options{})
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return s, nil
	case !errors.Is(err, boltfile.ErrDamaged):
		return nil, boltfile.Explain("open the parked events", s.path, err)
	}
	renamedTo, renameErr := files.Quarantine(s.path, "corrupt")
	if renameErr != nil {
		return nil, boltfile.Explain("quarantine the parked events", s.path, renameErr)
	}
	s.lose(1)
	clear(s.queues)
	opts.Logger.Error("cannot read the parked events; the file was quarantined",
		"path", s.path, "renamedTo", renamedTo, "err", err)
	return s, nil
}

// lose counts lost events. A file counts as one.
func (s *Store) lose(events int) {
	s.lost += int64(events)
	if s.opts.OnLost != nil {
		s.opts.OnLost()
	}
}

// Queues returns the queues that contain events, sorted by the number of their oldest event.
func (s *Store) Queues() []Queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Queue
	for _, q := range s.queues {
		out = append(out, *q)
	}
	slices.SortFunc(out, func(a, b Queue) int { return cmp.Compare(a.First, b.First) })
	return out
}

// Holds reports whether events of a destination are parked.
func (s *Store) Holds(destination string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queues[destination] != nil
}

// Empty reports whether no events are parked.
func (s *Store) Empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queues) == 0
}

// Bytes returns the total size of the parked events, and the number of events and files that could not be read.
func (s *Store) Bytes() (bytes, lost int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes(), s.lost
}

func (s *Store) bytes() (n int64) {
	for _, q := range s.queues {
		n += q.Bytes
	}
	return n
}

// Parking is an event and the part of the destination that cannot accept it.
type Parking struct {
	Destination string
	Message     *event.Message
}

// Park appends the events to the queues of their destinations. If Park returns nil, all events are durable. If it
// returns an error, none of them are stored.
func (s *Store) Park(all []Parking) error {
	values := make([][]byte, len(all))
	var size int64
	for i, p := range all {
		value, err := encode(p.Message)
		if err != nil {
			return err
		}
		values[i] = value
		size += int64(len(value))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.bytes()
	if s.opts.Used != nil {
		used += s.opts.Used()
	}
	if s.opts.MaxBytes > 0 && used > 0 && used+size > s.opts.MaxBytes {
		return ErrFull
	}
	if err := s.create(); err != nil {
		return err
	}
	numbers := make([]uint64, len(all))
	err := s.file.Update(func(tx *bbolt.Tx) (err error) {
		events := tx.Bucket([]byte(bucketEvents))
		for i, p := range all {
			if numbers[i], err = events.NextSequence(); err != nil {
				return err
			}
			if err := events.Put(keyOf(p.Destination, numbers[i]), values[i]); err != nil {
				return err
			}
		}
		s.file.Release(tx, size)
		return nil
	})
	if err != nil {
		return fmt.Errorf("park events: %w", err)
	}
	for i, p := range all {
		s.count(p.Destination, numbers[i], len(values[i]), p.Message)
	}
	return nil
}

// count adds an event that is in the file to its queue's numbers. m is nil if the event cannot be read.
func (s *Store) count(destination string, number uint64, size int, m *event.Message) {
	q := s.queues[destination]
	if q == nil {
		q = &Queue{Destination: destination, First: number}
		s.queues[destination] = q
	}
	q.Events++
	q.Bytes += int64(size)
	if m == nil {
		return
	}
	if q.Since.IsZero() {
		q.Since = m.Time
	}
	if resource := m.Resource.GroupResource().String(); !slices.Contains(q.Resources, resource) {
		q.Resources = append(q.Resources, resource)
	}
}

// Head returns the oldest events of a queue, up to limit events and maxBytes bytes, but at least one event if the queue
// is not empty. The events stay in the queue. Events that cannot be read are removed from the queue.
func (s *Store) Head(destination string, limit int, maxBytes int64) ([]Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues[destination] == nil {
		return nil, nil
	}
	var out []Entry
	var damaged []uint64
	err := s.file.View(func(tx *bbolt.Tx) error {
		var size int64
		c := tx.Bucket([]byte(bucketEvents)).Cursor()
		for k, v := c.Seek(keyOf(destination, 0)); isOf(destination, k) && len(out) < limit; k, v = c.Next() {
			if size += int64(len(v)); size > maxBytes && len(out) > 0 {
				break
			}
			if m, err := parse(slices.Clone(v)); err == nil {
				out = append(out, Entry{numberOf(k), m})
			} else {
				damaged = append(damaged, numberOf(k))
			}
		}
		s.file.Release(tx, size)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read parked events: %w", err)
	}
	if len(damaged) > 0 {
		s.lose(len(damaged))
		s.opts.Logger.Error("parked events are damaged and lost",
			"path", s.path, "destination", destination, "events", len(damaged))
		if err := s.remove(destination, damaged); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Remove removes events from a queue. It removes the queue if no events are left, and the file if no queues are left.
func (s *Store) Remove(destination string, numbers []uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove(destination, numbers)
}

func (s *Store) remove(destination string, numbers []uint64) error {
	before := s.queues[destination]
	if before == nil || len(numbers) == 0 {
		return nil
	}
	after := *before
	err := s.file.Update(func(tx *bbolt.Tx) error {
		events := tx.Bucket([]byte(bucketEvents))
		for _, number := range numbers {
			key := keyOf(destination, number)
			value := events.Get(key)
			if value == nil {
				continue
			}
			after.Events--
			after.Bytes -= int64(len(value))
			if err := events.Delete(key); err != nil {
				return err
			}
		}
		if first, _ := events.Cursor().Seek(keyOf(destination, 0)); isOf(destination, first) {
			after.First = numberOf(first)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove parked events: %w", err)
	}
	if after.Events > 0 {
		s.queues[destination] = &after
		return nil
	}
	if delete(s.queues, destination); len(s.queues) > 0 {
		return nil
	}
	return s.removeFile()
}

// Close closes the file. The next Open returns its events again.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	return err
}
