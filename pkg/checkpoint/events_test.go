package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/segment"
	"github.com/deltabridge/deltabridge/internal/statelog"
)

// events returns the log of sink x.
func events(t testing.TB, s *Store) *Events {
	t.Helper()
	return eventsOf(t, s, "x")
}

func eventsOf(t testing.TB, s *Store, sink string) *Events {
	t.Helper()
	e, err := s.Events(sink)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// eventData is the data of an event; the length depends on the number.
func eventData(number uint64) string {
	return strings.Repeat(fmt.Sprintf("<%d>", number), 1+int(number%5))
}

// batchOf is a batch with events, whose sources are named after their number modulo 3.
func batchOf(t testing.TB, e *Events, from, to uint64, data func(uint64) string) *segment.Batch {
	t.Helper()
	b := e.NewBatch()
	for n := from; n <= to; n++ {
		added, err := b.Add(n, fmt.Sprint("source", n%3), fmt.Sprint(n), math.MaxInt64, func(dst []byte) ([]byte, error) {
			return append(dst, data(n)...), nil
		})
		if !added || err != nil {
			t.Fatal(added, err)
		}
	}
	return b
}

func appendEvents(t testing.TB, e *Events, from, to uint64) {
	t.Helper()
	if err := e.Append(batchOf(t, e, from, to, eventData), nil); err != nil {
		t.Fatal(err)
	}
}

// readEvents reads all events. It returns the data of those that can be read, and the numbers of the others.
func readEvents(t testing.TB, e *Events) (read map[uint64]string, lost []uint64) {
	t.Helper()
	read = map[uint64]string{}
	for n := e.Acked() + 1; n <= e.Last(); n++ {
		r, err := e.Read(n)
		if err != nil || r.First != n || r.Last < n || r.Last > e.Last() {
			t.Fatalf("Read(%d) = %d to %d, %v", n, r.First, r.Last, err)
		}
		if r.Err == nil {
			read[n] = string(r.Data)
			continue
		}
		for ; n < r.Last; n++ {
			lost = append(lost, n)
		}
		lost = append(lost, n)
	}
	return read, lost
}

func wantEvents(t testing.TB, e *Events, from, to uint64) {
	t.Helper()
	want := map[uint64]string{}
	for n := from; n <= to; n++ {
		want[n] = eventData(n)
	}
	read, lost := readEvents(t, e)
	if diff := cmp.Diff(want, read); diff != "" || len(lost) > 0 {
		t.Fatalf("lost %v, %s", lost, diff)
	}
	wantPositions(t, e, from, to)
}

func wantPositions(t testing.TB, e *Events, from, to uint64) {
	t.Helper()
	positions := e.Positions()
	for n := to; n >= from && n+3 > to; n-- {
		if got := positions[fmt.Sprint("source", n%3)]; got != fmt.Sprint(n) {
			t.Fatalf("event %d: the position is %q", n, got)
		}
	}
}

// copyOf returns a folder with the file of a store that is not closed, as a kill leaves it.
func copyOf(t testing.TB, s *Store) (folder string) {
	t.Helper()
	folder = t.TempDir()
	data, err := os.ReadFile(s.path)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, fileName), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// After a kill at any moment, the file contains exactly what was appended and not acknowledged.
func TestEvents(t *testing.T) {
	s := begin(t, t.TempDir())
	e := events(t, s)
	check := func(from, to uint64) {
		t.Helper()
		wantEvents(t, e, from, to)
		again := events(t, begin(t, copyOf(t, s)))
		wantEvents(t, again, from, to)
		if again.Size() != e.Size() || (e.Size() == 0) != (from > to) {
			t.Errorf("%d bytes, after a restart %d", e.Size(), again.Size())
		}
	}
	unused := raw(t, s)
	check(1, 0)
	if err := e.Ack(5); err != nil { // of events that were never written
		t.Fatal(err)
	}
	if diff := cmp.Diff(unused, raw(t, s)); diff != "" {
		t.Error(diff)
	}
	appendEvents(t, e, 6, 20)
	check(6, 20)
	appendEvents(t, e, 21, 21)
	check(6, 21)
	if err := e.Ack(9); err != nil {
		t.Fatal(err)
	}
	check(10, 21)
	if err := e.Append(batchOf(t, e, 22, 23, eventData), map[string]string{"other": "7", "source1": "1"}); err != nil {
		t.Fatal(err)
	}
	check(10, 23)
	if got := events(t, begin(t, copyOf(t, s))).Positions()["other"]; got != "7" {
		t.Errorf("the position of another source is %q", got)
	}
	if err := e.Ack(30); err != nil || e.Acked() != 30 || e.Last() != 30 {
		t.Fatal(err, e.Acked(), e.Last())
	}
	check(31, 30)
	if diff := cmp.Diff(unused, raw(t, s)); diff != "" {
		t.Error(diff)
	}
	appendEvents(t, e, 31, 33)
	check(31, 33)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Read(31); !errors.Is(err, segment.ErrClosed) {
		t.Error(err)
	}
}

// A file without events is the same as before there were events.
func TestNoEventsNoBucket(t *testing.T) {
	s := begin(t, t.TempDir())
	if err := events(t, s).Ack(3); err != nil {
		t.Fatal(err)
	}
	commit(t, s, map[string]string{"x": "f"})
	commit(t, s, map[string]string{"y": "f"})
	err := s.view(func(tx *bbolt.Tx) error {
		if tx.Bucket([]byte(bucketEvents)) != nil {
			t.Error("there is a bucket")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Acknowledging many events takes several transactions, none of which is large.
func TestAckOfManyEvents(t *testing.T) {
	l := newLeader(t, Options{})
	e := events(t, l.Store)
	const last = 2*ackedAtOnce + 100
	appendEvents(t, e, 1, last)
	commits := l.Stats().Commits
	if err := e.Ack(last - 1); err != nil {
		t.Fatal(err)
	}
	if n := l.Stats().Commits - commits; n != 3 || len(l.pairs) > ackedAtOnce+1 {
		t.Errorf("%d transactions, the last of %d pairs", n, len(l.pairs))
	}
	wantEvents(t, e, last, last)
	if err := e.Ack(last); err != nil || len(l.pairs) != 1 {
		t.Errorf("%d pairs, %v", len(l.pairs), err)
	}
}

// A damaged event is lost, and no other. So are events that are missing.
func TestDamagedEvents(t *testing.T) {
	put := func(value string, numbers ...uint64) func(*bbolt.Bucket) error {
		return func(b *bbolt.Bucket) (err error) {
			for _, n := range numbers {
				err = errors.Join(err, b.Put([]byte(eventKey(n)), []byte(value)))
			}
			return err
		}
	}
	remove := func(numbers ...uint64) func(*bbolt.Bucket) error {
		return func(b *bbolt.Bucket) (err error) {
			for _, n := range numbers {
				err = errors.Join(err, b.Delete([]byte(eventKey(n))))
			}
			return err
		}
	}
	for name, test := range map[string]struct {
		damage func(*bbolt.Bucket) error
		lost   []uint64
	}{
		"content":     {put("damaged", 5), []uint64{5}},
		"short":       {put("", 5, 6), []uint64{5, 6}},
		"first, last": {put("damaged", 3, 9), []uint64{3, 9}},
		"missing":     {remove(4, 7, 8), []uint64{4, 7, 8}},
		"at the ends": {remove(3, 8, 9), []uint64{3, 8, 9}},
		"all":         {remove(3, 4, 5, 6, 7, 8, 9), []uint64{3, 4, 5, 6, 7, 8, 9}},
		"before an event that does not count": {
			func(b *bbolt.Bucket) error {
				key := eventKey(12)
				return errors.Join(remove(9)(b), b.Put([]byte(key), seal(key, []byte("....failed"))))
			},
			[]uint64{9},
		},
		"the record": {func(b *bbolt.Bucket) error { return b.Put([]byte(keyEvents), []byte("damaged")) }, nil},
		"an event and the record": {
			func(b *bbolt.Bucket) error {
				return errors.Join(put("damaged", 5)(b), b.Put([]byte(keyEvents), []byte("damaged")))
			},
			[]uint64{5},
		},
		"no record": {func(b *bbolt.Bucket) error { return b.Delete([]byte(keyEvents)) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, t.TempDir())
			e := events(t, s)
			appendEvents(t, e, 1, 9)
			if err := errors.Join(e.Ack(2), s.Close()); err != nil {
				t.Fatal(err)
			}
			edit(t, s.path, func(tx *bbolt.Tx) error {
				return test.damage(tx.Bucket([]byte(bucketEvents)).Bucket([]byte(spillOf("x"))))
			})
			s = begin(t, s.opts.Path)
			e = events(t, s)
			if (e.Positions() == nil) != strings.HasSuffix(name, "record") || s.Stats().Quarantined > 0 {
				t.Errorf("positions %v, %+v", e.Positions(), s.Stats())
			}
			appendEvents(t, e, 10, 10) // from now on, there are positions again
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = begin(t, s.opts.Path)
			e = events(t, s)
			for _, number := range test.lost {
				if r, err := e.Read(number); r.Unnamed != strings.HasSuffix(name, "record") || err != nil {
					t.Errorf("%+v, %v", r, err)
				}
			}
			read, lost := readEvents(t, e)
			if diff := cmp.Diff(test.lost, lost); diff != "" || len(read)+len(lost) != 8 || read[10] != eventData(10) {
				t.Errorf("read %v, %s", read, diff)
			}
			if err := errors.Join(e.Ack(9), s.Close()); err != nil {
				t.Fatal(err)
			}
			e = events(t, begin(t, s.opts.Path))
			if read, lost := readEvents(t, e); len(read) != 1 || len(lost) > 0 || e.Size() != int64(4+len(eventData(10))) {
				t.Errorf("read %v, lost %v, %d bytes", read, lost, e.Size())
			}
		})
	}
}

// An Append that fails may still be in the log, which the next leader then continues. If the same process goes on, only
// what it does next counts.
func TestFailedAppend(t *testing.T) {
	for name, goOn := range map[string]bool{"next leader": false, "same leader": true} {
		t.Run(name, func(t *testing.T) {
			l := newLeader(t, Options{})
			e := events(t, l.Store)
			appendEvents(t, e, 1, 3)
			fail := func(do func() error) {
				t.Helper()
				l.cut = func() bool { return true }
				if err := do(); !errors.Is(err, errCut) {
					t.Fatal(err)
				}
				l.cut = nil
			}
			fail(func() error { return e.Append(batchOf(t, e, 4, 20, eventData), nil) })
			wantEvents(t, e, 1, 3)
			if !goOn {
				wantEvents(t, events(t, l.another(Options{}).lead().Store), 1, 20)
				return
			}
			other := func(uint64) string { return "other" }
			fail(func() error { return e.Append(batchOf(t, e, 4, 9, other), nil) })
			fail(func() error { return e.Ack(2) })
			wantEvents(t, events(t, l.another(Options{}).lead().Store), 3, 3)
			l = l.another(Options{Path: copyOf(t, l.Store)}).lead()
			wantEvents(t, events(t, l.Store), 3, 3)
		})
	}
}

// Another process that follows the log has the events of the leader in their order, whether it has read them one by one
// or from a pass.
func TestEventsAreTakenOver(t *testing.T) {
	l := newLeader(t, Options{})
	c := l.another(Options{})
	e := events(t, l.Store)
	for n := uint64(1); n < 400; n += 40 {
		appendEvents(t, e, n, n+39)
		if err := e.Ack(n / 3); err != nil {
			t.Fatal(err)
		}
		c.read()
	}
	l.broker.Remove(func(int64) bool { return true })
	if _, err := l.writer.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.writer = statelog.NewWriter(smallRecords{l.broker.Open()}, l.Copy(), statelog.Claim{})
	if err := l.writer.Claim(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	steps := 1
	for ; l.refresh(); steps++ {
	}
	for _, p := range []*process{c, l.another(Options{})} {
		if !p.read() || steps < 5 {
			t.Fatalf("the copy is not complete; a pass of %d steps", steps)
		}
		wantSame(t, l.Store, p.Store)
		p.lead()
		wantEvents(t, events(t, p.Store), e.Acked()+1, 400)
	}
}

// smallRecords is a log with small records, so that a pass takes many steps.
type smallRecords struct{ statelog.Log }

func (smallRecords) MaxRecord() int { return 500 }

// The events of a sink are removed with the sink, and those of all sinks with the checkpoint of another cluster. Copies
// follow.
func TestEventsAreRemoved(t *testing.T) {
	l := newLeader(t, Options{})
	c := l.another(Options{})
	for _, remove := range []func() error{
		func() error { return l.Commit(nil, map[string]string{"y": "f"}, nil) },
		func() error { return l.BeginCluster("other") },
	} {
		commit(t, l.Store, map[string]string{"x": "f", "y": "f"})
		appendEvents(t, events(t, l.Store), 1, 9)
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		wantEvents(t, events(t, l.Store), 1, 0)
		c.read()
		wantSame(t, l.Store, c.Store)
	}
	appendEvents(t, events(t, l.Store), 1, 9)
	c.read()
	if err := c.Copy().Reset(); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, events(t, c.Store), 1, 0)
}

// spilled is what the log of a sink should contain. It is used with logs that cut transactions, and over restarts.
type spilled struct {
	log         *Events // nil if it must be opened again
	acked, last uint64
	data        map[uint64]string // also of the events that an Append which failed may have stored
	tried       uint64            // number of the last of these events
	ackTried    uint64            // number up to which an Ack that failed may have acknowledged
}

func (m *spilled) open(t testing.TB, s *Store) {
	t.Helper()
	if m.log != nil {
		return
	}
	m.log = eventsOf(t, s, "sink-0")
	acked, last := m.log.Acked(), m.log.Last()
	switch {
	case last == 0 && (m.acked == m.last || m.ackTried >= m.last): // the numbers begin again
		m.acked, m.last = 0, 0
	case acked != m.acked && acked != m.ackTried || last != m.last && last != m.tried:
		t.Fatalf("events %d to %d, want %d (%d) to %d (%d)", acked+1, last, m.acked+1, m.ackTried+1, m.last, m.tried)
	default:
		m.acked, m.last = acked, last
	}
	m.tried, m.ackTried = 0, 0
}

// step appends or acknowledges events, and compares the log with the model.
func (m *spilled) step(t testing.TB, store *Store, s *script, n int) {
	t.Helper()
	m.open(t, store)
	if s.below(3) > 0 {
		for m.ackTried > 0 { // the caller repeats it
			m.ack(t, m.ackTried)
		}
		first, last := m.last+1, m.last+1+uint64(s.below(6))
		data := func(number uint64) string {
			return fmt.Sprintf("%d of %d%s", number, n, strings.Repeat(".", s.below(200)))
		}
		stored := map[uint64]string{}
		err := m.log.Append(batchOf(t, m.log, first, last, func(number uint64) string {
			stored[number] = data(number)
			return stored[number]
		}), nil)
		if m.tried = last; err == nil {
			m.last, m.tried = last, 0
		} else if !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		maps.Copy(m.data, stored)
	} else {
		m.ack(t, max(m.ackTried, m.acked+uint64(s.below(int(m.last-m.acked)+2))))
	}
	m.check(t)
}

func (m *spilled) ack(t testing.TB, upTo uint64) {
	t.Helper()
	err := m.log.Ack(upTo)
	if err != nil && !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	if upTo <= m.acked {
		return
	}
	if m.tried = 0; err != nil { // an Append that has failed before is undone in any case
		m.ackTried = upTo
		return
	}
	m.acked, m.last, m.ackTried = max(m.acked, upTo), max(m.last, upTo), 0
}

func (m *spilled) check(t testing.TB) {
	t.Helper()
	if m.ackTried > 0 { // the events may be in the file
		return
	}
	want, size := map[uint64]string{}, 0
	for n := m.acked + 1; n <= m.last; n++ {
		want[n] = m.data[n]
		size += sealSize + len(want[n])
	}
	read, lost := readEvents(t, m.log)
	if diff := cmp.Diff(want, read); diff != "" || len(lost) > 0 {
		t.Fatalf("lost %v, %s", lost, diff)
	}
	wantPositions(t, m.log, m.acked+1, m.last)
	if m.log.Size() != int64(size) {
		t.Fatalf("%d bytes, want %d", m.log.Size(), size)
	}
}

func TestWaiting(t *testing.T) {
	s := newLeader(t, Options{}).Store
	waiting := func() string {
		t.Helper()
		sinks, err := s.Waiting()
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(sinks)
		return strings.Join(sinks, " ")
	}
	if got := waiting(); got != "" {
		t.Error(got)
	}
	e := eventsOf(t, s, "spilled-sink")
	appendEvents(t, e, 1, 3)
	if _, _, err := s.Parked("parked").Update(map[string][]byte{"a": []byte("b")}, nil); err != nil {
		t.Fatal(err)
	}
	if got := waiting(); got != "parked spilled-sink" {
		t.Error(got)
	}
	if err := e.Ack(3); err != nil {
		t.Fatal(err)
	}
	if got := waiting(); got != "parked" {
		t.Error(got)
	}
}
