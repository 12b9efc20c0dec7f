package checkpoint

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/deltabridge/deltabridge/test/scale"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// model is the expected content of a store, in maps.
type model struct {
	sinks   map[string]string
	sources map[string]*modelSource
}

type modelSource struct {
	version string
	sinks   map[string]string
	rows    map[string]string
}

// script converts bytes to choices.
type script struct{ b []byte }

func (s *script) below(n int) int {
	if len(s.b) == 0 {
		return 0
	}
	v := int(s.b[0]) % n
	s.b = s.b[1:]
	return v
}

// update returns a random update, and applies it to the model.
func (m *model) update(t testing.TB, s *script, n int) ledger.Update {
	name := fmt.Sprintf("source-%d", s.below(3))
	u := ledger.Update{
		State: ledger.State{Source: testSource(name), ResourceVersion: fmt.Sprint(n), Sinks: map[string]string{}},
	}
	for sink := range m.sinks {
		if s.below(2) == 0 {
			u.Sinks[sink] = fmt.Sprint(n + 1)
		}
	}
	source := m.sources[name]
	if source == nil {
		source = &modelSource{rows: map[string]string{}}
		m.sources[name] = source
	}
	source.version, source.sinks = u.ResourceVersion, maps.Clone(u.Sinks)
	for range s.below(20) {
		key := fmt.Sprintf("ns/%02d", s.below(60))
		u.Deletes = append(u.Deletes, key)
		delete(source.rows, key)
	}
	for range s.below(40) {
		o := pod(t, s.below(4), n)
		if s.below(2) == 0 {
			o = small(t, "ns", fmt.Sprintf("%02d", s.below(60)), fmt.Sprint(n))
		}
		o.Manager = []string{"", "kubectl", "a manager of some length"}[s.below(3)]
		u.Upserts = append(u.Upserts, o)
		source.rows[o.Key()] = o.Manager + " " + string(o.Raw)
	}
	return u
}

// list returns a random list that replaces all rows of a source.
func (m *model) list(t testing.TB, store *Store, s *script, n int) {
	u := m.update(t, s, n)
	rows := m.sources[u.Source.Name].rows
	clear(rows)
	first := ledger.Update{State: ledger.State{Source: u.Source}, ReplaceRows: true}
	for _, o := range u.Upserts {
		commit(t, store, nil, first)
		first.ReplaceRows, first.Upserts = false, []*object.Object{o}
		rows[o.Key()] = o.Manager + " " + string(o.Raw)
	}
	u.Upserts, u.Deletes = nil, nil
	commit(t, store, nil, first, u)
}

// commit commits random updates.
func (m *model) commit(t testing.TB, store *Store, s *script, n int) {
	var sinks map[string]string
	if s.below(4) == 0 {
		sinks = map[string]string{}
		for i := range s.below(4) {
			sinks[fmt.Sprintf("sink-%d", i)] = fmt.Sprint(s.below(3))
		}
		m.sinks = sinks
		for _, source := range m.sources {
			maps.DeleteFunc(source.sinks, func(sink, _ string) bool { _, ok := sinks[sink]; return !ok })
		}
	}
	var updates []ledger.Update
	for range s.below(4) {
		updates = append(updates, m.update(t, s, n))
	}
	commit(t, store, sinks, updates...)
}

// forget removes a source, if one exists.
func (m *model) forget(t testing.TB, store *Store, s *script) {
	if names := slices.Sorted(maps.Keys(m.sources)); len(names) > 0 {
		gone := names[s.below(len(names))]
		delete(m.sources, gone)
		repeat(t, func() error { return store.Forget(gone) })
	}
}

func (m *model) check(t testing.TB, store *Store) {
	t.Helper()
	states, err := store.States()
	if err != nil {
		t.Fatal(err)
	}
	if len(states) != len(m.sources) {
		t.Fatalf("%d sources, want %d", len(states), len(m.sources))
	}
	for _, state := range states {
		want := m.sources[state.Source.Name]
		loaded, got := rowsOf(t, store, state.Source.Name)
		if diff := cmp.Diff(loaded, state); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(
			ledger.State{Source: testSource(state.Source.Name), ResourceVersion: want.version, Sinks: want.sinks},
			state,
			cmpopts.IgnoreFields(ledger.State{}, "Refilters"),
		); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(want.rows, got); diff != "" {
			t.Fatal(diff)
		}
	}
	for i := range 4 {
		sink := fmt.Sprintf("sink-%d", i)
		want, wantKnown := m.sinks[sink]
		if got, known := store.noted().Sinks[sink]; got != want || known != wantKnown {
			t.Fatalf("%s: %q %t", sink, got, known)
		}
	}
	if stats := store.Stats(); stats.Quarantined+stats.Errors != 0 && store.opts.Log == nil {
		t.Fatalf("%+v", stats)
	}
}

// run executes the script, and compares the store with the model after each step.
func (m *model) run(t *testing.T, s *script) {
	folder := t.TempDir()
	store := begin(t, folder)
	for n := 0; len(s.b) > 0; n++ {
		switch s.below(10) {
		case 0:
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			store = begin(t, folder)
		case 1:
			m.forget(t, store, s)
		case 2:
			m.list(t, store, s, n)
		default:
			m.commit(t, store, s, n)
		}
		m.check(t, store)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	m.check(t, begin(t, folder))
}

func newModel() *model { return &model{sinks: map[string]string{}, sources: map[string]*modelSource{}} }

func TestModel(t *testing.T) {
	for seed := range byte(scale.Of(2, 8)) {
		newModel().run(t, &script{noise(seed, 6000)})
	}
}

func FuzzModel(f *testing.F) {
	f.Add([]byte{3, 0, 3, 0, 1, 2, 1, 0, 0, 0, 0, 5, 1, 1, 1, 0, 3, 1, 2, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) { newModel().run(t, &script{b}) })
}
