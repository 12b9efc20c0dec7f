package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/test/scale"
)

func put(t testing.TB, st *Stage, objects ...*object.Object) {
	t.Helper()
	for _, o := range objects {
		if err := st.Put(o); err != nil {
			t.Fatal(err)
		}
	}
}

func finish(t testing.TB, st *Stage, source string) {
	t.Helper()
	if err := st.Finish(ledger.Update{Source: testSource(source), ResourceVersion: "9"}, map[string]string{"live": ""}); err != nil {
		t.Fatal(err)
	}
}

// large is an object that a stage can't hold four of.
func large(t testing.TB, name, version string) *object.Object {
	t.Helper()
	return newObject(t, fmt.Sprintf(`{"kind":"ConfigMap","metadata":{"name":%q,"namespace":"ns","uid":"u-%s","resourceVersion":%q},"data":{"n":%q}}`,
		name, name, version, strings.Repeat(version, stageBytes/3)))
}

func TestStage(t *testing.T) {
	folder := t.TempDir()
	s := begin(t, folder)
	kept := small(t, "ns", "kept", "1")
	commit(t, s, map[string]string{"live": ""}, ledger.Update{Source: testSource("other"), ResourceVersion: "5", Upserts: []*object.Object{kept}})

	a, b, c, d := large(t, "a", "1"), large(t, "b", "2"), large(t, "c", "3"), small(t, "ns", "d", "4")
	newer := small(t, "ns", "a", "5")
	stage := s.Stage(ledger.Source{Name: "pods"})
	put(t, stage, a, b, c, d, newer)
	if err := stage.Remove(b); err != nil {
		t.Fatal(err)
	}
	if state, rows := rowsOf(t, s, "pods"); state.ResourceVersion != "" || len(rows) > 0 {
		t.Error("a part of a list counts")
	}
	finish(t, stage, "pods")
	for range 2 {
		state, rows := rowsOf(t, s, "pods")
		if state.ResourceVersion != "9" {
			t.Errorf("at %q", state.ResourceVersion)
		}
		if diff := cmp.Diff(rowsFrom(newer, c, d), rows); diff != "" {
			t.Error(diff)
		}
		if _, rows := rowsOf(t, s, "other"); len(rows) != 1 {
			t.Error("another source lost its rows")
		}
		if got := s.Stats(); got.Rows != 4 || got.Sources != 2 || got.Damaged != 0 {
			t.Errorf("stats: %+v", got)
		}
		s.Close()
		s = open(t, folder)
	}
}

// A list takes the place of all rows that there were.
func TestAListReplacesRows(t *testing.T) {
	s := begin(t, t.TempDir())
	commit(t, s, nil, ledger.Update{Source: testSource("pods"), ResourceVersion: "5", Upserts: []*object.Object{small(t, "ns", "a", "1"), small(t, "ns", "b", "1")}})
	b := small(t, "ns", "b", "2")
	for _, want := range []map[string]string{rowsFrom(b), {}} {
		stage := s.Stage(testSource("pods"))
		if len(want) > 0 {
			put(t, stage, b)
		}
		finish(t, stage, "pods")
		state, rows := rowsOf(t, s, "pods")
		if diff := cmp.Diff(want, rows); diff != "" || state.ResourceVersion != "9" || s.Stats().Rows != int64(len(want)) {
			t.Errorf("at %q: %s", state.ResourceVersion, diff)
		}
	}
}

func TestAnEmptyListIsFinished(t *testing.T) {
	s := begin(t, t.TempDir())
	finish(t, s.Stage(ledger.Source{Name: "pods"}), "pods")
	if state, rows := rowsOf(t, s, "pods"); state.ResourceVersion != "9" || len(rows) > 0 {
		t.Errorf("at %q with %d rows", state.ResourceVersion, len(rows))
	}
}

// A list that breaks is begun again: what it brought before may be gone.
func TestAStageThatIsBegunAgain(t *testing.T) {
	s := begin(t, t.TempDir())
	first := s.Stage(ledger.Source{Name: "pods"})
	put(t, first, large(t, "a", "1"), large(t, "b", "1"), large(t, "c", "1"), large(t, "d", "1"))
	second := s.Stage(ledger.Source{Name: "pods"})
	put(t, second, small(t, "ns", "e", "2"))
	err := first.Finish(ledger.Update{Source: testSource("pods"), ResourceVersion: "3"}, nil)
	if !errors.Is(err, errSuperseded) {
		t.Errorf("the first list: %v", err)
	}
	finish(t, second, "pods")
	if _, rows := rowsOf(t, s, "pods"); len(rows) != 1 {
		t.Errorf("%d rows", len(rows))
	}
}

// What a process left that ended in the middle of a list is removed.
func TestAStageThatWasLeft(t *testing.T) {
	folder := t.TempDir()
	s := begin(t, folder)
	put(t, s.Stage(ledger.Source{Name: "pods"}), large(t, "a", "1"), large(t, "b", "1"), large(t, "c", "1"), large(t, "d", "1"))
	s.Close()
	s = open(t, folder)
	err := s.view(func(tx *bbolt.Tx) error {
		if tx.Bucket([]byte(bucketStaged)) != nil {
			t.Error("it is still there")
		}
		return nil
	})
	if err != nil || s.Stats().Quarantined > 0 {
		t.Errorf("%v, refused %d", err, s.Stats().Quarantined)
	}
}

func TestFetch(t *testing.T) {
	s := begin(t, t.TempDir())
	one, two := small(t, "ns", "one", "1"), pod(t, 2, 1)
	commit(t, s, nil, ledger.Update{Source: testSource("pods"), ResourceVersion: "5", Upserts: []*object.Object{one, two}})
	for _, o := range []*object.Object{one, two} {
		raw, err := s.Fetch("pods", o.Key(), o.Identity)
		if err != nil || string(raw) != string(o.Raw) {
			t.Errorf("%s: %v: %s", o.Name, err, raw)
		}
	}
	for name, fetch := range map[string]func() ([]byte, error){
		"another state":  func() ([]byte, error) { return s.Fetch("pods", "ns/one", small(t, "ns", "one", "2").Identity) },
		"another object": func() ([]byte, error) { return s.Fetch("pods", "ns/one", small(t, "ns", "two", "1").Identity) },
		"no row":         func() ([]byte, error) { return s.Fetch("pods", "ns/none", one.Identity) },
		"no source":      func() ([]byte, error) { return s.Fetch("nodes", "ns/one", one.Identity) },
	} {
		if raw, err := fetch(); !errors.Is(err, errNoState) {
			t.Errorf("%s: %v: %s", name, err, raw)
		}
	}
	s.Close()
	if _, err := s.Fetch("pods", "ns/one", one.Identity); !errors.Is(err, boltfile.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// Fetch goes on beside commits, first lists and a file that is set aside.
func TestFetchBesideAllElse(t *testing.T) {
	s := begin(t, t.TempDir())
	o := small(t, "ns", "one", "1")
	commit(t, s, nil, ledger.Update{Source: testSource("pods"), ResourceVersion: "5", Upserts: []*object.Object{o}})
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() { // ended below
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			if _, err := s.Fetch("pods", o.Key(), o.Identity); err != nil && !errors.Is(err, errNoState) {
				ended <- err
				return
			}
		}
	}()
	for n := range scale.Of(10, 30) {
		commit(t, s, nil, ledger.Update{Source: testSource("nodes"), ResourceVersion: "5", Upserts: []*object.Object{pod(t, n, n)}})
		stage := s.Stage(ledger.Source{Name: "lists"})
		put(t, stage, large(t, "a", fmt.Sprint(n%10)), pod(t, n, n))
		finish(t, stage, "lists")
	}
	if err := quarantine(s); err != nil {
		t.Fatal(err)
	}
	close(stop)
	if err := <-ended; err != nil && !errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		t.Error(err)
	}
}

// A transaction can fail so late that what it did is there all the same (see Store.settle). What follows begins where the
// stage was.
func TestAStageWhoseTransactionsFailLate(t *testing.T) {
	s := begin(t, t.TempDir())
	stage := s.Stage(testSource("pods"))
	objects := []*object.Object{large(t, "a", "1"), large(t, "b", "2"), large(t, "c", "3"), large(t, "d", "4"), large(t, "e", "5"), small(t, "ns", "f", "6")}
	for _, o := range objects {
		before := *stage
		before.batch = slices.Clone(stage.batch)
		put(t, stage, o)
		*stage = before // as if it had failed
		put(t, stage, o)
	}
	u := ledger.Update{Source: testSource("pods"), ResourceVersion: "9"}
	before, record := *stage, s.record
	before.batch, before.bytes = nil, 0 // written; to move it failed
	finish(t, stage, "pods")
	*stage, s.record = before, record
	s.stages["pods"] = stage
	if err := stage.Finish(u, map[string]string{"live": ""}); err != nil {
		t.Fatal(err)
	}
	if state, rows := rowsOf(t, s, "pods"); state.ResourceVersion != "9" || len(rows) != len(objects) {
		t.Errorf("at %q with %d rows of %d", state.ResourceVersion, len(rows), len(objects))
	}
	if len(s.stages) > 0 || stage.batch != nil {
		t.Error("the stage is kept")
	}
}
