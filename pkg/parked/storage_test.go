package parked

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/deltabridge/deltabridge/test/scale"

	"github.com/google/go-cmp/cmp"
)

// memory is a Storage that fails now and then, with a part of the changes made.
type memory struct {
	values map[string][]byte
	random *rand.Rand // nil if it does not fail
}

var errStorage = errors.New("unknown result")

func (m *memory) Each(after string, call func(key string, value []byte) bool) error {
	for _, key := range slices.Sorted(maps.Keys(m.values)) {
		if key > after && !call(key, m.values[key]) {
			break
		}
	}
	return nil
}

func (m *memory) Update(put map[string][]byte, remove []string) (events int, bytes int64, err error) {
	made := func() bool { return err == nil || m.random.IntN(2) == 0 }
	if m.random != nil && m.random.IntN(3) == 0 {
		err = errStorage
	}
	for _, key := range remove {
		if value, ok := m.values[key]; ok && made() {
			events, bytes = events+1, bytes+int64(len(value))
			delete(m.values, key)
		}
	}
	for key, value := range put {
		if made() {
			m.values[key] = value
		}
	}
	return events, bytes, err
}

func (m *memory) Close() error { return nil }

// idsOf returns the ids and numbers of the oldest events of a destination. It tries again if the storage fails.
func idsOf(t *testing.T, s *Store, destination string, limit int) (found []string, numbers []uint64) {
	t.Helper()
	head, err := s.Head(destination, limit, 1<<30)
	for errors.Is(err, errStorage) {
		head, err = s.Head(destination, limit, 1<<30)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range head {
		found, numbers = append(found, e.Message.ID), append(numbers, e.Number)
	}
	return found, numbers
}

// model is what a Store should contain: the ids of the events by destination.
type model map[string][]string

func (m model) check(t *testing.T, s *Store, stored map[string][]byte) {
	t.Helper()
	for destination, want := range m {
		got, numbers := idsOf(t, s, destination, 1000)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s: %s", destination, diff)
		}
		if !slices.IsSorted(numbers) || s.Holds(destination) != (len(want) > 0) {
			t.Fatalf("%s: %v, %t", destination, numbers, s.Holds(destination))
		}
		for _, q := range s.Queues() {
			if q.Destination == destination && (q.Events != len(want) || q.First != numbers[0]) {
				t.Fatalf("%+v, want %d events from %d on", q, len(want), numbers[0])
			}
		}
	}
	size := 0
	for _, value := range stored {
		size += len(value)
	}
	if bytes, lost := s.Bytes(); bytes != int64(size) || lost > 0 {
		t.Fatalf("%d bytes, want %d; %d lost", bytes, size, lost)
	}
}

// An Update that fails may have made any of its changes. What was not parked does not come back, and nothing that was
// parked is lost.
func TestUncertainStorage(t *testing.T) {
	for seed := range uint64(scale.Of(5, 20)) {
		random := rand.New(rand.NewPCG(seed, 3))
		storage := &memory{values: map[string][]byte{}, random: random}
		opts := Options{Storage: storage, Logger: slog.New(slog.DiscardHandler)}
		s, err := Open(opts)
		if err != nil {
			t.Fatal(err)
		}
		m := model{"a": nil, "a/1": nil, "b": nil}
		destinations := slices.Sorted(maps.Keys(m))
		for n := range 300 {
			switch random.IntN(5) {
			case 0, 1:
				var all []Parking
				next := maps.Clone(m)
				for i := range 1 + random.IntN(4) {
					destination := destinations[random.IntN(3)]
					id := fmt.Sprint(n, ".", i)
					all = append(all, Parking{destination, message("pods", id, random.IntN(20))})
					next[destination] = append(slices.Clone(next[destination]), id)
				}
				if err = s.Park(all); err == nil {
					m = next
				}
			case 2, 3:
				destination := destinations[random.IntN(3)]
				removed, numbers := idsOf(t, s, destination, random.IntN(4))
				for err = s.Remove(destination, numbers); err != nil; err = s.Remove(destination, numbers) {
				}
				if m[destination] = m[destination][len(removed):]; len(m[destination]) == 0 {
					m[destination] = nil
				}
			case 4:
				for err = s.Close(); err != nil; err = s.Close() {
				}
				if s, err = Open(opts); err != nil {
					t.Fatal(err)
				}
			}
			if err == nil {
				m.check(t, s, storage.values)
			} else if !errors.Is(err, errStorage) {
				t.Fatal(err)
			}
		}
	}
}

// waiting is a Storage whose Update waits.
type waiting struct {
	memory
	release chan struct{}
}

func (w *waiting) Update(put map[string][]byte, remove []string) (events int, bytes int64, err error) {
	<-w.release
	return w.memory.Update(put, remove)
}

// While the storage does not answer, everything that is only counted can be read.
func TestSlowStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := &waiting{memory{values: map[string][]byte{}}, make(chan struct{})}
		s, err := Open(Options{Storage: storage})
		if err != nil {
			t.Fatal(err)
		}
		parked := make(chan error, 1)
		go func() { parked <- s.Park([]Parking{{"a", message("pods", "p", 1)}}) }()
		synctest.Wait()
		if bytes, _ := s.Bytes(); bytes != 0 || !s.Empty() || s.Holds("a") || len(s.Queues()) != 0 {
			t.Errorf("%d bytes, %+v", bytes, s.Queues())
		}
		close(storage.release)
		if err := <-parked; err != nil || !s.Holds("a") {
			t.Errorf("%v, %+v", err, s.Queues())
		}
	})
}

// Values with unknown keys are removed and reported as lost. The events are kept.
func TestUnknownKeysInAStorage(t *testing.T) {
	storage := &memory{values: map[string][]byte{}}
	s := newStore(t, Options{Storage: storage})
	if err := s.Park([]Parking{{"a", message("pods", "p1", 10)}, {"b", message("pods", "p2", 10)}}); err != nil {
		t.Fatal(err)
	}
	storage.values["a key without zero byte"], storage.values["c"] = []byte("value"), nil
	lost := 0
	opts := Options{Storage: storage, Logger: slog.New(slog.DiscardHandler), OnLost: func() {
		if lost++; len(storage.values) != 4 {
			t.Errorf("reported after the values were removed: %d left", len(storage.values))
		}
	}}
	for range 2 {
		s, err := Open(opts)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"p1"}, first(idsOf(t, s, "a", 10))); diff != "" || !s.Holds("b") || s.Holds("c") {
			t.Errorf("%+v (-want +got):\n%s", s.Queues(), diff)
		}
	}
	if lost != 1 {
		t.Errorf("the loss was reported %d times", lost)
	}
}

// full is a Storage that cannot remove values at first.
type full struct {
	memory
	failures int
}

func (f *full) Update(put map[string][]byte, remove []string) (events int, bytes int64, err error) {
	if len(remove) > 0 && f.failures > 0 {
		f.failures--
		return 0, 0, errStorage
	}
	return f.memory.Update(put, remove)
}

// The loss of a damaged event is reported once, although the event cannot be removed at first.
func TestADamagedEventThatStays(t *testing.T) {
	storage := &full{memory: memory{values: map[string][]byte{}}}
	losses := 0
	s := newStore(t, Options{Storage: storage, OnLost: func() { losses++ }})
	if err := s.Park([]Parking{{"a", message("pods", "p1", 10)}, {"a", message("pods", "p2", 10)}}); err != nil {
		t.Fatal(err)
	}
	storage.values[keyOf("a", 1)], storage.failures = nil, 5
	if found, _ := idsOf(t, s, "a", 10); !cmp.Equal([]string{"p2"}, found) {
		t.Errorf("%v", found)
	}
	if _, lost := s.Bytes(); lost != 1 || losses != 1 || storage.failures > 0 || len(storage.values) != 1 {
		t.Errorf(
			"%d lost, reported %d times, %d failures left, %d values",
			lost,
			losses,
			storage.failures,
			len(storage.values),
		)
	}
}

func first[T, U any](a T, _ U) T { return a }
