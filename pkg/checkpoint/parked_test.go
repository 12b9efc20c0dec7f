package checkpoint

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/parked"
)

func openParked(t testing.TB, s *Store) *parked.Store {
	t.Helper()
	p, err := parked.Open(parked.Options{Storage: s.Parked("x"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// park parks events that are named after their number, in turn for two parts of the destination.
func park(t testing.TB, p *parked.Store, from, to, size int) {
	t.Helper()
	var all []parked.Parking
	for n := from; n <= to; n++ {
		m := &event.Message{ID: fmt.Sprint(n), Data: []byte(strings.Repeat("x", size))}
		all = append(all, parked.Parking{Destination: []string{"a", "a/1"}[n%2], Message: m})
	}
	repeat(t, func() error { return p.Park(all) })
}

// wantParked checks that exactly these events are parked, in their order.
func wantParked(t testing.TB, p *parked.Store, from, to int) {
	t.Helper()
	for part, destination := range []string{"a", "a/1"} {
		want, got := []string{}, []string{}
		for n := from; n <= to; n++ {
			if n%2 == part {
				want = append(want, fmt.Sprint(n))
			}
		}
		head, err := p.Head(destination, 1000, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range head {
			got = append(got, e.Message.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s: %s", destination, diff)
		}
		for _, q := range p.Queues() {
			if q.Destination == destination && q.Events != len(want) {
				t.Fatalf("%+v, want %d events", q, len(want))
			}
		}
	}
}

// deliver removes the oldest event of each part.
func deliver(t testing.TB, p *parked.Store) {
	t.Helper()
	for _, q := range p.Queues() {
		repeat(t, func() error { return p.Remove(q.Destination, []uint64{q.First}) })
	}
}

// Parked events are in the state log: a process that takes over has them in their order. Transactions that are only in
// the log are no exception.
func TestParkedEventsAreTakenOver(t *testing.T) {
	l := newLeader(t, Options{})
	c := l.another(Options{})
	n := 0
	l.cut = func() bool { n++; return n%3 == 0 }
	p := openParked(t, l.Store)
	for from := 0; from < 100; from += 10 {
		park(t, p, from, from+9, 100)
		deliver(t, p)
		wantParked(t, p, 2*(from/10+1), from+9)
	}
	repeat(t, func() error { return l.Commit(nil, nil, nil) })
	l.broker.Remove(func(int64) bool { return true })
	if _, err := l.writer.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for l.refresh() {
	}
	for _, follower := range []*process{c, l.another(Options{})} {
		if !follower.read() {
			t.Fatal("the copy is not complete")
		}
		wantSame(t, l.Store, follower.Store)
		follower.lead()
		wantParked(t, openParked(t, follower.Store), 20, 99)
	}
}

// Many bytes are parked in several transactions. If one of them fails, none of the events counts.
func TestParkingMuch(t *testing.T) {
	l := newLeader(t, Options{})
	p := openParked(t, l.Store)
	commits := l.Stats().Commits
	park(t, p, 0, 39, 100<<10)
	if n := l.Stats().Commits - commits; n != 4 {
		t.Errorf("%d transactions", n)
	}
	wantParked(t, p, 0, 39)
	n := 0
	l.cut = func() bool { n++; return n == 3 }
	err := p.Park([]parked.Parking{{Destination: "b", Message: &event.Message{Data: make([]byte, 1<<20)}}, {
		Destination: "a", Message: &event.Message{Data: make([]byte, 1<<20)},
	}, {Destination: "a", Message: &event.Message{Data: make([]byte, 1<<20)}}})
	if err == nil {
		t.Fatal("no error")
	}
	wantParkedBytes := func(p *parked.Store) {
		t.Helper()
		if bytes, _ := p.Bytes(); bytes < 40*100<<10 || bytes > 41*100<<10 {
			t.Errorf("%d bytes", bytes)
		}
	}
	wantParkedBytes(p)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p = openParked(t, l.Store)
	wantParked(t, p, 0, 39)
	wantParkedBytes(p)
}

// That events are lost is in the state log until the sink was sent that, or is removed.
func TestALossIsTakenOver(t *testing.T) {
	l := newLeader(t, Options{})
	commit(t, l.Store, map[string]string{"x": "f", "y": "f"})
	at := time.Now()
	for _, sink := range []string{"x", "y"} {
		if err := l.SetLost(sink, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.SetLost("y", time.Time{}); err != nil {
		t.Fatal(err)
	}
	next := l.another(Options{})
	if !next.read() {
		t.Fatal("the copy is not complete")
	}
	if x, y := next.LostAt("x"), next.LostAt("y"); !x.Equal(at) || !y.IsZero() {
		t.Errorf("lost at %v and %v", x, y)
	}
	next.lead()
	commit(t, next.Store, map[string]string{"y": "f"})
	commit(t, next.Store, map[string]string{"x": "f"})
	if at := next.LostAt("x"); !at.IsZero() {
		t.Errorf("a sink that was removed and added lost events at %v", at)
	}
}

// damageParked damages the first parked event.
func damageParked(t testing.TB, s *Store) {
	t.Helper()
	err := s.file.Update(func(tx *bbolt.Tx) error {
		events := tx.Bucket([]byte(bucketEvents)).Bucket([]byte(parkedOf("x")))
		key, _ := events.Cursor().First()
		return events.Put(key, []byte("damaged"))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The loss of a parked event that is damaged on the leader's disk is noticed by the next leader too, if that has read a
// log that was written after the damage, or receives what the log lacked.
func TestADamagedParkedEventInTheLog(t *testing.T) {
	for name, write := range map[string]func(l *process){
		"in a pass": func(l *process) {
			damageParked(t, l.Store)
			l.broker.Remove(func(int64) bool { return true })
			if _, err := l.writer.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			for l.refresh() {
			}
		},
		"after an outage": func(l *process) {
			l.away = true
			park(t, openParked(t, l.Store), 6, 6, 10)
			damageParked(t, l.Store)
			for l.away = false; l.isDetached(); {
				l.send(1<<20, func() bool { return true })
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeader(t, Options{})
			if name == "in a pass" {
				park(t, openParked(t, l.Store), 0, 5, 10)
			}
			write(l)
			next := l.another(Options{})
			if !next.read() {
				t.Fatal("the copy is not complete")
			}
			next.lead()
			p := openParked(t, next.Store)
			if _, err := p.Head("a", 10, 1000); err != nil {
				t.Fatal(err)
			}
			if _, lost := p.Bytes(); lost != 1 {
				t.Errorf("%d events are lost", lost)
			}
		})
	}
}

// A damaged event is lost without others. The events of a sink that is removed are removed with it.
func TestDamagedAndRemovedParkedEvents(t *testing.T) {
	s := begin(t, t.TempDir())
	commit(t, s, map[string]string{"x": "f"})
	park(t, openParked(t, s), 0, 5, 10)
	damageParked(t, s)
	p := openParked(t, s)
	wantHead := func(want ...string) {
		t.Helper()
		var got []string
		head, err := p.Head("a", 10, 1000)
		for _, e := range head {
			got = append(got, e.Message.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Error(diff, err)
		}
	}
	wantHead("2", "4")
	if bytes, lost := p.Bytes(); lost != 1 || bytes != 5*(bytes/5) || bytes == 0 || p.Queues()[0].Destination != "a/1" {
		t.Errorf("%d bytes, %d lost, %+v", bytes, lost, p.Queues())
	}
	commit(t, s, map[string]string{"y": "f"})
	p = openParked(t, s)
	if wantHead(); !p.Empty() {
		t.Errorf("%+v", p.Queues())
	}
}
