package checkpoint

import (
	"errors"
	"fmt"
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

// part is a part of a first list. The first one replaces what there is.
func part(source string, first bool, objects ...*object.Object) ledger.Update {
	return ledger.Update{State: ledger.State{Source: testSource(source)}, ReplaceRows: first, Upserts: objects}
}

// last completes a first list.
func last(source string) ledger.Update {
	return ledger.Update{State: ledger.State{Source: testSource(source), ResourceVersion: "9"}}
}

// large is an object of more than a megabyte.
func large(t testing.TB, name, version string) *object.Object {
	t.Helper()
	return newObject(
		t,
		fmt.Sprintf(
			`{"kind":"ConfigMap","metadata":{"name":%q,"namespace":"ns","uid":"u-%s","resourceVersion":%q},"data":{"n":%q}}`,
			name,
			name,
			version,
			strings.Repeat(version, moveBytes/3),
		),
	)
}

// A first list that is committed in parts counts when it is complete.
func TestFirstListInParts(t *testing.T) {
	folder := t.TempDir()
	s := begin(t, folder)
	kept := small(t, "ns", "kept", "1")
	commit(
		t,
		s,
		map[string]string{"live": ""},
		ledger.Update{
			State:   ledger.State{Source: testSource("other"), ResourceVersion: "5"},
			Upserts: []*object.Object{kept},
		},
	)

	a, b, c, d := large(t, "a", "1"), large(t, "b", "2"), large(t, "c", "3"), small(t, "ns", "d", "4")
	newer := small(t, "ns", "a", "5")
	removal := part("pods", false)
	removal.Deletes = []string{b.Key()}
	for _, u := range []ledger.Update{part("pods", true, a, b), part("pods", false, c, d, newer), removal} {
		commit(t, s, nil, u)
		commit(t, s, nil, u) // the transaction can fail so late that what it did is there anyway
		if state, rows := rowsOf(t, s, "pods"); state.ResourceVersion != "" || len(rows) > 0 {
			t.Error("a part of a list counts")
		}
		if states, err := s.States(); err != nil || len(states) != 1 {
			t.Errorf("a part of a list counts: %v, %v", states, err)
		}
	}
	commit(t, s, nil, last("pods"))
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
		s.Close()
		s = open(t, folder)
	}
}

// A list takes the place of all rows that there were.
func TestAListReplacesRows(t *testing.T) {
	s := begin(t, t.TempDir())
	commit(
		t,
		s,
		nil,
		ledger.Update{
			State:   ledger.State{Source: testSource("pods"), ResourceVersion: "5"},
			Upserts: []*object.Object{small(t, "ns", "a", "1"), small(t, "ns", "b", "1")},
		},
	)
	b := small(t, "ns", "b", "2")
	for want, u := range map[int]ledger.Update{1: part("pods", true, b), 0: part("pods", true)} {
		commit(t, s, nil, u, last("pods"))
		if state, rows := rowsOf(t, s, "pods"); state.ResourceVersion != "9" || len(rows) != want {
			t.Errorf("at %q: %v", state.ResourceVersion, rows)
		}
	}
}

func TestAnEmptyListIsComplete(t *testing.T) {
	s := begin(t, t.TempDir())
	commit(t, s, nil, last("pods"))
	if state, rows := rowsOf(t, s, "pods"); state.ResourceVersion != "9" || len(rows) > 0 {
		t.Errorf("at %q with %d rows", state.ResourceVersion, len(rows))
	}
}

// What a process left that ended in the middle of a list is removed.
func TestAListThatWasNotCompleted(t *testing.T) {
	folder := t.TempDir()
	s := begin(t, folder)
	commit(t, s, nil, part("pods", true, large(t, "a", "1"), large(t, "b", "1")))
	s.Close()
	s = open(t, folder)
	err := s.view(func(tx *bbolt.Tx) error {
		if tx.Bucket([]byte(bucketRows)).Bucket([]byte("pods")) != nil ||
			tx.Bucket([]byte(bucketSources)).Get([]byte("pods")) != nil {
			t.Error("it is still there")
		}
		return nil
	})
	if err != nil || s.Stats().Quarantined > 0 || s.record.knows("pods") {
		t.Errorf("%v, quarantined %d", err, s.Stats().Quarantined)
	}
}

func TestFetch(t *testing.T) {
	s := begin(t, t.TempDir())
	one, two := small(t, "ns", "one", "1"), pod(t, 2, 1)
	commit(
		t,
		s,
		nil,
		ledger.Update{
			State:   ledger.State{Source: testSource("pods"), ResourceVersion: "5"},
			Upserts: []*object.Object{one, two},
		},
	)
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

// Fetch goes on beside commits, first lists and a file that is quarantined.
func TestFetchBesideAllElse(t *testing.T) {
	s := begin(t, t.TempDir())
	o := small(t, "ns", "one", "1")
	commit(
		t,
		s,
		nil,
		ledger.Update{State: ledger.State{Source: testSource("pods"), ResourceVersion: "5"}, Upserts: []*object.Object{o}},
	)
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
		commit(
			t,
			s,
			nil,
			ledger.Update{
				State:   ledger.State{Source: testSource("nodes"), ResourceVersion: "5"},
				Upserts: []*object.Object{pod(t, n, n)},
			},
		)
		commit(t, s, nil, part("lists", true, large(t, "a", fmt.Sprint(n%10)), pod(t, n, n)), last("lists"))
	}
	if err := quarantine(s); err != nil {
		t.Fatal(err)
	}
	close(stop)
	if err := <-ended; err != nil && !errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		t.Error(err)
	}
}
