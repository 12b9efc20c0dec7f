package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// rowsOf gives what a source holds: key -> JSON and manager.
func rowsOf(t testing.TB, s *Store, source string) (ledger.State, map[string]string) {
	t.Helper()
	state, objects, err := load(s, source)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, o := range objects {
		rows[o.Key()] = o.Manager + " " + string(o.Raw)
	}
	return state, rows
}

func rowsFrom(objects ...*object.Object) map[string]string {
	rows := map[string]string{}
	for _, o := range objects {
		rows[o.Key()] = o.Manager + " " + string(o.Raw)
	}
	return rows
}

func commit(t testing.TB, s *Store, sinks map[string]string, updates ...ledger.Update) {
	t.Helper()
	repeat(t, func() error { return s.Commit(updates, sinks, nil) })
}

// errCut stops a transaction behind the log.
var errCut = errors.New("cut")

// repeat does something until nothing cuts it short.
func repeat(t testing.TB, do func() error) {
	t.Helper()
	err := do()
	for errors.Is(err, errCut) {
		err = do()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestCommit(t *testing.T) {
	a1, a2, b1 := small(t, "ns", "a", "1"), small(t, "ns", "a", "2"), small(t, "ns", "b", "1")
	node := newObject(t, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","uid":"u","resourceVersion":"5"}}`)
	nameless := newObject(t, `{"kind":"Odd","metadata":{}}`)
	source := testSource("deployments")
	sinks := map[string]string{"live": "7"}
	tests := []struct {
		name    string
		updates []ledger.Update
		want    []*object.Object
	}{
		{"insert", []ledger.Update{{Upserts: []*object.Object{b1, a1, node}}}, []*object.Object{a1, b1, node}},
		{
			"replace",
			[]ledger.Update{{Upserts: []*object.Object{a1, b1}}, {Upserts: []*object.Object{a2}}},
			[]*object.Object{a2, b1},
		},
		{"last of equal keys", []ledger.Update{{Upserts: []*object.Object{a1, a2}}}, []*object.Object{a2}},
		{
			"delete",
			[]ledger.Update{{Upserts: []*object.Object{a1, b1}}, {Deletes: []string{"ns/a", "ns/none"}}},
			[]*object.Object{b1},
		},
		{
			"deletes come first",
			[]ledger.Update{{Upserts: []*object.Object{a1}, Deletes: []string{"ns/a"}}},
			[]*object.Object{a1},
		},
		{
			"without a name",
			[]ledger.Update{{Upserts: []*object.Object{nameless, a1}, Deletes: []string{""}}},
			[]*object.Object{a1},
		},
		{
			"same again",
			[]ledger.Update{{Upserts: []*object.Object{a1}}, {Upserts: []*object.Object{a1}}},
			[]*object.Object{a1},
		},
	}
	for _, oneByOne := range []bool{false, true} {
		for _, test := range tests {
			t.Run(fmt.Sprintf("%s/%t", test.name, oneByOne), func(t *testing.T) {
				folder := t.TempDir()
				s := begin(t, folder)
				for i := range test.updates {
					test.updates[i].Source, test.updates[i].ResourceVersion, test.updates[i].Sinks = source, "7", sinks
				}
				if oneByOne {
					for _, u := range test.updates {
						commit(t, s, sinks, u)
					}
				} else {
					commit(t, s, sinks, test.updates...)
				}
				want := ledger.State{Source: source, ResourceVersion: "7", Sinks: sinks}
				check := func(s *Store) {
					t.Helper()
					state, rows := rowsOf(t, s, source.Name)
					if diff := cmp.Diff(want, state); diff != "" {
						t.Error(diff)
					}
					if diff := cmp.Diff(rowsFrom(test.want...), rows); diff != "" {
						t.Error(diff)
					}
				}
				check(s)
				s.Close()
				check(open(t, folder))
			})
		}
	}
}

func TestObjectsComeBackAsTheyWere(t *testing.T) {
	random := noise(0, 40_000)
	objects := []*object.Object{
		newObject(
			t,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","namespace":"n","uid":"u","resourceVersion":"9",`+
				`"ownerReferences":[{"uid":"o1"},{"uid":"o2"}],"managedFields":[{"manager":"kubectl \u00e9","time":"2026-01-01T00:00:00Z"}]},"spec":{}}`,
		),
		newObject(
			t,
			fmt.Sprintf(`{"kind":"Big","metadata":{"name":"compressible"},"data":%q}`, strings.Repeat("abc ", 200_000)),
		),
		newObject(t, fmt.Sprintf(`{"kind":"Big","metadata":{"name":"random"},"data":"%x"}`, random)),
		newObject(
			t,
			fmt.Sprintf(`{"kind":"Odd","metadata":{"name":"bytes"},"data":"%s"}`, bytes.ReplaceAll(random, []byte{'"'}, nil)),
		),
		newObject(t, `{"metadata":{"name":"x"}}`),
	}
	s := begin(t, t.TempDir())
	commit(
		t,
		s,
		nil,
		ledger.Update{State: ledger.State{Source: testSource("all"), ResourceVersion: "1"}, Upserts: objects},
	)
	_, loaded, err := load(s, "all")
	if err != nil || len(loaded) != len(objects) {
		t.Fatal(len(loaded), err)
	}
	byKey := map[string]*object.Object{}
	for _, o := range loaded {
		byKey[o.Key()] = o
	}
	for _, o := range objects {
		got := byKey[o.Key()]
		if got == nil || got.Identity != o.Identity || !bytes.Equal(got.Raw, o.Raw) || !cmp.Equal(got.Owners, o.Owners) {
			t.Errorf("%s: got %+v, want %+v", o.Key(), got, o.Identity)
		}
	}
}

// A restart that changes nothing writes nothing, so it succeeds on a full disk.
func TestARestartWritesNothing(t *testing.T) {
	folder := t.TempDir()
	for restart := range 2 {
		s := begin(t, folder)
		do := func(_ string, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		_, _, err := s.SetWatch("pods")
		do("", err)
		do("", s.SetDestination("x", "stream"))
		do("", s.Forget("unknown"))
		if commits := s.Stats().Commits; restart == 1 && commits > 0 {
			t.Errorf("%d commits", commits)
		}
		s.Close()
	}
}

// Each changed configuration has an epoch of its own, even if it is changed back, and so has a new file. A restart has
// none.
func TestEpochs(t *testing.T) {
	folder := t.TempDir()
	epochs := map[string]bool{}
	last := ""
	for n, c := range []struct {
		watch, filter string
		isNew         bool
	}{
		{"pods", "all", true},
		{"pods", "all", false},
		{"nodes", "all", true},
		{"pods", "all", true},
		{"pods", "some", true},
		{"pods", "some", false},
		{"pods", "all", true},
	} {
		s := begin(t, folder)
		commit(t, s, map[string]string{"sink": c.filter})
		_, epoch, err := s.SetWatch(c.watch)
		if isNew := epoch != last && !epochs[epoch]; err != nil || epoch == "" || isNew != c.isNew {
			t.Errorf("start %d: epoch %q after %q, %v", n, epoch, last, err)
		}
		last, epochs[epoch] = epoch, true
		s.Close()
		for began := NewChange(); NewChange() == began; { // names have milliseconds
			runtime.Gosched()
		}
	}
	if _, epoch, err := begin(t, t.TempDir()).SetWatch("pods"); err != nil || epochs[epoch] {
		t.Errorf("a new file has the epoch %q, %v", epoch, err)
	}
}

// Each epoch is greater than the one before, even if the process that began it has a clock that is ahead.
func TestEpochsGrow(t *testing.T) {
	s := begin(t, t.TempDir())
	last := strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 36)
	if err := s.note(func(r *storeRecord) { r.Epoch = last }); err != nil {
		t.Fatal(err)
	}
	for n, change := range []func(){
		func() { commit(t, s, map[string]string{"sink": "some"}) },
		func() { commit(t, s, map[string]string{"sink": "all"}) },
		func() { _, _, _ = s.SetWatch("pods") },
	} {
		if change(); s.record.Epoch <= last {
			t.Errorf("change %d: epoch %q after %q", n, s.record.Epoch, last)
		}
		last = s.record.Epoch
	}
}

func TestSources(t *testing.T) {
	folder := t.TempDir()
	s := begin(t, folder)
	pods, nodes := testSource(
		"pods in team-a",
	), ledger.Source{
		Name:          "nodes",
		LabelSelector: "a=b",
		FieldSelector: "c=d",
		Namespace:     "n",
	}
	a := small(t, "ns", "a", "1")
	commit(
		t,
		s,
		map[string]string{},
		ledger.Update{
			State:   ledger.State{Source: pods, ResourceVersion: "10", Sinks: map[string]string{"x": "11"}},
			Upserts: []*object.Object{a},
		},
		ledger.Update{State: ledger.State{Source: nodes, ResourceVersion: "9"}, Upserts: []*object.Object{a}},
	)
	s.Close()
	s = open(t, folder)
	states, err := s.States()
	if err != nil {
		t.Fatal(err)
	}
	want := []ledger.State{
		{Source: nodes, ResourceVersion: "9"},
		{Source: pods, ResourceVersion: "10", Sinks: map[string]string{"x": "11"}},
	}
	if diff := cmp.Diff(want, states); diff != "" {
		t.Error(diff)
	}
	if err := errors.Join(s.Forget("nodes"), s.Forget("never there")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if states, err = s.States(); err != nil || len(states) != 1 || states[0].Source != pods {
			t.Errorf("after Forget: %v %v", states, err)
		}
		if state, rows := rowsOf(t, s, "nodes"); len(rows) != 0 || state.Source.Name != "" {
			t.Error("a forgotten source has rows")
		}
		s.Close()
		s = open(t, folder)
	}
	// It begins from nothing when it comes back.
	commit(t, s, nil, ledger.Update{State: ledger.State{Source: nodes, ResourceVersion: "20"}})
	if _, rows := rowsOf(t, s, "nodes"); len(rows) != 0 {
		t.Error("a source that came back has rows")
	}
	if err := s.Commit([]ledger.Update{{}}, nil, nil); err == nil {
		t.Error("a source without a name was committed")
	}
}

func TestSinks(t *testing.T) {
	folder := t.TempDir()
	s := begin(t, folder)
	pods, nodes := testSource("pods"), testSource("nodes")
	both := map[string]string{"a": "5", "b": "5"}
	commit(
		t,
		s,
		map[string]string{"a": "rules of a", "b": ""},
		ledger.Update{
			State: ledger.State{Source: pods, ResourceVersion: "5", Sinks: both},
		},
		ledger.Update{State: ledger.State{Source: nodes, ResourceVersion: "5", Sinks: both}},
	)
	// b is removed by a commit of one source, and is gone from the other too.
	commit(
		t,
		s,
		map[string]string{"a": "rules of a"},
		ledger.Update{State: ledger.State{Source: pods, ResourceVersion: "6", Sinks: map[string]string{"a": "6"}}},
	)
	commit(t, s, map[string]string{"a": "other rules", "b": "back"})
	commit(
		t,
		s,
		nil,
		ledger.Update{State: ledger.State{Source: pods, ResourceVersion: "7", Sinks: map[string]string{"a": "7"}}},
	)
	for range 2 {
		got := map[string]map[string]string{}
		states, err := s.States()
		if err != nil {
			t.Fatal(err)
		}
		for _, state := range states {
			got[state.Source.Name] = state.Sinks
		}
		if diff := cmp.Diff(map[string]map[string]string{"pods": {"a": "7"}, "nodes": {"a": "5"}}, got); diff != "" {
			t.Error(diff)
		}
		for sink, want := range map[string]string{"a": "other rules true", "b": "back true", "c": " false"} {
			text, known := s.noted().Sinks[sink]
			if got := fmt.Sprint(text, " ", known); err != nil || got != want {
				t.Errorf("%s: %s %v, want %s", sink, got, err, want)
			}
		}
		s.Close()
		s = open(t, folder)
	}
}

func TestAfterClose(t *testing.T) {
	s := open(t, t.TempDir())
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	_, _, loadErr := load(s, "x")
	_, statesErr := s.States()
	for _, err := range []error{loadErr, statesErr, s.BeginCluster("x"), s.SetDestination("x", "y")} {
		if !errors.Is(err, boltfile.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	s.Stats()
}

func TestModes(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "a", "b")
	s := begin(t, folder)
	commit(t, s, map[string]string{"a": ""})
	for path, want := range map[string]os.FileMode{folder: 0o700 | os.ModeDir, s.path: 0o600, filepath.Join(folder, lockName): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v %v, want %v", path, info.Mode(), err, want)
		}
	}
	if err := quarantine(s); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(s.path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

func TestStats(t *testing.T) {
	start := time.Now()
	s := begin(t, t.TempDir())
	commit(
		t,
		s,
		nil,
		ledger.Update{
			State:   ledger.State{Source: testSource("pods")},
			Upserts: []*object.Object{small(t, "n", "a", "1"), small(t, "n", "b", "1")},
		},
	)
	commit(
		t,
		s,
		nil,
		ledger.Update{State: ledger.State{Source: testSource("nodes")}, Upserts: []*object.Object{small(t, "", "c", "1")}},
	)
	if err := s.Commit([]ledger.Update{{}}, nil, nil); err == nil {
		t.Fatal("expected an error")
	}
	stats := s.Stats()
	if stats.SizeBytes < 16<<10 || stats.LastCommit.Before(start) {
		t.Errorf("%+v", stats)
	}
	stats.SizeBytes, stats.LastCommit = 0, time.Time{}
	if diff := cmp.Diff(Stats{Commits: 3, Errors: 1}, stats); diff != "" {
		t.Error(diff)
	}
}

func TestConcurrentUse(t *testing.T) {
	s := begin(t, t.TempDir())
	done := make(chan error, 4)
	for range 2 {
		go func() {
			for range 30 {
				if _, _, err := s.Load("pods"); err != nil {
					done <- err
					return
				}
				s.Stats()
			}
			_, err := s.States()
			done <- err
		}()
	}
	go func() {
		for range 3 {
			if err := quarantine(s); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	o := small(t, "n", "a", "1")
	go func() {
		for i := range 30 {
			if err := s.Commit(
				[]ledger.Update{
					{State: ledger.State{Source: testSource("pods"), ResourceVersion: fmt.Sprint(i)}, Upserts: []*object.Object{o}},
				},
				nil, nil,
			); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
