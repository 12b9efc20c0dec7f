package checkpoint

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/internal/files"
	"github.com/deltabridge/deltabridge/internal/segment"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/test/laterformat"
)

// kept lists what there is in a folder besides the checkpoint and its lock.
func kept(t testing.TB, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() != fileName && e.Name() != lockName {
			names = append(names, e.Name())
		}
	}
	return names
}

// usable checks that an empty store works.
func usable(t testing.TB, s *Store) {
	t.Helper()
	if states, err := s.States(); err != nil || len(states) != 0 {
		t.Errorf("not empty: %v %v", states, err)
	}
	if err := s.BeginCluster(testUID); err != nil {
		t.Fatal(err)
	}
	o := small(t, "n", "usable", "1")
	commit(
		t,
		s,
		nil,
		ledger.Update{State: ledger.State{Source: testSource("usable"), ResourceVersion: "1"}, Upserts: []*object.Object{o}},
	)
	if _, rows := rowsOf(t, s, "usable"); len(rows) != 1 {
		t.Errorf("%d rows", len(rows))
	}
}

func TestBeginCluster(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder)
	steps := []struct {
		uid  string
		kept int
	}{{"one", 0}, {"one", 0}, {"two", 1}, {"two", 1}, {"one", 2}}
	for _, step := range steps {
		err := s.BeginCluster(step.uid)
		if err != nil || s.ClusterUID() != step.uid || len(kept(t, folder)) != step.kept {
			t.Errorf("%s: uid %s, kept %v, %v", step.uid, s.ClusterUID(), kept(t, folder), err)
		}
		commit(t, s, nil, ledger.Update{State: ledger.State{Source: testSource("of-" + step.uid), ResourceVersion: "1"}})
		states, err := s.States()
		if err != nil || len(states) != 1 || states[0].Source.Name != "of-"+step.uid {
			t.Errorf("%v %v", states, err)
		}
		s.Close()
		s = open(t, folder)
	}
	for _, name := range kept(t, folder) {
		if !strings.HasPrefix(name, "checkpoint.db.other-cluster-2") {
			t.Error(name)
		}
	}
}

func TestAnotherNameOfTheClusterIsNoOtherCluster(t *testing.T) {
	folder := t.TempDir()
	s := begin(t, folder)
	commit(t, s, nil, ledger.Update{State: ledger.State{Source: testSource("pods"), ResourceVersion: "1"}})
	s.Close()
	var log bytes.Buffer
	for i := range 2 {
		s, err := Open(Options{Path: folder, ClusterName: "renamed", Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.BeginCluster(testUID); err != nil {
			t.Error(err)
		}
		if states, err := s.States(); err != nil || len(states) != 1 {
			t.Errorf("%v %v", states, err)
		}
		if n := strings.Count(log.String(), "another name"); n != 1 {
			t.Errorf("start %d: told %d times:\n%s", i, n, log.String())
		}
		s.Close()
	}
}

func TestQuarantine(t *testing.T) {
	folder := t.TempDir()
	s := begin(t, folder)
	commit(
		t,
		s,
		map[string]string{"a": "rules"},
		ledger.Update{State: ledger.State{Source: testSource("pods"), ResourceVersion: "5"}},
	)
	for range 3 { // within one second, perhaps: each needs a name of its own
		if err := quarantine(s); err != nil {
			t.Fatal(err)
		}
	}
	if s.ClusterUID() != testUID || s.Stats().Quarantined != 3 {
		t.Errorf("uid %s, quarantined %d", s.ClusterUID(), s.Stats().Quarantined)
	}
	if _, known := s.noted().Sinks["a"]; known {
		t.Error("not empty")
	}
	usable(t, s)
	s.Close()
	if s = open(t, folder); s.ClusterUID() != testUID {
		t.Errorf("uid %q after a restart", s.ClusterUID())
	}
	names := kept(t, folder)
	if len(names) != 3 || !strings.HasPrefix(names[0], "checkpoint.db.test-2") {
		t.Fatal(names)
	}
	// What was quarantined is a whole checkpoint.
	again := t.TempDir()
	if err := os.Rename(filepath.Join(folder, names[0]), filepath.Join(again, fileName)); err != nil {
		t.Fatal(err)
	}
	if states, err := open(t, again).States(); err != nil || len(states) != 1 {
		t.Error(states, err)
	}
}

func TestQuarantineThatFailsChangesNothing(t *testing.T) {
	folder := t.TempDir()
	s := begin(t, folder)
	commit(t, s, nil, ledger.Update{State: ledger.State{Source: testSource("pods"), ResourceVersion: "5"}})
	inTheWay := filepath.Join(folder, fileName+".new")
	if err := os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := quarantine(s); err == nil {
		t.Fatal("expected an error")
	}
	if states, err := s.States(); err != nil || len(states) != 1 {
		t.Error(states, err)
	}
	commit(t, s, nil, ledger.Update{State: ledger.State{Source: testSource("nodes"), ResourceVersion: "6"}})
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if states, err := open(t, folder).States(); err != nil || len(states) != 2 {
		t.Error(states, err)
	}
}

func TestLeftoversOfACrashAreRemoved(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, fileName+".new"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	usable(t, open(t, folder))
	if names := kept(t, folder); len(names) != 0 {
		t.Error(names)
	}
}

func TestUnusable(t *testing.T) {
	put := func(bucket, key, value string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			edit(t, path, func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucket)).Put([]byte(key), []byte(value)) })
		}
	}
	tests := []struct {
		name, reason string
		change       func(t *testing.T, path string)
	}{
		{"no format", "corrupt", put(bucketStore, "format", "x")},
		{"record damaged", "corrupt", put(bucketStore, keyStore, "\x00\x00\x00\x00{}")},
		{"no JSON", "corrupt", put(bucketStore, keyStore, string(seal(keyStore, []byte("\x00\x00\x00\x00{"))))},
		{"no sources", "corrupt", func(t *testing.T, path string) {
			edit(t, path, func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(bucketSources)) })
		}},
		{"another program's", "corrupt", func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			edit(t, path, func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("key")); return err })
		}},
		{"no bbolt file", "corrupt", func(t *testing.T, path string) {
			if err := os.WriteFile(path, bytes.Repeat([]byte("text "), 10_000), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			folder := t.TempDir()
			s := begin(t, folder)
			commit(t, s, nil, ledger.Update{State: ledger.State{Source: testSource("pods"), ResourceVersion: "5"}})
			s.Close()
			test.change(t, s.path)
			before, err := os.ReadFile(s.path)
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			s, err = Open(Options{Path: folder, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			names := kept(t, folder)
			if len(names) != 1 || !strings.HasPrefix(names[0], fileName+"."+test.reason+"-2") || s.Stats().Quarantined != 1 ||
				s.ClusterUID() != "" {
				t.Fatalf("kept %v, quarantined %d, uid %q", names, s.Stats().Quarantined, s.ClusterUID())
			}
			if after, err := os.ReadFile(filepath.Join(folder, names[0])); err != nil || !bytes.Equal(before, after) {
				t.Error("the quarantined file was changed", err)
			}
			for _, want := range []string{"level=WARN", "quarantined", "reason=" + test.reason, names[0], "remedy="} {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log lacks %q:\n%s", want, log.String())
				}
			}
			usable(t, s)
		})
	}
}

// What a newer version has written is not changed, wherever it is in the state directory.
func TestNewerFormat(t *testing.T) {
	folder := t.TempDir()
	s := begin(t, folder)
	commit(t, s, nil, ledger.Update{State: ledger.State{Source: testSource("pods"), ResourceVersion: "5"}})
	s.Close()
	spill, parked := filepath.Join(folder, "spill-a"), filepath.Join(folder, "audit-state", "parked-a.db")
	log, err := segment.Open(spill, segment.DefaultBytes, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	batch := log.NewBatch()
	encode := func(dst []byte) ([]byte, error) { return append(dst, "event"...), nil }
	if _, err := batch.Add(1, "", "", math.MaxInt64, encode); err != nil {
		t.Fatal(err)
	}
	leftover := s.path + ".new"
	if err := errors.Join(
		log.Append(batch, nil), log.Close(), os.Mkdir(filepath.Dir(parked), 0o700), os.WriteFile(leftover, nil, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{s.path, spill, parked} {
		laterformat.Write(t, path)
		before := tree(t, folder)
		want := files.NewerFormatError{What: path, Format: files.Format + 1}
		if err := CheckFormats(folder); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		if path == s.path {
			if _, err := Open(Options{Path: folder}); !errors.Is(err, want) {
				t.Errorf("Open = %v", err)
			}
			if _, err := Peek(folder); !errors.Is(err, want) {
				t.Errorf("Peek = %v", err)
			}
		}
		if diff := cmp.Diff(before, tree(t, folder)); diff != "" {
			t.Errorf("changed (-before +after):\n%s", diff)
		}
		laterformat.Restore(t, path)
	}
	if err := os.Rename(spill, spill+".damaged-20261128T120000"); err != nil {
		t.Fatal(err)
	}
	laterformat.Write(t, spill+".damaged-20261128T120000")
	if err := CheckFormats(folder); err != nil {
		t.Errorf("quarantined: %v", err)
	}
}

// tree returns the content of all files below a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// edit changes a file behind the store's back.
func edit(t testing.TB, path string, change func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(change); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCompaction(t *testing.T) {
	folder := t.TempDir()
	s := begin(t, folder)
	objects := pods(t, 0, 6000, 1)
	source := testSource("pods")
	commit(
		t,
		s,
		map[string]string{"a": "rules"},
		ledger.Update{
			State:   ledger.State{Source: source, ResourceVersion: "1", Sinks: map[string]string{"a": "2"}},
			Upserts: objects,
		},
	)
	full := s.Stats().SizeBytes
	var gone []string
	for _, o := range objects[1000:] {
		gone = append(gone, o.Key())
	}
	commit(
		t,
		s,
		nil,
		ledger.Update{
			State:   ledger.State{Source: source, ResourceVersion: "3", Sinks: map[string]string{"a": "4"}},
			Deletes: gone,
		},
	)
	s.Close()
	var log bytes.Buffer
	s, err := Open(Options{Path: folder, ClusterName: "test", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if size := s.Stats().SizeBytes; size > full/3 || !strings.Contains(log.String(), "checkpoint compacted") ||
		len(kept(t, folder)) != 0 {
		t.Errorf("%d bytes, were %d; %v\n%s", size, full, kept(t, folder), log.String())
	}
	state, rows := rowsOf(t, s, source.Name)
	if state.ResourceVersion != "3" || state.Sinks["a"] != "4" || s.ClusterUID() != testUID || len(rows) != 1000 {
		t.Errorf("%+v, %d rows", state, len(rows))
	}
	if text, known := s.noted().Sinks["a"]; !known || text != "rules" {
		t.Error(text, known)
	}
	commit(
		t,
		s,
		nil,
		ledger.Update{State: ledger.State{Source: source, ResourceVersion: "5"}, Upserts: objects[2000:2001]},
	)
	if _, rows := rowsOf(t, s, source.Name); len(rows) != 1001 {
		t.Errorf("%d rows", len(rows))
	}
}

func TestWhatIsNotCompacted(t *testing.T) {
	for _, test := range []struct {
		boltfile.Usage
		want bool
	}{
		{boltfile.Usage{Used: 1 << 20, Total: 7 << 20}, false},
		{boltfile.Usage{Used: 1 << 20, Total: 8 << 20}, true},
		{boltfile.Usage{Used: 4 << 20, Total: 8 << 20}, false},
		{boltfile.Usage{Used: 512 << 20, Total: 2 << 30}, true},
		{boltfile.Usage{Used: 513 << 20, Total: 2 << 30}, false},
	} {
		if got := isSparse(test.Usage); got != test.want {
			t.Errorf("%+v: %t", test.Usage, got)
		}
	}
}
