package parked

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/test/scale"
)

func message(resource, id string, size int) *event.Message {
	m := &event.Message{
		Type: event.Updated, Resource: schema.GroupVersionResource{Version: "v1", Resource: resource}, ID: id,
		Data: bytes.Repeat([]byte("x"), size),
	}
	m.Identity.Namespace, m.Identity.Name = "default", id
	return m
}

func newStore(t *testing.T, opts Options) *Store {
	t.Helper()
	opts.Sink, opts.Logger = "live", slog.New(slog.DiscardHandler)
	s, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (s *Store) path() string { return s.storage.(*file).path }

func ids(t *testing.T, s *Store, destination string, limit int, maxBytes int64) (out []string, numbers []uint64) {
	t.Helper()
	head, err := s.Head(destination, limit, maxBytes)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range head {
		out, numbers = append(out, e.Message.ID), append(numbers, e.Number)
	}
	return out, numbers
}

// Parked events are available after a restart, in order for each destination. The file is removed with the last event.
func TestParkedEventsSurviveARestart(t *testing.T) {
	opts := Options{Dir: t.TempDir()}
	s := newStore(t, opts)
	for i := range 5 {
		err := s.Park([]Parking{
			{"pods", message("pods", fmt.Sprint("p", i), 10)},
			{"secrets/3", message("secrets", fmt.Sprint("s", i), 10)},
			{"pods", message("pods", fmt.Sprint("q", i), 10)},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(
		filepath.Join(opts.Dir, "*"),
	); err != nil ||
		!cmp.Equal([]string{filepath.Join(opts.Dir, "parked-live.db")}, left) {
		t.Errorf("left: %v, %v", left, err)
	}
	queues, err := Read(opts.Dir, "live")
	if err != nil || len(queues) != 2 || queues[0].Events != 10 || queues[1].Destination != "secrets/3" {
		t.Errorf("read: %+v, %v", queues, err)
	}
	s = newStore(t, opts)
	if diff := cmp.Diff(queues, s.Queues()); diff != "" {
		t.Errorf("queues (-read +opened):\n%s", diff)
	}
	if err := s.Park([]Parking{{"secrets/3", message("secrets", "s5", 10)}}); err != nil {
		t.Fatal(err)
	}
	got, numbers := ids(t, s, "pods", 4, 1<<20)
	if diff := cmp.Diff([]string{"p0", "q0", "p1", "q1"}, got); diff != "" {
		t.Errorf("head (-want +got):\n%s", diff)
	}
	if err := s.Remove("pods", []uint64{numbers[0], numbers[2]}); err != nil { // those between stay
		t.Fatal(err)
	}
	if got, _ = ids(t, s, "pods", 3, 1<<20); !cmp.Equal([]string{"q0", "q1", "p2"}, got) {
		t.Errorf("after removing two: %v", got)
	}
	if got, _ = ids(t, s, "pods", 100, 1); !cmp.Equal([]string{"q0"}, got) {
		t.Errorf("within one byte: %v", got)
	}
	for _, destination := range []string{"pods", "secrets/3"} {
		_, numbers = ids(t, s, destination, 100, 1<<20)
		if err := s.Remove(destination, numbers); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(s.path()); !errors.Is(err, os.ErrNotExist) || len(s.Queues()) != 0 || s.Holds("pods") {
		t.Errorf("the last event was removed: %v, %v", err, s.Queues())
	}
	if err := s.Park([]Parking{{"pods", message("pods", "p9", 10)}}); err != nil || !s.Holds("pods") {
		t.Errorf("again: %v", err)
	}
}

// The bound also covers the other data of the sink on disk. If the events do not fit, none of them is parked.
func TestParkedEventsAreBounded(t *testing.T) {
	other := int64(0)
	s := newStore(t, Options{Dir: t.TempDir(), MaxBytes: 10_000, Used: func() int64 { return other }})
	if err := s.Park([]Parking{{"a", message("pods", "p1", 3000)}}); err != nil {
		t.Fatal(err)
	}
	two := []Parking{{"a", message("pods", "p2", 3000)}, {"b", message("pods", "p3", 3000)}}
	other = 5000
	if err := s.Park(two); !errors.Is(err, ErrFull) || s.Holds("b") {
		t.Errorf("beyond the bound: %v", err)
	}
	other = 0
	if err := s.Park(two); err != nil {
		t.Error(err)
	}
	if n, _ := s.Bytes(); n < 9000 || n > 10_000 {
		t.Errorf("%d bytes", n)
	}
}

func TestADamagedFileIsRenamed(t *testing.T) {
	opts := Options{Dir: t.TempDir()}
	s := newStore(t, opts)
	if err := os.WriteFile(s.path(), bytes.Repeat([]byte("no "), 10_000), 0o600); err != nil {
		t.Fatal(err)
	}
	s = newStore(t, opts)
	if _, lost := s.Bytes(); lost != 1 || len(s.Queues()) != 0 {
		t.Errorf("%d lost, %v", lost, s.Queues())
	}
	if err := s.Park([]Parking{{"a", message("pods", "p1", 10)}}); err != nil {
		t.Error(err)
	}
	if _, err := Open(Options{Dir: opts.Dir, Sink: "live"}); err == nil {
		t.Error("two stores on one file")
	}
}

// If any bits of the file change, the file is opened or quarantined, and no event is returned as another event.
func TestFlippedBits(t *testing.T) {
	opts := Options{Dir: t.TempDir()}
	s := newStore(t, opts)
	want := map[string]string{}
	for n := range 60 {
		m := message("pods", fmt.Sprint("p", n), 100+50*n)
		want[m.ID] = string(m.Data)
		if err := s.Park([]Parking{{fmt.Sprint("queue-", n%3), m}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(s.path())
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	quarantined := 0
	for n := range scale.Of(150, 3000) {
		damaged, at := bytes.Clone(file), random.IntN(len(file))
		if n%2 == 0 {
			at = at&^4095 + random.IntN(64) // where a page says how it is to be read
		}
		damaged[at] ^= 1 << random.IntN(8)
		if err := os.WriteFile(s.path(), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		s := newStore(t, opts)
		if _, lost := s.Bytes(); lost > 0 && s.Empty() {
			quarantined++
		}
		for _, q := range s.Queues() {
			entries, err := s.Head(q.Destination, 100, 1<<20)
			if err != nil && !errors.Is(err, boltfile.ErrDamaged) {
				t.Errorf("bit at %d: %v", at, err)
			}
			for _, e := range entries {
				if data, ok := want[e.Message.ID]; !ok || data != string(e.Message.Data) {
					t.Errorf("bit at %d: event %s is another one", at, e.Message.ID)
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := filepath.Glob(s.path() + ".corrupt-2*"); err != nil || len(names) != quarantined || quarantined == 0 {
		t.Errorf("%d files were quarantined, and there are %d, %v", quarantined, len(names), err)
	}
}

// A file with a freelist, which bbolt writes by default, can be read.
func TestAFileWithAFreeList(t *testing.T) {
	opts := Options{Dir: t.TempDir()}
	s := newStore(t, opts)
	if err := s.Park([]Parking{{"a", message("pods", "p1", 10)}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(s.path(), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s = newStore(t, opts)
	if got, _ := ids(t, s, "a", 10, 1<<20); !cmp.Equal([]string{"p1"}, got) {
		t.Errorf("%v", got)
	}
}

// Destinations whose names begin with the name of another one have queues of their own.
func TestSimilarNames(t *testing.T) {
	opts := Options{Dir: t.TempDir()}
	s := newStore(t, opts)
	names := []string{"a/1", "a", "a/10", "a/", "", "b"}
	for n := range 3 {
		for _, name := range names {
			if err := s.Park([]Parking{{name, message("pods", fmt.Sprint(name, n), 10)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = newStore(t, opts)
	for _, name := range names {
		got, numbers := ids(t, s, name, 10, 1<<20)
		if diff := cmp.Diff([]string{name + "0", name + "1", name + "2"}, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", name, diff)
		}
		if err := s.Remove(name, numbers[:1]); err != nil {
			t.Fatal(err)
		}
		if q := s.queues[name]; q.First != numbers[1] || q.Events != 2 {
			t.Errorf("%q: %+v, want %d to be the first", name, q, numbers[1])
		}
	}
}

// If a stored event is damaged, the store does not return the event. Lost events are counted.
func TestADamagedEvent(t *testing.T) {
	losses := 0
	s := newStore(t, Options{Dir: t.TempDir(), OnLost: func() { losses++ }})
	for n := range 3 {
		if err := s.Park([]Parking{{"a", message("pods", fmt.Sprint("p", n), 10)}}); err != nil {
			t.Fatal(err)
		}
	}
	err := s.storage.(*file).db.Update(func(tx *bbolt.Tx) error {
		events := tx.Bucket([]byte(bucketEvents))
		key, value := events.Cursor().First()
		value = bytes.Clone(value)
		value[len(value)-1] ^= 1
		return events.Put(key, value)
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, _ := ids(t, s, "a", 10, 1<<20); !cmp.Equal([]string{"p1", "p2"}, got) {
			t.Errorf("%v", got)
		}
	}
	if _, lost := s.Bytes(); lost != 1 || losses != 1 || s.Queues()[0].Events != 2 {
		t.Errorf("%d lost, reported %d times, %+v", lost, losses, s.Queues())
	}
}

// A file that another process has open, or that cannot be read, is not changed: these are no reasons to quarantine it.
func TestOpenFails(t *testing.T) {
	opts := Options{Dir: t.TempDir()}
	s := newStore(t, opts)
	if err := s.Park([]Parking{{"a", message("pods", "p1", 10)}}); err != nil {
		t.Fatal(err)
	}
	opts.Sink = "live"
	if _, err := Open(opts); err == nil || !strings.Contains(err.Error(), "another program has the file open") {
		t.Error(err)
	}
	if _, err := Read(
		opts.Dir,
		"live",
	); err == nil ||
		!strings.Contains(err.Error(), "another program has the file open") {
		t.Error(err)
	}
	if _, err := Read(opts.Dir, "none"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := os.Mkdir(filepath.Join(opts.Dir, "parked-dir.db"), 0o700); err != nil {
		t.Fatal(err)
	}
	opts.Sink = "dir"
	if _, err := Open(opts); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
	if got, _ := ids(t, s, "a", 10, 1<<20); !cmp.Equal([]string{"p1"}, got) {
		t.Errorf("%v", got)
	}
	opts.Dir = filepath.Join(opts.Dir, "missing")
	s = newStore(t, opts)
	if err := s.Park([]Parking{{"a", message("pods", "p1", 10)}}); !errors.Is(err, os.ErrNotExist) || !s.Empty() {
		t.Error(err)
	}
}

// When the last readable event is lost, the queue and the file are removed too, and an event can be parked again.
func TestAllEventsAreDamaged(t *testing.T) {
	var log bytes.Buffer
	opts := Options{Dir: t.TempDir(), Sink: "live", Logger: slog.New(slog.NewTextHandler(&log, nil))}
	s, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Park([]Parking{{"a", message("pods", "p1", 10)}, {"a", message("pods", "p2", 10)}}); err != nil {
		t.Fatal(err)
	}
	err = s.storage.(*file).db.Update(func(tx *bbolt.Tx) error {
		events := tx.Bucket([]byte(bucketEvents))
		return errors.Join(
			events.Put([]byte(keyOf("a", 1)), []byte("no")),
			events.Put([]byte(keyOf("a", 2)), []byte("checksum")),
		)
	})
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(opts); err != nil {
		t.Fatal(err)
	}
	if q := s.Queues(); len(q) != 1 || q[0].Events != 2 || !q[0].Since.IsZero() || q[0].Resources != nil {
		t.Errorf("before they are read: %+v", q)
	}
	if got, _ := ids(t, s, "a", 10, 1<<20); len(got) > 0 {
		t.Errorf("%v", got)
	}
	if _, lost := s.Bytes(); lost != 2 || !s.Empty() || s.Holds("a") {
		t.Errorf("%d lost, %+v", lost, s.Queues())
	}
	if text := log.String(); !strings.Contains(text, "events=2") || !strings.Contains(text, "destination=a") ||
		!strings.Contains(text, s.path()) {
		t.Errorf("the log does not say what is lost: %s", text)
	}
	if _, err := os.Stat(s.path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the empty file is left: %v", err)
	}
	if err := s.Park([]Parking{{"a", message("pods", "p3", 10)}}); err != nil || !s.Holds("a") {
		t.Errorf("again: %v", err)
	}
}

// A bbolt file with other content is quarantined, and its new name is logged.
func TestAFileWithOtherContent(t *testing.T) {
	for name, fill := range map[string]func(*bbolt.Tx) error{
		"no bucket": func(*bbolt.Tx) error { return nil },
		"a key without number": func(tx *bbolt.Tx) error {
			events, err := tx.CreateBucket([]byte(bucketEvents))
			return errors.Join(err, events.Put([]byte("a"), []byte("value")))
		},
		"a key without zero byte": func(tx *bbolt.Tx) error {
			events, err := tx.CreateBucket([]byte(bucketEvents))
			return errors.Join(err, events.Put([]byte("abcdefghijkl"), []byte("value")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			opts := Options{Dir: t.TempDir(), Sink: "live", Logger: slog.New(slog.NewTextHandler(&log, nil))}
			opts.OnLost = func() {
				if renamed, err := filepath.Glob(opts.Dir + "/*.corrupt-*"); err != nil || len(renamed) > 0 {
					t.Errorf("reported when it is quarantined: %v, %v", renamed, err)
				}
			}
			path := filepath.Join(opts.Dir, "parked-live.db")
			db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: 4096})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(db.Update(fill), db.Close()); err != nil {
				t.Fatal(err)
			}
			s, err := Open(opts)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			renamed, err := filepath.Glob(path + ".corrupt-*")
			if _, lost := s.Bytes(); err != nil || len(renamed) != 1 || lost != 1 || !s.Empty() {
				t.Fatalf("renamed to %v, %d lost, %v", renamed, lost, err)
			}
			if !strings.Contains(log.String(), renamed[0]) {
				t.Errorf("the log does not name %s: %s", renamed[0], log.String())
			}
		})
	}
}

// A queue reports since when events wait, their resources, and the oldest event. After a restart, it reports the same.
func TestWhatAQueueSays(t *testing.T) {
	opts := Options{Dir: t.TempDir()}
	s := newStore(t, opts)
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i, resource := range []string{"pods", "secrets", "pods"} {
		m := message(resource, fmt.Sprint("e", i), 10)
		m.Time = start.Add(time.Duration(i) * time.Minute)
		if err := s.Park([]Parking{{"a", m}}); err != nil {
			t.Fatal(err)
		}
	}
	bytes, _ := s.Bytes()
	want := []Queue{{
		Destination: "a", First: 1, Events: 3, Bytes: bytes, Since: start, Resources: []string{"pods", "secrets"},
	}}
	if diff := cmp.Diff(want, s.Queues()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Removing what is not there changes nothing.
	if err := errors.Join(s.Remove("a", []uint64{7}), s.Remove("b", []uint64{1}), s.Remove("a", nil)); err != nil {
		t.Error(err)
	}
	if got, _ := ids(t, s, "b", 10, 1<<20); got != nil || !cmp.Equal(want, s.Queues()) {
		t.Errorf("%v, %+v", got, s.Queues())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = newStore(t, opts)
	if diff := cmp.Diff(want, s.Queues()); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
	if err := s.Park([]Parking{{"b", message("pods", "e3", 10)}}); err != nil {
		t.Fatal(err)
	}
	if q := s.Queues(); len(q) != 2 || q[1].First != 4 {
		t.Errorf("the numbers do not go on: %+v", q)
	}
}

// An event that is larger than the bound is parked if nothing else is on disk; otherwise the error names the setting.
func TestAnEventLargerThanTheBound(t *testing.T) {
	s := newStore(t, Options{Dir: t.TempDir(), MaxBytes: 100})
	large := []Parking{{"a", message("pods", "p1", 1000)}}
	if err := s.Park(large); err != nil {
		t.Fatal(err)
	}
	if err := s.Park(large); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "buffer.spill.maxBytes") {
		t.Error(err)
	}
	if got, numbers := ids(t, s, "a", 10, 1); !cmp.Equal([]string{"p1"}, got) || s.Remove("a", numbers) != nil {
		t.Errorf("%v", got)
	}
	if err := s.Park(large); err != nil {
		t.Error(err)
	}
}
