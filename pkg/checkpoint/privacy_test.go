package checkpoint

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

const marker = "hunter2-in-the-clear"

// testPrivacy hides the marker, in objects of one resource. seal is the key of the encryption; empty: none.
func testPrivacy(t *testing.T, name, seal string) Privacy {
	t.Helper()
	p := Privacy{Name: name, Redact: func(gvr schema.GroupVersionResource, o *object.Object) []byte {
		if gvr.Resource != "secrets" || !bytes.Contains(o.Raw, []byte(marker)) {
			return o.Raw
		}
		return bytes.ReplaceAll(o.Raw, []byte(marker), []byte("hidden"))
	}}
	if seal != "" {
		block, err := aes.NewCipher([]byte(seal))
		if err != nil {
			t.Fatal(err)
		}
		if p.Seal, err = cipher.NewGCMWithRandomNonce(block); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func openPrivate(t *testing.T, folder string, p Privacy) *Store {
	t.Helper()
	s, err := Open(Options{Path: folder, ClusterName: "c", Privacy: p, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.BeginCluster("cluster"); err != nil {
		t.Fatal(err)
	}
	return s
}

func secretRow(t *testing.T, name, resourceVersion string) *object.Object {
	t.Helper()
	// Large enough to be compressed, and so that the marker would be found in what is.
	o, err := object.New(
		[]byte(
			`{"kind":"Secret","metadata":{"name":"` + name + `","uid":"u-` + name + `","resourceVersion":"` + resourceVersion + `"},"data":{"a":"` + marker + `","b":"` + strings.Repeat(
				"x",
				600,
			) + `"}}`,
		),
	)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func secretsSource(name string) ledger.Source {
	return ledger.Source{Name: name, Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}}
}

// inFile reports whether a file of the checkpoint's folder holds the marker.
func inFile(t *testing.T, folder string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte(marker)) {
			return true
		}
	}
	return false
}

// Rows hold no secret value in plain text, and with the key it comes back.
func TestRowsHideValues(t *testing.T) {
	for name, seal := range map[string]string{"redacted": "", "sealed": strings.Repeat("k", 32)} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			s := openPrivate(t, folder, testPrivacy(t, name, seal))
			first := ledger.Update{
				State:       ledger.State{Source: secretsSource("list")},
				ReplaceRows: true,
				Upserts:     []*object.Object{secretRow(t, "a", "1")},
			}
			commit(t, s, nil, first)
			if inFile(t, folder) {
				t.Error("the value is in the file while the list is not complete")
			}
			commit(t, s, nil, ledger.Update{State: ledger.State{Source: secretsSource("list"), ResourceVersion: "1"}})
			o := secretRow(t, "b", "2")
			if err := s.Commit(
				[]ledger.Update{
					{State: ledger.State{Source: secretsSource("secrets"), ResourceVersion: "2"}, Upserts: []*object.Object{o}},
				},
				nil, nil,
			); err != nil {
				t.Fatal(err)
			}
			raw, err := s.Fetch("secrets", "b", o.Identity)
			if err != nil || bytes.Contains(raw, []byte(marker)) != (seal != "") {
				t.Errorf("fetched %.120s, %v", raw, err)
			}
			_, rows, err := load(s, "list")
			if err != nil || len(rows) != 1 || bytes.Contains(rows[0].Raw, []byte(marker)) != (seal != "") {
				t.Errorf("loaded %v, %v", rows, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if inFile(t, folder) {
				t.Error("the value is in the file")
			}
		})
	}
}

// What is hidden changes with the configuration: rows follow when the store is opened, and the old file is gone.
func TestRowsFollowThePolicy(t *testing.T) {
	folder := t.TempDir()
	key, other := strings.Repeat("k", 32), strings.Repeat("o", 32)
	o := secretRow(t, "b", "2")
	for n, step := range []struct {
		privacy         Privacy
		inFile, inFetch bool
	}{
		{Privacy{}, true, true},                            // an earlier version
		{testPrivacy(t, "sealed", key), false, true},       // one sink wants it
		{testPrivacy(t, "other key", other), false, false}, // the key is lost
		{testPrivacy(t, "redacted", ""), false, false},
		{testPrivacy(t, "sealed", key), false, false}, // what is gone is gone
	} {
		s := openPrivate(t, folder, step.privacy)
		if n == 0 {
			update := ledger.Update{
				State:   ledger.State{Source: secretsSource("secrets"), ResourceVersion: "2", Sinks: map[string]string{"x": "2"}},
				Upserts: []*object.Object{o},
			}
			if err := s.Commit([]ledger.Update{update}, map[string]string{"x": "1"}, nil); err != nil {
				t.Fatal(err)
			}
		}
		raw, err := s.Fetch("secrets", "b", o.Identity)
		if err != nil || bytes.Contains(raw, []byte(marker)) != step.inFetch {
			t.Errorf("step %d: fetched %.120s, %v", n, raw, err)
		}
		state, rows, err := load(s, "secrets")
		if err != nil || len(rows) != 1 || state.ResourceVersion != "2" || state.Sinks["x"] != "2" {
			t.Errorf("step %d: loaded %+v, %v, %v", n, state, rows, err)
		}
		if s.Stats().Quarantined != 0 {
			t.Errorf("step %d: %+v", n, s.Stats())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if got := inFile(t, folder); got != step.inFile {
			t.Errorf("step %d: in the file %t", n, got)
		}
	}
}

// A source that can't be read is left out of the rewritten file, and the others stay.
func TestRewriteLeavesOutWhatIsDamaged(t *testing.T) {
	folder := t.TempDir()
	s := openPrivate(t, folder, Privacy{})
	for _, name := range []string{"bad", "good"} {
		update := ledger.Update{
			State:   ledger.State{Source: secretsSource(name), ResourceVersion: "2"},
			Upserts: []*object.Object{secretRow(t, "b", "2")},
		}
		if err := s.Commit([]ledger.Update{update}, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.file.Update(putRow("bad", "c", []byte("no row"))); err != nil {
		t.Fatal(err)
	}
	if err := s.file.Update(func(tx *bbolt.Tx) error { // rows of a source that no record mentions
		_, err := tx.Bucket([]byte(bucketRows)).CreateBucket([]byte("lost"))
		return errors.Join(err, putRow("lost", "c", []byte(marker))(tx))
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openPrivate(t, folder, testPrivacy(t, "redacted", ""))
	if states, err := s.States(); err != nil || len(states) != 1 {
		t.Errorf("%v, %v", states, err)
	}
	for name, want := range map[string]int{"bad": 0, "good": 1} {
		if _, rows, err := load(s, name); err != nil || len(rows) != want {
			t.Errorf("%s: %d rows, %v", name, len(rows), err)
		}
	}
	if inFile(t, folder) {
		t.Error("the value is in the file")
	}
}

func putRow(source, key string, value []byte) func(*bbolt.Tx) error {
	return func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketRows)).Bucket([]byte(source)).Put([]byte(key), value)
	}
}
