package state

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the reference files that the tests compare")

// events are those of testdata/events.jsonl, which the Python example is given too (test/e2e).
func events(t *testing.T) (all []Event) {
	t.Helper()
	text, err := os.ReadFile("../testdata/events.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var r struct {
			Attributes map[string]string
			Data       json.RawMessage
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		e, err := New(r.Attributes, r.Data)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // tests of what is written close it themselves
	return s
}

func printed(t *testing.T, s *Store) string {
	t.Helper()
	var out strings.Builder
	if err := s.Print(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// The state is the right one in whatever pieces the events come, and does not change when all come again.
func TestState(t *testing.T) {
	all := events(t)
	for _, size := range []int{1, 3, len(all)} {
		path := filepath.Join(t.TempDir(), "state.db")
		s := open(t, path)
		s.Sweep = true
		var said []string
		repeats := 0
		for at := 0; at < len(all); at += size {
			n, err := s.Apply(all[at:min(at+size, len(all))], func(text string) { said = append(said, text) })
			if err != nil {
				t.Fatal(err)
			}
			repeats += n
		}
		if repeats != 5 { // with those that are restated as they are known
			t.Errorf("%d repetitions", repeats)
		}
		want := []string{
			`gap: {"resource": "pods", "from": "1", "to": "2", "reason": "relist"}`, `gap: {"resource": "pods", "from": "", "to": "", "reason": "refused"}`,
			`synced: {"resource": "pods", "resourceVersion": "60", "objects": 3}`,
			`synced: {"resource": "things", "resourceVersion": "81", "objects": 3, "resync": true, "since": "2026-11-20T13:00:10.26Z"}`,
			"gone: /clusters/c/things/ns/missed",
		}
		if diff := cmp.Diff(want, said); diff != "" {
			t.Error(diff)
		}
		got := printed(t, s)
		const file = "../testdata/objects.jsonl"
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		objects, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(objects), got); diff != "" {
			t.Errorf("in batches of %d (-want +got):\n%s", size, diff)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, path) // without Sweep
		n, err := s.Apply(all, func(text string) {
			if strings.HasPrefix(text, "gone") {
				t.Error(text)
			}
		})
		if again := printed(t, s); again != got || n < len(all)-10 || err != nil {
			t.Errorf("after %d repetitions (%v):\n%s", n, err, cmp.Diff(got, again))
		}
	}
}

func TestWhatIsNoEvent(t *testing.T) {
	for _, attributes := range []map[string]string{
		{}, {"id": "x"}, {"id": "x", "type": "y"}, {"id": "x", "type": "y", "time": "noon"}, {"id": "x", "type": "y", "time": "2026-11-20T12:00:00Z", "resourceversion": "z"},
	} {
		if e, err := New(attributes, nil); err == nil {
			t.Errorf("%v became %+v", attributes, e)
		}
	}
}
