package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/internal/statelog/logtest"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

func newLeader(t *testing.T, o Options) *process {
	t.Helper()
	p := startProcess(t, logtest.NewBroker(true), o).lead()
	for p.refresh() {
	}
	return p
}

// another starts a process that uses the same log.
func (p *process) another(o Options) *process { return startProcess(p.t, p.broker, o) }

// names returns the bucket, source and key of pairs, with a minus if the value is removed.
func names(pairs []statelog.Pair) (names []string) {
	for _, p := range pairs {
		name := strings.Trim(p.Bucket+" "+p.Source, " ") + " "
		if number, ok := eventNumber(p.Key); ok && p.Bucket == bucketEvents {
			name += fmt.Sprint(number)
		} else {
			name += p.Key
		}
		if p.Value == nil {
			name = "-" + name
		}
		names = append(names, name)
	}
	return names
}

// A transaction passes to the log exactly the values that it puts and removes.
func TestPairs(t *testing.T) {
	l := newLeader(t, Options{})
	const store = "deltabridge store"
	a, b := small(t, "ns", "a", "1"), small(t, "ns", "b", "1")
	log := events(t, l.Store)
	of := func(u ledger.Update) func() error {
		u.State = ledger.State{Source: testSource("pods"), ResourceVersion: "5"}
		return func() error { return l.Commit([]ledger.Update{u}, map[string]string{"x": "f"}, nil) }
	}
	for _, step := range []struct {
		name string
		do   func() error
		want []string
	}{
		{
			"a source", of(ledger.Update{Upserts: []*object.Object{b, a}}),
			[]string{"-rows pods ", "rows pods ns/a", "rows pods ns/b", "sources pods", store},
		},
		{
			"rows", of(ledger.Update{Upserts: []*object.Object{a}, Deletes: []string{"ns/b", "ns/none"}}),
			[]string{"-rows pods ns/b", "rows pods ns/a", "sources pods"},
		},
		{
			"a list", of(ledger.Update{Upserts: []*object.Object{b}, ReplaceRows: true}),
			[]string{"-rows pods ", "rows pods ns/b", "sources pods"},
		},
		{"nothing", func() error { return l.Commit(nil, nil, nil) }, nil},
		{"no change", func() error { return l.BeginCluster(testUID) }, nil},
		{"destination", func() error { return l.SetDestination("x", "d") }, []string{store}},
		{"watch", func() error { _, _, err := l.SetWatch("w"); return err }, []string{store}},
		{"positions", func() error { return l.AddPositions(map[string]sinks.Positions{"x": {}}) }, []string{store}},
		{
			"a filter", func() error { return l.Commit(nil, map[string]string{"x": "g"}, nil) },
			[]string{"sources pods", store},
		},
		{
			"events", func() error { return log.Append(batchOf(t, log, 1, 3, eventData), nil) },
			[]string{"events spill-x 1", "events spill-x 2", "events spill-x 3", "events spill-x log"},
		},
		{"an event", func() error { return log.Ack(1) }, []string{"-events spill-x 1", "events spill-x log"}},
		{"all events", func() error { return log.Ack(3) }, []string{"-events spill-x "}},
		{"unknown source", func() error { return l.Forget("none") }, nil},
		{"forget", func() error { return l.Forget("pods") }, []string{"-sources pods", "-rows pods ", store}},
	} {
		l.pairs = nil
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		got := names(l.pairs)
		for i := range got {
			got[i] = strings.Replace(got[i], "sources  ", "sources ", 1)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s: %s", step.name, diff)
		}
	}
}

// If the log does not accept a change, the file is not changed either.
func TestLogFails(t *testing.T) {
	l := newLeader(t, Options{})
	o := small(t, "ns", "a", "1")
	u := ledger.Update{State: ledger.State{Source: testSource("pods"), ResourceVersion: "5"}, Upserts: []*object.Object{o}}
	commit(t, l.Store, map[string]string{"x": "f"}, u)
	log := events(t, l.Store)
	appendEvents(t, log, 1, 9)
	before, at := raw(t, l.Store), l.Copy().Point()
	another := l.another(Options{}).lead()
	u.ResourceVersion, u.Upserts, u.Deletes = "6", nil, []string{"ns/a"}
	for name, change := range map[string]func() error{
		"commit":      func() error { return l.Commit([]ledger.Update{u}, nil, nil) },
		"forget":      func() error { return l.Forget("pods") },
		"destination": func() error { return l.SetDestination("x", "d") },
		"watch":       func() error { _, _, err := l.SetWatch("w"); return err },
		"cluster":     func() error { return l.BeginCluster("other") },
		"append":      func() error { return log.Append(batchOf(t, log, 10, 12, eventData), nil) },
		"acknowledge": func() error { return log.Ack(5) },
	} {
		if err := change(); !errors.Is(err, statelog.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if diff := cmp.Diff(before, raw(t, l.Store)); diff != "" || l.Copy().Point() != at {
		t.Errorf("%s, %+v", diff, l.Copy().Point())
	}
	wantEvents(t, log, 1, 9)
	if stats := l.Stats(); stats.Errors < 6 || stats.Quarantined != 0 {
		t.Errorf("%+v", stats)
	}
	wantSame(t, l.Store, another.Store)
}

// A process ends after the log has a change and before the file has it. The next process continues with the content of
// the log.
func TestCutBetweenLogAndFile(t *testing.T) {
	l := newLeader(t, Options{})
	u := ledger.Update{
		State:   ledger.State{Source: testSource("pods"), ResourceVersion: "5"},
		Upserts: []*object.Object{small(t, "ns", "a", "1")},
	}
	commit(t, l.Store, nil, u)
	l.cut = func() bool { return true }
	u.ResourceVersion, u.Upserts, u.Deletes = "6", nil, []string{"ns/a"}
	if err := l.Commit([]ledger.Update{u}, nil, nil); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	if _, rows := rowsOf(t, l.Store, "pods"); len(rows) != 1 {
		t.Error("the file has the change")
	}
	at := l.Copy().Point()
	l.Close()
	l = l.another(Options{Path: l.opts.Path})
	if l.Copy().Point() != at {
		t.Errorf("%+v, want %+v", l.Copy().Point(), at)
	}
	l.lead()
	if state, rows := rowsOf(t, l.Store, "pods"); state.ResourceVersion != "6" || len(rows) != 0 {
		t.Errorf("at %s with %d rows", state.ResourceVersion, len(rows))
	}
}

// A copy rejects pairs that do not match their checksum or cannot be part of a checkpoint.
func TestApplyChecks(t *testing.T) {
	p := startProcess(t, logtest.NewBroker(true), Options{})
	before := raw(t, p.Store)
	value := seal("k", []byte("....x"))
	good := statelog.Pair{Bucket: bucketRows, Source: "pods", Key: "k", Value: value}
	for name, bad := range map[string]statelog.Pair{
		"checksum": {Bucket: bucketRows, Source: "pods", Key: "k", Value: append(bytes.Clone(value), 'y')},
		"key":      {Bucket: bucketRows, Source: "pods", Key: "l", Value: value},
		"short":    {Bucket: bucketSources, Key: "k", Value: []byte{}},
		"bucket":   {Bucket: "other", Key: "k", Value: value},
		"format":   {Bucket: bucketStore, Key: "format", Value: seal("format", []byte("....2"))},
		"no store": {Bucket: bucketStore, Key: keyStore},
		"no row":   {Bucket: bucketRows, Source: "pods", Value: seal("", []byte("...."))},
		"all rows": {Bucket: bucketRows},
		"event":    {Bucket: bucketEvents, Source: "spill-x", Key: "k", Value: append(bytes.Clone(value), 'y')},
		"no event": {Bucket: bucketEvents, Source: "spill-x", Value: seal("", []byte("...."))},
		"events":   {Bucket: bucketEvents},
		"sources":  {Bucket: bucketSources},
	} {
		err := p.Copy().Apply([]statelog.Pair{good, bad}, statelog.Point{Number: 7})
		if !errors.Is(err, statelog.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if diff := cmp.Diff(before, raw(t, p.Store)); diff != "" || p.Copy().Point().Number != 0 {
		t.Errorf("%s, %+v", diff, p.Copy().Point())
	}
	later := statelog.Pair{Bucket: bucketRows, Source: "pods", Key: "l", Value: seal("l", []byte("....y"))}
	all := []statelog.Pair{good, {Bucket: bucketRows, Source: "pods"}, later, {Bucket: bucketEvents, Source: "spill-x"}}
	if err := p.Copy().Apply(all, statelog.Point{Number: 7}); err != nil {
		t.Error(err)
	}
	before["rows pods l"] = string(later.Value)
	if diff := cmp.Diff(before, raw(t, p.Store)); diff != "" || p.Copy().Point().Number != 7 {
		t.Errorf("%s, %+v", diff, p.Copy().Point())
	}
}

// A row that is damaged on the leader's disk is missing in a new copy, and both processes detect the damage.
func TestDamageIsNotHidden(t *testing.T) {
	l := newLeader(t, Options{})
	for _, name := range []string{"bad", "good"} {
		commit(t, l.Store, nil, ledger.Update{
			State:   ledger.State{Source: testSource(name), ResourceVersion: "5"},
			Upserts: []*object.Object{small(t, "ns", "a", "1"), small(t, "ns", "b", "1")},
		})
	}
	if err := l.file.Update(putRow("bad", "ns/a", []byte("no row"))); err != nil {
		t.Fatal(err)
	}
	l.broker.Remove(func(int64) bool { return true })
	if _, err := l.writer.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for l.refresh() {
	}
	c := l.another(Options{})
	if !c.read() {
		t.Fatal("the copy is not complete")
	}
	for _, s := range []*Store{l.Store, c.Store} {
		if _, _, err := s.Load("bad"); !errors.Is(err, boltfile.ErrDamaged) {
			t.Error(err)
		}
		if _, rows := rowsOf(t, s, "good"); len(rows) != 2 {
			t.Error(rows)
		}
	}
}

// The checkpoint of another cluster is quarantined, and copies are emptied.
func TestOtherClusterWithLog(t *testing.T) {
	l := newLeader(t, Options{})
	c := l.another(Options{})
	commit(t, l.Store, nil, ledger.Update{
		State:   ledger.State{Source: testSource("pods"), ResourceVersion: "5"},
		Upserts: []*object.Object{small(t, "ns", "a", "1")},
	})
	c.read()
	installation := l.Installation()
	l.cut = func() bool { l.cut = nil; return true }
	if err := l.BeginCluster("other"); !errors.Is(err, errCut) || len(kept(t, l.opts.Path)) > 0 {
		t.Fatal(err, kept(t, l.opts.Path))
	}
	if err := l.BeginCluster("third"); err != nil || len(kept(t, l.opts.Path)) != 1 {
		t.Fatal(err, kept(t, l.opts.Path))
	}
	usable := testSource("usable")
	commit(t, l.Store, nil, ledger.Update{State: ledger.State{Source: usable, ResourceVersion: "1"}})
	if c.read(); c.ClusterUID() != "third" || c.Installation() == installation {
		t.Errorf("%q, %q", c.ClusterUID(), c.Installation())
	}
	if states, err := c.States(); err != nil || len(states) != 1 {
		t.Error(states, err)
	}
	wantSame(t, l.Store, c.Store)
}

// If the redaction changes, the copies receive the new rows, even if that takes several attempts. Until then, no row
// leaves the process.
func TestLogFollowsThePolicy(t *testing.T) {
	const rows = 3 * moveBytes / (1 << 20)
	folder := t.TempDir()
	s := newLeader(t, Options{Path: folder})
	u := ledger.Update{State: ledger.State{Source: secretsSource("secrets"), ResourceVersion: "2"}}
	for i := range rows {
		o := secretRow(t, fmt.Sprintf("%02d", i), "1")
		large := bytes.Replace(o.Raw, []byte(`"data":{`), []byte(`"data":{"c":"`+strings.Repeat("y", 1<<20)+`",`), 1)
		u.Upserts = append(u.Upserts, newObject(t, string(large)))
	}
	commit(t, s.Store, nil, u)
	s.Close()
	privacy := testPrivacy(t, "sealed", strings.Repeat("k", 32))
	older := s.another(Options{Privacy: privacy})
	if older.read(); !inFile(t, older.opts.Path) {
		t.Error("a copy differs from the leader")
	}
	l := s.another(Options{Path: folder, Privacy: privacy})
	if pairs, _, _, err := l.Copy().Next("", 1<<30); err == nil || pairs != nil {
		t.Error(names(pairs), err)
	}
	l.writer = statelog.NewWriter(l.broker.Open(), l.Copy(), statelog.Claim{})
	if err := l.writer.Claim(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	n := 0
	l.cut = func() bool { n++; return n == 2 || n == 5 }
	for range 2 {
		if err := l.TakeOver(); !errors.Is(err, errCut) {
			t.Fatal(err)
		}
	}
	if err := l.TakeOver(); err != nil || n < 8 {
		t.Fatal(n, err)
	}
	for l.refresh() {
	}
	if inFile(t, folder) {
		t.Error("the value is in the file")
	}
	for _, c := range []*process{older, l.another(Options{Privacy: privacy}), l.another(Options{})} {
		if !c.read() {
			t.Fatal("the copy is not complete")
		}
		wantSame(t, l.Store, c.Store)
		_, loaded, err := load(c.Store, "secrets")
		if err != nil || len(loaded) != rows {
			t.Fatal(len(loaded), err)
		}
		for _, o := range loaded {
			if bytes.Contains(o.Raw, []byte(marker)) != (c.opts.Privacy.Seal != nil) {
				t.Errorf("%.200s", o.Raw)
			}
		}
		if inFile(t, c.opts.Path) {
			t.Error("the value is in the file of a copy")
		}
	}
}

// Compacting changes neither a byte of a value nor the point.
func TestCompactionOfACopy(t *testing.T) {
	privacy := testPrivacy(t, "sealed", strings.Repeat("k", 32))
	l := newLeader(t, Options{Privacy: privacy})
	commit(t, l.Store, nil, ledger.Update{
		State:   ledger.State{Source: secretsSource("secrets"), ResourceVersion: "2"},
		Upserts: []*object.Object{secretRow(t, "a", "1"), secretRow(t, "b", "1")},
	})
	commit(t, l.Store, nil, ledger.Update{
		State:   ledger.State{Source: testSource("pods"), ResourceVersion: "2"},
		Upserts: pods(t, 0, 6000, 1),
	})
	if err := l.Forget("pods"); err != nil {
		t.Fatal(err)
	}
	before, at, size := raw(t, l.Store), l.Copy().Point(), l.Stats().SizeBytes
	l.Close()
	c := l.another(Options{Path: l.opts.Path, Privacy: privacy})
	if diff := cmp.Diff(before, raw(t, c.Store)); diff != "" || c.Copy().Point() != at || c.Stats().SizeBytes > size/3 {
		t.Errorf("%s, %+v, %d bytes, were %d", diff, c.Copy().Point(), c.Stats().SizeBytes, size)
	}
}

// A file that was changed without a log is no longer a copy.
func TestChangeWithoutLog(t *testing.T) {
	l := newLeader(t, Options{})
	l.Close()
	s := begin(t, l.opts.Path)
	if s.noted().Point.Number == 0 {
		t.Error("opening it was enough")
	}
	if err := s.SetDestination("x", "d"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if at := open(t, l.opts.Path).noted().Point; at != (statelog.Point{}) {
		t.Errorf("%+v", at)
	}
}

// Without the log, only the copy of the last leader can be used.
func TestCopyWithoutLog(t *testing.T) {
	l := newLeader(t, Options{})
	standby, partial := l.another(Options{}), l.another(Options{})
	standby.read()
	if err := partial.Copy().Apply(nil, statelog.Point{Number: 1, Partial: true, Own: true}); err != nil {
		t.Fatal(err)
	}
	next := l.another(Options{})
	alone := func(what string, p *process, want error) {
		t.Helper()
		p.Close()
		s, err := Open(Options{Path: p.opts.Path, NoSync: true})
		if err == nil {
			err = s.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	alone("a standby", standby, errOnlyCopy)
	alone("a part", partial, errOnlyCopy)
	alone("the leader", l, nil)
	next.lead()
	former := startProcess(t, l.broker, Options{Path: l.opts.Path})
	former.read()
	alone("a former leader", former, errOnlyCopy)
	alone("its successor", next, nil)
}

// A file that cannot be used is replaced with the content of the log.
func TestUnusableCopy(t *testing.T) {
	l := newLeader(t, Options{})
	commit(t, l.Store, nil, ledger.Update{
		State:   ledger.State{Source: testSource("pods"), ResourceVersion: "5"},
		Upserts: []*object.Object{small(t, "ns", "a", "1")},
	})
	before, installation := raw(t, l.Store), l.Installation()
	l.Close()
	edit(t, l.path, func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(bucketSources)) })
	l = l.another(Options{Path: l.opts.Path})
	if l.Stats().Quarantined != 1 || l.Installation() != "" {
		t.Errorf("%+v, %q", l.Stats(), l.Installation())
	}
	if l.lead(); l.Installation() != installation {
		t.Errorf("%q, want %q", l.Installation(), installation)
	}
	if diff := cmp.Diff(before, raw(t, l.Store)); diff != "" {
		t.Error(diff)
	}
}
