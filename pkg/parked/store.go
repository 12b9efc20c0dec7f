package parked

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/internal/files"
	"github.com/deltabridge/deltabridge/pkg/event"
)

// ErrFull is returned by Park if the events would exceed MaxBytes.
var ErrFull = errors.New("no room for parked events: buffer.spill.maxBytes is reached")

// Options configures a Store.
type Options struct {
	// Dir is the state directory, in which the Store has a file. It must exist when the first event is parked. Dir and
	// Sink, the name of the sink, are not used if Storage is set.
	Dir, Sink string
	Storage   Storage // stores the events; nil means a file in Dir
	// MaxBytes bounds the total size of the parked events and the bytes that Used returns. The file itself can be larger.
	// 0 means no bound.
	MaxBytes int64
	Used     func() int64 // returns other bytes that count against MaxBytes; may be nil
	// OnLost is called when Open or Head finds that stored events are damaged and lost, before it quarantines the file or
	// removes the events; may be nil. It must not call the Store.
	OnLost func()
	Logger *slog.Logger // nil means slog.Default()
}

// Storage stores the events of one sink as values. Its methods are not called concurrently.
type Storage interface {
	// Each calls a function for each value whose key is greater than after, in key order, until the function returns
	// false. A damaged value can be nil. The value is valid until the function returns.
	Each(after string, call func(key string, value []byte) bool) error
	// Update removes values, puts others, and returns the number and the total size of the removed values. The changes
	// are durable when Update returns nil. If it returns an error, any of them may have been made.
	Update(put map[string][]byte, remove []string) (events int, bytes int64, err error)
	Close() error
}

// Store contains the parked events of one sink. Its methods are safe for concurrent use. Only Park, Head, Remove and
// Close wait for the storage. No method may be called after Close.
type Store struct {
	opts Options

	using   sync.Mutex // held while the storage is used; guards the following fields
	storage Storage
	last    uint64 // number of the newest event
	// failed means that the last Update failed. The storage may then contain the events of stale, which do not count, and
	// may lack others that do.
	failed bool
	stale  []string
	// reported contains the keys of the damaged events whose loss was reported.
	reported map[string]bool

	mu     sync.Mutex        // never held while waiting for the storage
	queues map[string]*Queue // changed only while both locks are held
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

// Open returns the Store of a sink with the events in its storage. If the file in Dir is damaged, Open quarantines it
// and returns an empty Store.
func Open(opts Options) (*Store, error) {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	s := &Store{opts: opts, storage: opts.Storage, queues: map[string]*Queue{}, reported: map[string]bool{}}
	if s.storage != nil {
		err := s.load()
		if errors.Is(err, boltfile.ErrDamaged) {
			err = s.removeUnknown()
		}
		if err != nil {
			return nil, fmt.Errorf("read the parked events: %w", err)
		}
		return s, nil
	}
	f := &file{path: pathOf(opts.Dir, opts.Sink)}
	s.storage, s.opts.Logger = f, opts.Logger.With("path", f.path)
	err := f.open(boltfile.Options{})
	if err == nil {
		err = s.load()
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	err = errors.Join(err, f.Close())
	if !errors.Is(err, boltfile.ErrDamaged) {
		return nil, boltfile.Explain("open the parked events", f.path, err)
	}
	s.lose(1)
	renamedTo, renameErr := files.Quarantine(f.path, "corrupt")
	if renameErr != nil {
		return nil, boltfile.Explain("quarantine the parked events", f.path, renameErr)
	}
	s.opts.Logger.Error("cannot read the parked events; the file was quarantined", "renamedTo", renamedTo, "err", err)
	return s, nil
}

// load reads and counts all events.
func (s *Store) load() (err error) {
	queues := map[string]*Queue{}
	readErr := s.storage.Each("", func(key string, value []byte) bool {
		destination, known := destinationOf(key)
		if !known {
			err = fmt.Errorf("%w: unknown key %q", boltfile.ErrDamaged, key)
			return false
		}
		m, _ := parse(value) // if the event is damaged, Head skips it later
		s.count(queues, destination, numberOf(key), len(value), m)
		return true
	})
	if err = errors.Join(err, readErr); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.queues = queues
	}
	return err
}

// removeUnknown removes the values whose keys are not those of events, and reads the events. A Storage cannot be
// quarantined, and it can contain other events.
func (s *Store) removeUnknown() error {
	var unknown []string
	err := s.storage.Each("", func(key string, _ []byte) bool {
		if _, known := destinationOf(key); !known {
			unknown = append(unknown, key)
		}
		return true
	})
	if err != nil {
		return err
	}
	if len(unknown) > 0 {
		s.lose(len(unknown))
		s.opts.Logger.Error("parked events have unknown keys and are lost", "events", len(unknown), "key", unknown[0])
		if _, _, err := s.storage.Update(nil, unknown); err != nil {
			return err
		}
	}
	return s.load()
}

// update changes the storage, and calls count if it succeeds. After an Update that failed, it counts all events
// instead.
func (s *Store) update(put map[string][]byte, remove []string, count func(events int, bytes int64) error) error {
	for _, key := range s.stale {
		if put[key] == nil {
			remove = append(remove, key)
		}
	}
	events, bytes, err := s.storage.Update(put, remove)
	switch {
	case err == nil && s.failed:
		err = s.load()
	case err == nil:
		err = count(events, bytes)
	}
	if s.failed = err != nil; err == nil {
		s.stale = nil
		return nil
	}
	for key := range put {
		s.stale = append(s.stale, key)
	}
	return err
}

// lose counts lost events. A file counts as one.
func (s *Store) lose(events int) {
	s.mu.Lock()
	s.lost += int64(events)
	s.mu.Unlock()
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
// returns an error, none of them are parked (see the package comment for what the storage may contain).
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
	s.using.Lock()
	defer s.using.Unlock()
	used := s.bytes()
	if s.opts.Used != nil {
		used += s.opts.Used()
	}
	if s.opts.MaxBytes > 0 && used > 0 && used+size > s.opts.MaxBytes {
		return ErrFull
	}
	put := map[string][]byte{}
	for i, p := range all {
		put[keyOf(p.Destination, s.last+1+uint64(i))] = values[i]
	}
	err := s.update(put, nil, func(int, int64) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		first := s.last + 1
		for i, p := range all {
			s.count(s.queues, p.Destination, first+uint64(i), len(values[i]), p.Message)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("park events: %w", err)
	}
	return nil
}

// count adds a stored event to the numbers of its queue. m is nil if the event cannot be read.
func (s *Store) count(queues map[string]*Queue, destination string, number uint64, size int, m *event.Message) {
	s.last = max(s.last, number)
	q := queues[destination]
	if q == nil {
		q = &Queue{Destination: destination, First: number}
		queues[destination] = q
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
	s.using.Lock()
	defer s.using.Unlock()
	if s.failed {
		if err := s.update(nil, nil, nil); err != nil {
			return nil, fmt.Errorf("read parked events: %w", err)
		}
	}
	if s.queues[destination] == nil {
		return nil, nil
	}
	var out []Entry
	var damaged []uint64
	var size int64
	err := s.storage.Each(keyOf(destination, 0), func(key string, value []byte) bool {
		if !isOf(destination, key) || len(out) >= limit {
			return false
		}
		if size += int64(len(value)); size > maxBytes && len(out) > 0 {
			return false
		}
		if m, err := parse(slices.Clone(value)); err == nil {
			out = append(out, Entry{numberOf(key), m})
		} else {
			damaged = append(damaged, numberOf(key))
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("read parked events: %w", err)
	}
	s.report(destination, damaged)
	if err := s.remove(destination, damaged); err != nil {
		return nil, err
	}
	return out, nil
}

// report reports damaged events as lost, except those that were reported before and could not be removed.
func (s *Store) report(destination string, damaged []uint64) {
	events := 0
	for _, number := range damaged {
		if key := keyOf(destination, number); !s.reported[key] {
			s.reported[key] = true
			events++
		}
	}
	if events > 0 {
		s.lose(events)
		s.opts.Logger.Error("parked events are damaged and lost", "destination", destination, "events", events)
	}
}

// Remove removes events from a queue. It removes the queue if no events are left.
func (s *Store) Remove(destination string, numbers []uint64) error {
	s.using.Lock()
	defer s.using.Unlock()
	return s.remove(destination, numbers)
}

func (s *Store) remove(destination string, numbers []uint64) error {
	before := s.queues[destination]
	if before == nil || len(numbers) == 0 {
		return nil
	}
	var keys []string
	for _, number := range numbers {
		keys = append(keys, keyOf(destination, number))
	}
	after := *before
	err := s.update(nil, keys, func(events int, bytes int64) error {
		err := s.storage.Each(keyOf(destination, 0), func(key string, _ []byte) bool {
			after.First = numberOf(key)
			return false
		})
		s.mu.Lock()
		defer s.mu.Unlock()
		after.Events -= events
		after.Bytes -= bytes
		if s.queues[destination] = &after; after.Events <= 0 {
			delete(s.queues, destination)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("remove parked events: %w", err)
	}
	return nil
}

// Close closes the storage. The next Open returns its events again.
func (s *Store) Close() (err error) {
	s.using.Lock()
	defer s.using.Unlock()
	if s.failed {
		err = s.update(nil, nil, nil)
	}
	return errors.Join(err, s.storage.Close())
}
