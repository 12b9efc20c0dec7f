package journals

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// memory has the records of all replicas, as the API server has.
type memory struct {
	all  map[string]string
	down error
}

func (m *memory) Put(_ context.Context, journal, text string) error {
	if m.down == nil {
		m.all[journal] = text
	}
	return m.down
}

func (m *memory) All(context.Context) (map[string]string, error) { return maps.Clone(m.all), m.down }

func (m *memory) Remove(_ context.Context, journal, text string) error {
	if m.down == nil && m.all[journal] == text {
		delete(m.all, journal)
	}
	return m.down
}

const period = 10 * time.Second

// replica is a replica with a journal.
type replica struct {
	*Keeper

	last, delivered uint64
	onDisk          bool // events wait outside the journal
	leads           bool
	sinkAway        bool
	gaps            []string
	log             bytes.Buffer
}

func newReplica(m *memory, name string) *replica {
	r := &replica{}
	r.Keeper = NewKeeper(Options{
		Records: m, Replica: name, Journal: "J" + name, Period: period,
		Last: func() uint64 { return r.last }, Delivered: func() (uint64, bool) { return r.delivered, !r.onDisk },
		Leads: func() bool { return r.leads },
		Announce: func(id, _ string) bool {
			if !r.sinkAway && !slices.Contains(r.gaps, id) {
				r.gaps = append(r.gaps, id)
			}
			return !r.sinkAway
		},
		Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
	})
	return r
}

// begin begins after a number of periods.
func (r *replica) begin(t *testing.T, periods int) {
	t.Helper()
	if err := r.Keeper.begin(t.Context(), start.Add(time.Duration(periods)*period)); err != nil {
		t.Fatal(err)
	}
}

// newPair returns two replicas that have begun. The second one leads.
func newPair(t *testing.T) (m *memory, a, b *replica) {
	t.Helper()
	m = &memory{all: map[string]string{}}
	a, b = newReplica(m, "a"), newReplica(m, "b")
	a.begin(t, 0)
	b.begin(t, 0)
	b.leads = true
	return m, a, b
}

// steps lets time pass for replicas, beginning at a number of periods, and returns the number at which it ended.
func steps(t *testing.T, from, count int, all ...*replica) int {
	t.Helper()
	for n := range count {
		for _, r := range all {
			if err := r.step(t.Context(), start.Add(time.Duration(from+n)*period)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return from + count
}

var start = time.Date(2026, 11, 27, 6, 0, 0, 0, time.UTC)

func (r *replica) checkGaps(t *testing.T, want int) {
	t.Helper()
	if len(r.gaps) != want {
		t.Errorf("%s has announced %v, want %d gaps", r.Replica, r.gaps, want)
	}
}

func (m *memory) check(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(m.all))); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// The leader announces a replica that is gone, once, and removes its record only when the gap event is delivered. If
// the leader is lost before, the next one announces both.
func TestGone(t *testing.T) {
	m, a, b := newPair(t)
	c := newReplica(m, "c")
	c.begin(t, 0)
	b.sinkAway = true
	now := steps(t, 0, 3, a, b, c)
	now = steps(t, now, lapsePeriods-1, b, c) // a is gone
	m.check(t, "Ja", "Jb", "Jc")
	now = steps(t, now, 3, b, c)
	b.checkGaps(t, 0) // not delivered
	m.check(t, "Ja", "Jb", "Jc")
	c.checkGaps(t, 0)
	c.leads = true // b is gone too
	now = steps(t, now, 1, c)
	c.checkGaps(t, 1)
	m.check(t, "Jb", "Jc")
	now = steps(t, now, lapsePeriods, c)
	c.checkGaps(t, 2)
	m.check(t, "Jc")
	steps(t, now, 2*lapsePeriods, c)
	c.checkGaps(t, 2)
	if !strings.HasPrefix(c.gaps[0], "Ja.") || !strings.HasPrefix(c.gaps[1], "Jb.") {
		t.Errorf("gaps %v", c.gaps)
	}
}

// A replica that returns before its record has lapsed is not announced. One that returns later creates its record
// again, so that it can be announced again.
func TestReturns(t *testing.T) {
	m, a, b := newPair(t)
	now := steps(t, 0, 2, a, b)
	now = steps(t, now, lapsePeriods-1, b)
	again := newReplica(m, "a")
	again.begin(t, now)
	now = steps(t, now, lapsePeriods, b)
	b.checkGaps(t, 0)
	now = steps(t, now, 1, b)
	b.checkGaps(t, 1)
	m.check(t, "Jb")
	again.last, again.delivered = 5, 5
	now = steps(t, now, 2, again, b)
	m.check(t, "Ja", "Jb")
	steps(t, now, lapsePeriods+1, b)
	b.checkGaps(t, 2)
}

// A record that is renewed while it is announced stays.
func TestRenewedMeanwhile(t *testing.T) {
	m, a, b := newPair(t)
	b.Announce = func(string, string) bool {
		if err := a.renew(t.Context(), start.Add(period)); err != nil {
			t.Fatal(err)
		}
		return true
	}
	steps(t, 0, lapsePeriods+1, b)
	m.check(t, "Ja", "Jb")
}

// While the API server is unavailable, nobody can renew a record, and nobody is taken for gone.
func TestNoAPIServer(t *testing.T) {
	m, a, b := newPair(t)
	now := steps(t, 0, 2, a, b)
	m.down = errors.New("down")
	for range 10 * lapsePeriods {
		now++
		if err := b.step(t.Context(), start.Add(time.Duration(now)*period)); !errors.Is(err, m.down) {
			t.Fatal(err)
		}
	}
	m.down = nil
	now = steps(t, now, 2, b) // before a
	steps(t, now, 2*lapsePeriods, a, b)
	b.checkGaps(t, 0)
}

// Nothing may be accepted before the record exists, which an earlier process with the same journal has begun.
func TestBegin(t *testing.T) {
	since := time.Now().Add(-time.Hour).Round(0)
	m := &memory{all: map[string]string{"Ja": Record{Replica: "a", Since: since}.String()}}
	a := newReplica(m, "a")
	a.last, a.delivered = 7, 5
	if !a.Begin(t.Context()) {
		t.Fatal("it has not begun")
	}
	if got := parse(m.all["Ja"]); !got.Since.Equal(since) || got.Renewed.IsZero() {
		t.Errorf("record %+v, want since %v", got, since)
	}
	m.down = errors.New("down")
	ended, end := context.WithCancel(t.Context())
	end()
	b := newReplica(m, "b")
	if b.Begin(ended) {
		t.Error("it has begun without a record")
	}
	if !strings.Contains(b.log.String(), "down") {
		t.Errorf("log: %s", b.log.String())
	}
}

// Since when events may be undelivered.
func TestMark(t *testing.T) {
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	k := newMark(at(0))
	for n, step := range []struct {
		now             int
		last, delivered uint64
		ok              bool
		want            int
	}{
		{1, 10, 0, true, 0},
		{2, 20, 9, true, 0},
		{3, 30, 10, true, 1}, // what was there at 1 is delivered
		{4, 40, 29, true, 1},
		{5, 50, 50, false, 1}, // some are on disk
		{6, 60, 30, true, 3},
		{7, 60, 60, true, 6},
		{8, 60, 60, true, 7},
	} {
		if got := k.undeliveredSince(at(step.now), step.last, step.delivered, step.ok); !got.Equal(at(step.want)) {
			t.Errorf("step %d: since %v, want %ds", n, got.Sub(start), step.want)
		}
	}
}

// A replica that stops removes its record only if everything is delivered.
func TestEnd(t *testing.T) {
	for name, test := range map[string]struct {
		last, delivered uint64
		onDisk, stays   bool
	}{
		"all delivered": {last: 5, delivered: 5},
		"some left":     {last: 5, delivered: 4, stays: true},
		"some spilled":  {last: 5, delivered: 5, onDisk: true, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			_, a, b := newPair(t)
			a.last, a.delivered, a.onDisk = test.last, test.delivered, test.onDisk
			now := steps(t, 0, 2, a, b)
			a.End(t.Context())
			steps(t, now, lapsePeriods+2, b)
			if want := map[bool]int{true: 1}[test.stays]; len(b.gaps) != want {
				t.Errorf("%d gaps, want %d", len(b.gaps), want)
			}
		})
	}
}

// The gap event says who is gone, and what is lost.
func TestLost(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	got := lost(parse(Record{Replica: "bridge-1", Since: at, Renewed: at.Add(time.Minute)}.String()))
	for _, want := range []string{"bridge-1", "since 2026-01-02T03:04:05Z", "last seen at 2026-01-02T03:05:05Z"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if got := parse("{"); got.Replica != "unknown" {
		t.Error(fmt.Sprint(got))
	}
}
