package state

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the reference files that the tests compare")

// testEvents are those of testdata/events.jsonl, which the Python example is given too (test/e2e).
func testEvents(t *testing.T) (all []Event) {
	t.Helper()
	text, err := os.ReadFile("../testdata/events.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var r struct {
			Attributes map[string]string
			Data       json.RawMessage
			Key        string
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		e, err := New(r.Attributes, r.Data)
		if r.Data == nil {
			e, err = Tombstone(r.Key), nil
		}
		if err != nil {
			t.Fatal(err)
		}
		e.Key = r.Key
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
	all := testEvents(t)
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
		if repeats != 11 { // with those that are restated as they are known
			t.Errorf("%d repetitions", repeats)
		}
		want := []string{
			`gap: {"resource": "pods", "from": "1", "to": "2", "reason": "relist"}`,
			`gap: {"resource": "pods", "from": "", "to": "", "reason": "refused"}`,
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
		s = open(t, path)
		s.Sweep = true
		n, err := s.Apply(all, func(string) {})
		if again := printed(t, s); again != got || n < len(all)-20 || err != nil {
			t.Errorf("after %d repetitions (%v):\n%s", n, err, cmp.Diff(got, again))
		}
	}
}

// Who does not read all of a stream in its order takes nothing for gone.
func TestWithoutSweep(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	_, err := s.Apply(testEvents(t), func(text string) {
		if strings.HasPrefix(text, "gone") {
			t.Error(text)
		}
	})
	if err != nil ||
		!strings.Contains(printed(t, s), `things/ns/missed","uid":"t2","resourceVersion":71,"deleted":false`) {
		t.Errorf("%v:\n%s", err, printed(t, s))
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

// Whatever is sent twice, as by a bridge that was killed and repeats the last events in their order: the state is the
// same.
func TestRepetitions(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		once, twice := open(t, filepath.Join(t.TempDir(), "once.db")), open(t, filepath.Join(t.TempDir(), "twice.db"))
		var sent, repeating []Event
		at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
		for _, e := range randomHistory(r) {
			e.Time = at
			sent, repeating = append(sent, e), append(repeating, e)
			if r.IntN(8) == 0 {
				repeating = append(repeating, sent[r.IntN(len(sent)):]...)
			}
		}
		for s, batch := range map[*Store][]Event{once: sent, twice: repeating} {
			if _, err := s.Apply(batch, func(string) {}); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(printed(t, once), printed(t, twice)); diff != "" {
			t.Fatalf("once and with repetitions:\n%s\n%+v", diff, repeating)
		}
	}
}

// randomHistory is what a bridge can send of three objects, in its order.
func randomHistory(r *rand.Rand) (all []Event) {
	type life struct {
		uid     string
		version uint64
		sent    bool // and not deleted
	}
	objects, version := make([]life, 3), uint64(0)
	for range 60 {
		n := r.IntN(len(objects))
		o := &objects[n]
		version++
		e := Event{Object: fmt.Sprintf("pods/ns/%d", n), Type: objectTypes + "updated"}
		switch kind := r.IntN(6); {
		case o.uid == "": // a new one
			*o = life{fmt.Sprintf("u%d", version), version, true}
			e.Type = objectTypes + "added"
		case !o.sent: // it comes back to the filter, changed or not
			e.Type, o.sent = objectTypes+"added", true
			if kind < 3 {
				o.version = version
			}
		case kind == 0: // deleted
			o.version = version
			e.Type, e.Deleted = objectTypes+"deleted", true
		case kind == 1: // deleted, unseen; perhaps in a state that is not the last one that was sent
			e.Type, e.Deleted, e.FinalStateUnknown = objectTypes+"deleted", true, true
			o.version -= uint64(r.IntN(2))
		case kind == 2: // it leaves the filter, changed or not
			e.Type, e.Deleted, o.sent = objectTypes+"deleted", true, false
			o.version += (version - o.version) * uint64(r.IntN(2))
		case kind == 3:
			e.Type = restated
		default:
			o.version = version
		}
		e.UID, e.Version = o.uid, o.version
		e.ID = fmt.Sprintf("%s.%d", e.UID, e.Version)
		e.Data = []byte(fmt.Sprintf(`"%s"`, e.ID))
		switch {
		case e.Deleted && !o.sent:
			e.ID += ".left"
		case e.Deleted:
			e.ID = e.UID + ".deleted"
			*o = life{}
		}
		all = append(all, e)
	}
	return all
}
