package deadletter_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/deadletter"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

func message(n, size int) *event.Message {
	m := &event.Message{
		Type:         event.Deleted,
		Time:         time.Unix(1, 2).UTC(),
		Cluster:      "c",
		ID:           fmt.Sprintf("uid.%d", n),
		PartitionKey: "key",
		Structured:   true,
		Resource:     schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		LeftFilter:   true,
		Data:         []byte(`{"a":"` + strings.Repeat("x", size) + `"}`),
	}
	m.Identity.Name, m.Identity.Namespace, m.Identity.ResourceVersion = "cm", "ns", fmt.Sprint(n)
	return m
}

var errLarge = sinks.Permanent(fmt.Errorf("%w: 9 bytes", sinks.ErrOversize))

func newStore(t *testing.T, maxBytes int64) *deadletter.Store {
	return &deadletter.Store{Dir: filepath.Join(t.TempDir(), "state", deadletter.Name("audit")), MaxBytes: maxBytes}
}

func keep(t *testing.T, f *deadletter.Store, m *event.Message) {
	t.Helper()
	where, err := f.Keep(t.Context(), m, event.ReasonOversize, errLarge)
	if err != nil || where != "directory dead-letters-audit" {
		t.Fatalf("%q, %v", where, err)
	}
}

func ids(t *testing.T, f *deadletter.Store) (all []string) {
	t.Helper()
	letters, err := f.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range letters {
		all = append(all, l.ID)
	}
	return all
}

func TestStore(t *testing.T) {
	f := newStore(t, 0)
	if n, size, err := f.Stats(); n != 0 || size != 0 || err != nil || len(ids(t, f)) != 0 {
		t.Errorf("no file: %d letters, %d bytes, %v", n, size, err)
	}
	if found, err := f.Drop("uid.1"); found || err != nil {
		t.Errorf("dropped of nothing: %t, %v", found, err)
	}
	for _, n := range []int{3, 1, 2, 3} { // one of them again, as after a crash
		keep(t, f, message(n, 1000*n))
	}
	if diff := cmp.Diff([]string{"uid.3", "uid.1", "uid.2"}, ids(t, f)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if info, err := os.Stat(f.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if paths := letterFiles(t, f); len(paths) != 3 {
		t.Errorf("%v", paths)
	}
	got, err := f.Get("uid.2")
	if err != nil {
		t.Fatal(err)
	}
	want := message(2, 2000)
	if string(got.Message.Body()) != string(want.Body()) || got.Message.PartitionKey != "key" ||
		got.Message.Key() != want.Key() {
		t.Errorf("message %+v", got.Message)
	}
	if got.Reason != event.ReasonOversize || got.Error != errLarge.Error() || got.Bytes != len(want.Data) ||
		time.Since(got.Time) > time.Minute {
		t.Errorf("%+v", got)
	}
	if _, err := f.Get("uid.9"); !errors.Is(err, deadletter.ErrNotFound) {
		t.Errorf("%v", err)
	}
	for _, id := range []string{"uid.3", "uid.1", "uid.2"} {
		if found, err := f.Drop(id); !found || err != nil {
			t.Errorf("%t, %v", found, err)
		}
	}
	if n, size, err := f.Stats(); n != 0 || size != 0 || err != nil {
		t.Errorf("after all are gone: %d letters, %d bytes, %v", n, size, err)
	}
}

// A full file refuses, for good, and takes again what there is room for.
func TestFull(t *testing.T) {
	f := newStore(t, 10_000)
	for n := range 4 {
		keep(t, f, message(n, 2000))
	}
	_, err := f.Keep(t.Context(), message(9, 2000), event.ReasonRefused, errLarge)
	if !errors.Is(err, deadletter.ErrFull) || !sinks.IsPermanent(err) {
		t.Fatalf("%v", err)
	}
	keep(t, f, message(1, 2000)) // which is there
	if found, err := f.Drop("uid.1"); !found || err != nil {
		t.Fatal(found, err)
	}
	keep(t, f, message(9, 2000))
	if n, size, err := f.Stats(); n != 4 || size > 10_000 || size < 8000 || err != nil {
		t.Errorf("%d letters, %d bytes, %v", n, size, err)
	}
}

// A folder that can't be written to is an error that passes, not a reason to give up the message.
func TestUnwritable(t *testing.T) {
	f := newStore(t, 0)
	if err := os.WriteFile(filepath.Dir(f.Dir), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Keep(t.Context(), message(1, 1), event.ReasonRefused, errLarge); err == nil || sinks.IsPermanent(err) {
		t.Errorf("%v", err)
	}
}

// letterFiles returns the paths of the files, all of which must have mode 0600.
func letterFiles(t *testing.T, f *deadletter.Store) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(f.Dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
	}
	return paths
}

// An event's id may have any characters, and a crash may leave an unfinished file.
func TestIDs(t *testing.T) {
	f := newStore(t, 0)
	for _, id := range []string{"synced.c.pods/ns.5", "../x", strings.Repeat("long", 200)} {
		m := message(1, 1)
		m.ID = id
		keep(t, f, m)
		if l, err := f.Get(id); err != nil || l.ID != id || l.Message.ID != id {
			t.Errorf("%+v, %v", l, err)
		}
	}
	if err := os.WriteFile(letterFiles(t, f)[0]+".new", []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, _, err := f.Stats(); n != 3 || err != nil || len(ids(t, f)) != 3 {
		t.Errorf("%d letters, %v, %v", n, ids(t, f), err)
	}
}

// A file that is damaged is reported with its path, and costs only its own message.
func TestDamaged(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"text":    func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("no ", 20_000)), 0o600) },
		"cut off": func(path string) error { return os.Truncate(path, 100) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newStore(t, 0)
			keep(t, f, message(7, 2000))
			path := letterFiles(t, f)[0]
			for n := range 5 {
				keep(t, f, message(n, 2000))
			}
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
			if _, err := f.List(); err == nil ||
				!strings.Contains(err.Error(), "cannot read dead letter "+path+"; remove it if it is damaged") {
				t.Errorf("%v", err)
			}
			if _, err := f.Get("uid.7"); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%v", err)
			}
			keep(t, f, message(8, 1))
			if _, err := f.Get("uid.3"); err != nil {
				t.Error(err)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if got := ids(t, f); len(got) != 6 {
				t.Errorf("%v", got)
			}
		})
	}
}

// keeperFile names the file that this process fills until it is killed.
const keeperFile = "DEADLETTER_KEEPER_FILE"

// A process that is killed while it keeps letters, with another one reading and dropping at the same time, loses none
// that it has said to be kept.
func TestKilledWhileKeeping(t *testing.T) {
	if path := os.Getenv(keeperFile); path != "" {
		f := &deadletter.Store{Dir: path}
		for n := 0; ; n++ {
			if _, err := f.Keep(t.Context(), message(n, 3000), event.ReasonRefused, errLarge); err != nil {
				fmt.Println(err) //nolint:forbidigo // to the test that waits for it
			}
			fmt.Println("kept", fmt.Sprintf("uid.%d", n)) //nolint:forbidigo // the same
		}
	}
	f := newStore(t, 0)
	kept, dropped := map[string]bool{}, map[string]bool{}
	for range 3 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledWhileKeeping$")
		cmd.Env = append(os.Environ(), keeperFile+"="+f.Dir)
		var out strings.Builder
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
			all := ids(t, f)
			if len(all) > 15 {
				break
			}
			if len(all) > 5 && !dropped[all[2]] {
				found, err := f.Drop(all[2])
				if !found || err != nil {
					t.Fatal(found, err)
				}
				dropped[all[2]] = true
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		for line := range strings.Lines(out.String()) {
			id, ok := strings.CutPrefix(strings.TrimSpace(line), "kept ")
			if !ok {
				t.Fatalf("the keeper says %q", line)
			}
			kept[id] = true
		}
		there := map[string]bool{}
		for _, id := range ids(t, f) {
			there[id] = true
			if _, err := f.Get(id); err != nil {
				t.Error(err)
			}
		}
		for id := range kept {
			if !there[id] && !dropped[id] {
				t.Errorf("%s was kept and is not there", id)
			}
		}
		for id := range there {
			_, err := f.Drop(id)
			dropped[id] = true
			if err != nil {
				t.Fatal(err)
			}
		}
		clear(kept)
	}
	if len(dropped) < 15 {
		t.Errorf("only %d letters were kept", len(dropped))
	}
}

// Stats does not read a directory again that has not changed, and notices each change.
func TestStatsOfAChangedDirectory(t *testing.T) {
	s := &deadletter.Store{Dir: t.TempDir()}
	check := func(want int) {
		t.Helper()
		for range 2 {
			if letters, _, err := s.Stats(); err != nil || letters != want {
				t.Errorf("%d dead letters, %v, want %d", letters, err, want)
			}
		}
	}
	write := func(name string, changed time.Time) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(s.Dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(s.Dir, changed, changed); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	check(0)
	write("a.letter", now) // the next change can have the same time
	check(1)
	write("b.letter", now)
	check(2)
	write("c.letter", now.Add(-time.Hour))
	check(3)
	write("d.letter", now.Add(-time.Hour)) // which only a test can do: it shows that the directory is not read again
	check(3)
	write("e.letter", now.Add(-time.Minute))
	check(5)
}
