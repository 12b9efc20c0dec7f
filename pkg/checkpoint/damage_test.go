package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/test/scale"
)

// history is a file of several commits, with the content of each source after each of the last two commits.
type history struct {
	file     []byte
	previous map[string]map[string]string
	last     map[string]map[string]string
}

// record creates a history: two sources with trees of their own and an inline one, with rows that are changed, added
// and removed.
func recordHistory(t testing.TB) history {
	t.Helper()
	folder := t.TempDir()
	s := begin(t, folder)
	var h history
	for n := range 6 {
		var updates []ledger.Update
		for i, name := range []string{"few", "many", "pods"} {
			u := ledger.Update{
				State: ledger.State{
					Source:          testSource(name),
					ResourceVersion: fmt.Sprint(n),
					Sinks:           map[string]string{"a": fmt.Sprint(n)},
				},
			}
			for j := range []int{1, 60, 12}[i] {
				if (j+n)%3 != 0 {
					continue
				}
				if name == "pods" {
					u.Upserts = append(u.Upserts, pod(t, j, n))
				} else {
					u.Upserts = append(u.Upserts, small(t, "ns", fmt.Sprintf("%s-%04d", name, j), fmt.Sprint(n)))
				}
			}
			u.Deletes = []string{fmt.Sprintf("ns/many-%04d", n)}
			updates = append(updates, u)
		}
		commit(t, s, map[string]string{"a": "rules"}, updates...)
		h.previous, h.last = h.last, contents(t, s)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	h.file = file
	return h
}

// contents returns the sources of a store with their watermarks and rows. It omits sources that cannot be read.
func contents(t testing.TB, s *Store) map[string]map[string]string {
	t.Helper()
	all := map[string]map[string]string{}
	states, err := s.States()
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range states {
		loaded, objects, err := load(s, state.Source.Name)
		if errors.Is(err, boltfile.ErrDamaged) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		rows := rowsFrom(objects...)
		rows["watermark"] = fmt.Sprint(loaded)
		all[state.Source.Name] = rows
	}
	return all
}

// survives opens a damaged file and checks what must be true for any damage: the store can be opened and used. For
// every source, it returns the content of one of the last two commits, or reports that it cannot.
func (h history) survives(t testing.TB, file []byte) {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, fileName), file, 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s, err := Open(Options{Path: folder, NoSync: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got := contents(t, s)
	removed := bytes.Count(log.Bytes(), []byte("removing a source from the checkpoint"))
	if states, err := s.States(); err != nil || len(states)+removed < len(h.last) && s.Stats().Quarantined == 0 {
		t.Errorf("sources are missing and nothing says so: %v, %v", states, err)
	}
	for name, rows := range got {
		if !maps.Equal(rows, h.last[name]) && !maps.Equal(rows, h.previous[name]) {
			t.Errorf("source %s is what it never was: %d rows", name, len(rows))
		}
	}
	usable(t, reset(t, s))
}

// reset forgets all sources, including damaged ones.
func reset(t testing.TB, s *Store) *Store {
	t.Helper()
	for _, name := range s.record.Sources {
		if err := s.Forget(name); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestWholeFileIsSound(t *testing.T) {
	h := recordHistory(t)
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, fileName), h.file, 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, folder)
	got := contents(t, s)
	if !maps.EqualFunc(got, h.last, maps.Equal) || len(got) != 3 || s.Stats().Quarantined != 0 {
		t.Error("not what was committed last")
	}
}

func TestDamagedFile(t *testing.T) {
	h := recordHistory(t)
	noise := noise(1, 40_000)
	files := map[string][]byte{
		"empty": {}, "one byte": {0}, "zeros": make([]byte, 64<<10), "zeros, odd size": make([]byte, 5001), "noise": noise,
		"meta pages only": h.file[:2*pageSize], "too long": append(bytes.Clone(h.file), noise...),
		"twice": append(bytes.Clone(h.file), h.file...), "half noise": append(bytes.Clone(h.file[:len(h.file)/2]), noise...),
	}
	for name, file := range files {
		t.Run(name, func(t *testing.T) { h.survives(t, file) })
	}
}

func TestTruncatedFile(t *testing.T) {
	h := recordHistory(t)
	for size := range len(h.file) {
		if size%pageSize > 1 && size%997 != 0 {
			continue
		}
		h.survives(t, h.file[:size])
	}
}

// TestFlippedBits flips bits that determine how the file is read: in all meta pages, and in the headers and elements of
// all other pages.
func TestFlippedBits(t *testing.T) {
	h := recordHistory(t)
	step := scale.Of(13, 3) // no divisor of 8, so that all bits have their turn
	for page := range len(h.file) / pageSize {
		// A page's header has 16 bytes; then come a meta page's 64 bytes, or the elements of others.
		for i := 0; i < 96; i += step {
			file := bytes.Clone(h.file)
			file[page*pageSize+i] ^= 1 << (i % 8)
			h.survives(t, file)
		}
	}
}

func TestFlippedBitsAnywhere(t *testing.T) {
	h := recordHistory(t)
	random := rand.New(rand.NewPCG(1, 2))
	for range scale.Of(100, 400) {
		file := bytes.Clone(h.file)
		for range 1 + random.IntN(3) {
			file[random.IntN(len(file))] ^= 1 << random.IntN(8)
		}
		h.survives(t, file)
	}
}

// TestLostWrite replaces pages of a later commit with pages of an earlier commit, as if a disk had reported a write
// that it did not perform. Every page is undamaged.
func TestLostWrite(t *testing.T) {
	folder := t.TempDir()
	s := begin(t, folder)
	var files [][]byte
	h := history{}
	for n := range 5 {
		u := ledger.Update{State: ledger.State{Source: testSource("pods"), ResourceVersion: fmt.Sprint(n)}}
		for i := range 40 {
			u.Upserts = append(u.Upserts, small(t, "ns", fmt.Sprintf("%04d", i), fmt.Sprint(n)))
		}
		commit(t, s, nil, u)
		h.previous, h.last = h.last, contents(t, s)
		file, err := os.ReadFile(s.path)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	last := files[len(files)-1]
	for _, earlier := range files[:len(files)-1] {
		for at := 2 * pageSize; at+pageSize <= len(earlier); at += pageSize {
			file := bytes.Clone(last)
			copy(file[at:at+pageSize], earlier[at:])
			h.survives(t, file)
		}
	}
}

// FuzzDamage lets the fuzzer change bytes and truncate the file. The seeds are cases that the tests above do not cover.
func FuzzDamage(f *testing.F) {
	h := recordHistory(f)
	f.Add([]byte{0, 0, 0, 1, 0, 0, 80, 255}, uint32(0))
	f.Fuzz(func(t *testing.T, changes []byte, cut uint32) {
		file := bytes.Clone(h.file)
		for ; len(changes) >= 4; changes = changes[4:] {
			at := int(binary.BigEndian.Uint32(changes)>>8) % len(file)
			file[at] ^= changes[3]
		}
		h.survives(t, file[:len(file)-int(cut)%len(file)])
	})
}

func TestDamagedRow(t *testing.T) {
	good, other := small(t, "ns", "a", "1"), small(t, "ns", "b", "1")
	var codec rowCodec
	row := codec.encode("ns/a", good)
	content := func(b ...byte) []byte { return seal("ns/a", append(make([]byte, sealSize), b...)) }
	rows := map[string]struct {
		key   string
		value []byte
	}{
		"bit":                   {"ns/a", append(row[:len(row)-1:len(row)-1], row[len(row)-1]^1)},
		"short":                 {"ns/a", row[:3]},
		"no bytes":              {"ns/a", []byte{}},
		"no content":            {"ns/a", content()},
		"unknown encoding":      {"ns/a", content(9, 0, '{', '}')},
		"length of the manager": {"ns/a", content(bodyRaw)},
		"long manager":          {"ns/a", content(bodyRaw, 200, 1, 'x')},
		"no s2":                 {"ns/a", content(bodyS2, 0, 255, 255, 255)},
		"no JSON":               {"ns/a", content(bodyRaw, 0, 'x')},
		"another's":             {"ns/a", codec.encode("ns/a", other)},
		"of another key":        {"ns/b", row},
		"one more":              {"ns/b", codec.encode("ns/b", other)},
		"not what it was":       {"ns/a", codec.encode("ns/a", small(t, "ns", "a", "2"))},
		"one less":              {"ns/a", nil},
	}
	for name, test := range rows {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			s := begin(t, folder)
			source := testSource("pods")
			commit(
				t,
				s,
				nil,
				ledger.Update{State: ledger.State{Source: source, ResourceVersion: "5"}, Upserts: []*object.Object{good}},
				ledger.Update{
					State:   ledger.State{Source: testSource("sound"), ResourceVersion: "6"},
					Upserts: []*object.Object{good},
				},
			)
			s.Close()
			edit(t, s.path, func(tx *bbolt.Tx) error {
				bucket := tx.Bucket([]byte(bucketRows)).Bucket([]byte("pods"))
				if test.value == nil {
					return bucket.Delete([]byte(test.key))
				}
				return bucket.Put([]byte(test.key), test.value)
			})
			s = open(t, folder)
			if state, objects, err := s.Load(
				"pods",
			); !errors.Is(err, boltfile.ErrDamaged) || state.Source.Name != "" ||
				len(objects) != 0 {
				t.Errorf("%+v %d %v", state, len(objects), err)
			}
			if s.Stats().Quarantined != 0 {
				t.Error("the file was quarantined")
			}
			if _, rows := rowsOf(t, s, "sound"); len(rows) != 1 {
				t.Error("a sound source is gone")
			}
			// What the next list brings is all that there is, and is sound.
			commit(t, s, map[string]string{}, part("pods", true, other))
			commit(
				t,
				s,
				nil,
				ledger.Update{
					State:   ledger.State{Source: source, ResourceVersion: "8"},
					Upserts: []*object.Object{small(t, "ns", "c", "1")},
				},
			)
			for range 2 {
				if state, rows := rowsOf(t, s, "pods"); state.ResourceVersion != "8" || len(rows) != 2 {
					t.Errorf("%+v %v", state, rows)
				}
				s.Close()
				s = open(t, folder)
			}
		})
	}
}

func TestDamagedSourceRecord(t *testing.T) {
	for name, change := range map[string]func(b *bbolt.Bucket) error{
		"changed": func(b *bbolt.Bucket) error { return b.Put([]byte("pods"), []byte("....{}")) },
		"missing": func(b *bbolt.Bucket) error { return b.Delete([]byte("pods")) },
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			s := begin(t, folder)
			commit(
				t,
				s,
				map[string]string{"a": ""},
				ledger.Update{
					State:   ledger.State{Source: testSource("pods"), ResourceVersion: "5"},
					Upserts: []*object.Object{small(t, "n", "a", "1")},
				},
			)
			s.Close()
			edit(t, s.path, func(tx *bbolt.Tx) error { return change(tx.Bucket([]byte(bucketSources))) })
			s = open(t, folder)
			if states, err := s.States(); err != nil || len(states) != 0 {
				t.Errorf("%v %v", states, err)
			}
			commit(
				t,
				s,
				map[string]string{},
				ledger.Update{State: ledger.State{Source: testSource("nodes"), ResourceVersion: "5"}},
			)
			commit(t, s, nil, ledger.Update{State: ledger.State{Source: testSource("pods"), ResourceVersion: "6"}})
			if state, rows := rowsOf(t, s, "pods"); state.ResourceVersion != "6" || len(rows) != 0 {
				t.Errorf("%+v %v", state, rows)
			}
		})
	}
}

// TestPanicIsAnError: bbolt panics on a page that is not what it should be.
func TestPanicIsAnError(t *testing.T) {
	s := begin(t, t.TempDir())
	commit(
		t,
		s,
		nil,
		ledger.Update{State: ledger.State{Source: testSource("pods"), ResourceVersion: "1"}, Upserts: pods(t, 0, 50, 1)},
	)
	file, err := os.OpenFile(s.path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt(make([]byte, info.Size()-2*pageSize), 2*pageSize); err != nil {
		t.Fatal(err)
	}
	if state, rows, err := s.Load(
		"pods",
	); !errors.Is(err, boltfile.ErrDamaged) || len(rows) != 0 ||
		state.Source.Name != "" {
		t.Errorf("%+v %d %v", state, len(rows), err)
	}
	// Past the end of the file the memory map faults.
	if err := file.Truncate(2 * pageSize); err != nil {
		t.Fatal(err)
	}
	if err := s.view(func(tx *bbolt.Tx) error { tx.Bucket([]byte("x")); return nil }); err == nil {
		t.Error("a fault is no error")
	}
}

func TestCodecRefusesWhatIsSealedButWrong(t *testing.T) {
	var codec rowCodec
	row := codec.encode("ns/b", small(t, "ns", "a", "1")) // a mistake of the program, not of the disk
	if _, err := codec.decode("ns/b", row); !errors.Is(err, boltfile.ErrDamaged) {
		t.Error(err)
	}
}
