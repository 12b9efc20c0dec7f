package checkpoint

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// copyState converts the state to the format of an imagined later version, which differs only in its number.
func copyState(from, to string) error {
	data, err := os.ReadFile(filepath.Join(from, fileName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no version has run before
	}
	return errors.Join(err, os.WriteFile(filepath.Join(to, fileName), data, 0o600))
}

// run runs a version with the given format until it has committed a row with the given name. It returns the names of
// the rows in the checkpoint at its start, its epoch, and its log.
func run(t *testing.T, root string, format int, name string) (rows []string, epoch, log string) {
	t.Helper()
	var out bytes.Buffer
	s, err := Open(Options{
		Path: root, ClusterName: "test", NoSync: true, Logger: slog.New(slog.NewTextHandler(&out, nil)),
		format: format, convert: copyState,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.BeginCluster(testUID); err != nil {
		t.Fatal(err)
	}
	if _, epoch, err = s.SetWatch("all"); err != nil {
		t.Fatal(err)
	}
	if states, err := s.States(); err != nil {
		t.Fatal(err)
	} else if len(states) > 0 {
		_, known := rowsOf(t, s, "pods")
		rows = slices.Sorted(maps.Keys(known))
	}
	commit(t, s, nil, ledger.Update{
		State:   ledger.State{Source: testSource("pods"), ResourceVersion: "1"},
		Upserts: []*object.Object{small(t, "n", name, "1")},
	})
	return rows, epoch, out.String()
}

// undated removes the times from the names of quarantined files.
func undated(names []string) []string {
	for i, name := range names {
		names[i] = regexp.MustCompile(`-20\d{6}T.*`).ReplaceAllString(name, "")
	}
	return names
}

// If a newer version has used the directory, a version continues with its own files, which the newer version has not
// changed.
func TestOtherFormats(t *testing.T) {
	const goesBack, startsEmpty = "going back to the state", "no state of its own"
	type start struct {
		format int
		row    string   // what it commits
		rows   []string // what it knows
		log    string   // what it says about newer formats
		left   []string // what is in the directory afterwards, in addition to the files of format 1
	}
	const two, three = "format-2", "format-3"
	tests := map[string][]start{
		"the same version": {
			{1, "a", nil, "", nil},
			{1, "b", []string{"n/a"}, "", nil},
		},
		"back once, and forward again": {
			{1, "a", nil, "", nil},
			{2, "b", []string{"n/a"}, "", []string{two}},
			{2, "c", []string{"n/a", "n/b"}, "", []string{two}},
			{1, "d", []string{"n/a"}, goesBack, []string{two + ".newer-format"}},
			{1, "e", []string{"n/a", "n/d"}, "", []string{two + ".newer-format"}},
			{2, "f", []string{"n/a", "n/d", "n/e"}, "", []string{two, two + ".newer-format"}},
			{1, "g", []string{"n/a", "n/d", "n/e"}, goesBack, []string{two + ".newer-format", two + ".newer-format"}},
		},
		"back in two steps": {
			{1, "a", nil, "", nil},
			{2, "b", []string{"n/a"}, "", []string{two}},
			{3, "c", []string{"n/a", "n/b"}, "", []string{two, three}},
			{2, "d", []string{"n/a", "n/b"}, goesBack, []string{two, three + ".newer-format"}},
			{1, "e", []string{"n/a"}, goesBack, []string{two + ".newer-format", three + ".newer-format"}},
		},
		"back over two formats": {
			{1, "a", nil, "", nil},
			{2, "b", []string{"n/a"}, "", []string{two}},
			{3, "c", []string{"n/a", "n/b"}, "", []string{two, three}},
			{1, "d", []string{"n/a"}, goesBack, []string{two + ".newer-format", three + ".newer-format"}},
			{3, "e", []string{"n/a", "n/d"}, "", []string{two + ".newer-format", three, three + ".newer-format"}},
		},
		"back to a version that never ran": {
			{1, "a", nil, "", nil},
			{3, "b", []string{"n/a"}, "", []string{three}},
			{2, "c", []string{"n/a"}, goesBack, []string{two, three + ".newer-format"}},
			{3, "d", []string{"n/a", "n/c"}, "", []string{two, three, three + ".newer-format"}},
		},
		"no older state": {
			{2, "a", nil, "", []string{two}},
			{1, "b", nil, startsEmpty, []string{two + ".newer-format"}},
			{2, "c", []string{"n/b"}, "", []string{two, two + ".newer-format"}},
		},
	}
	for name, starts := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root := t.TempDir()
				epochs := map[string]bool{}
				for i, start := range starts {
					time.Sleep(time.Second) // an epoch is named after its time
					rows, epoch, log := run(t, root, start.format, start.row)
					if diff := cmp.Diff(start.rows, rows); diff != "" {
						t.Fatalf("start %d knows (-want +got):\n%s", i, diff)
					}
					if (start.log == "") == strings.Contains(log, "newer version") || !strings.Contains(log, start.log) {
						t.Errorf("start %d, want %q:\n%s", i, start.log, log)
					}
					if isNew := !epochs[epoch]; isNew != (i == 0 || start.log != "") {
						t.Errorf("start %d: epoch %q is new: %t", i, epoch, isNew)
					}
					epochs[epoch] = true
					if diff := cmp.Diff(start.left, undated(kept(t, root))); diff != "" {
						t.Errorf("start %d left (-want +got):\n%s", i, diff)
					}
				}
			})
		})
	}
}

// If the files cannot be converted, the older files are unchanged, and no other files remain.
func TestFailedConversion(t *testing.T) {
	root := t.TempDir()
	run(t, root, 1, "a")
	before := filesOf(t, root)
	full := func(_, to string) error {
		return errors.Join(os.WriteFile(filepath.Join(to, fileName), []byte("a part"), 0o600), syscall.ENOSPC)
	}
	_, err := Open(Options{Path: root, NoSync: true, format: 2, convert: full})
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "from format 1 to format 2") ||
		!strings.Contains(err.Error(), "make room") {
		t.Errorf("disk full: %v", err)
	}
	if diff := cmp.Diff(before, filesOf(t, root)); diff != "" {
		t.Errorf("a failed conversion changed files (-want +got):\n%s", diff)
	}
	for _, format := range []int{1, 2} { // a part that a killed process has left
		if err := os.Mkdir(filepath.Join(root, "format-2.new"), 0o700); err != nil {
			t.Fatal(err)
		}
		if rows, _, log := run(t, root, format, "a"); !slices.Equal(rows, []string{"n/a"}) || strings.Contains(log, "newer") {
			t.Errorf("format %d: %v\n%s", format, rows, log)
		}
		if slices.Contains(kept(t, root), "format-2.new") {
			t.Errorf("format %d left the part", format)
		}
	}
}

// If the new epoch cannot be stored, the newer files keep their names, so that the next start goes back too.
func TestGoingBackWithoutRoom(t *testing.T) {
	root := t.TempDir()
	s := begin(t, root)
	if err := os.Mkdir(filepath.Join(root, "format-2"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.file.Close(), s.leaveNewer()); !errors.Is(err, boltfile.ErrClosed) {
		t.Error(err)
	}
	if got := kept(t, root); !slices.Equal(got, []string{"format-2"}) {
		t.Error(got)
	}
	if err := s.unlock(); err != nil {
		t.Fatal(err)
	}
	s.unlock = nil
	if p, err := Peek(root); err != nil || !p.Newer {
		t.Errorf("%+v %v", p, err)
	}
	if _, _, log := run(t, root, 1, "a"); !strings.Contains(log, "going back") {
		t.Error(log)
	}
	if p, err := Peek(root); err != nil || p.Newer {
		t.Errorf("%+v %v", p, err)
	}
}
