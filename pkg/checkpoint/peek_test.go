package checkpoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/ledger"
)

func TestPeek(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if s, err := Peek(dir); err != nil || s.Exists {
		t.Errorf("no folder: %+v, %v", s, err)
	}
	store, err := Open(Options{Path: dir, ClusterName: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.BeginCluster("uid"); err != nil {
		t.Fatal(err)
	}
	source := ledger.Source{Name: "pods"}
	if err := store.Commit(
		[]ledger.Update{{State: ledger.State{Source: source, ResourceVersion: "7", Sinks: map[string]string{"a": "8"}}}},
		nil, nil,
	); err != nil {
		t.Fatal(err)
	}
	if s, err := Peek(
		dir,
	); err != nil || !s.Exists || !s.Locked ||
		time.Since(s.LastCommit) > time.Minute {
		t.Errorf("in use: %+v, %v", s, err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	before := filesOf(t, dir)
	s, err := Peek(dir)
	if err != nil || s.Locked || s.Unusable != "" || s.ClusterName != "c" || s.ClusterUID != "uid" {
		t.Errorf("%+v, %v", s, err)
	}
	if diff := cmp.Diff(
		[]ledger.State{{Source: source, ResourceVersion: "7", Sinks: map[string]string{"a": "8"}}},
		s.States,
	); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, filesOf(t, dir)); diff != "" {
		t.Error("looking changed something")
	}
	if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, fileName), []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Peek(dir); err != nil || !strings.HasPrefix(s.Unusable, "damaged: ") {
		t.Errorf("damaged: %+v, %v", s, err)
	}
	if got := filesOf(t, dir); len(got) != 1 {
		t.Errorf("looking left %d files", len(got))
	}
}

// filesOf gives the contents of the files of a folder, by name.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[f.Name()] = string(data)
	}
	return all
}
