package segment

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/deltabridge/deltabridge/test/scale"
)

// image is the content of a directory.
type image map[string][]byte

func imageOf(t *testing.T, dir string) image {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	i := image{}
	for _, e := range entries {
		if i[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return i
}

// restore creates a directory with the content of the image.
func (i image) restore(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "log")
	err := os.Mkdir(dir, 0o700)
	for name, data := range i {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// The power fails during an Append, which has written any part of its data. The log then contains a prefix of the
// records, with the positions of exactly this prefix, and can be used.
func TestTornTail(t *testing.T) {
	for name, bytes := range map[string]int64{"one segment": DefaultBytes, "several": 150} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "log")
			l := open(t, dir, bytes)
			appendTo(t, l, 1, 7)
			if err := l.Ack(2); err != nil {
				t.Fatal(err)
			}
			before := imageOf(t, dir)
			appendTo(t, l, 8, 14)
			after := imageOf(t, dir)
			for name, data := range after {
				if name == stateName || slices.Equal(data, before[name]) {
					continue
				}
				torn := image{}
				for other, data := range after {
					if other < name || before[other] != nil {
						torn[other] = data // was synced before, or is not written to
					}
				}
				torn[stateName] = before[stateName]
				for n := len(before[name]); n <= len(data); n += scale.Of(5, 1) {
					hole := make([]byte, min(100, len(data)-n)) // written out of order
					for _, garbage := range [][]byte{
						nil, make([]byte, len(data)-n), []byte("garbage"), slices.Concat(hole, data[n+len(hole):]),
					} {
						torn[name] = slices.Concat(data[:n], garbage)
						checkTorn(t, torn.restore(t), bytes)
					}
				}
			}
		})
	}
}

func checkTorn(t *testing.T, dir string, bytes int64) {
	t.Helper()
	l := open(t, dir, bytes)
	last := l.Last()
	if last < 7 || last > 14 {
		t.Fatalf("the last record is %d", last)
	}
	wantRead(t, l, 3, last)
	for source, position := range l.Positions() {
		want := ""
		for n := last; n > last-3; n-- {
			if fmt.Sprint("source", n%3) == source {
				want = fmt.Sprint(n)
			}
		}
		if position != want {
			t.Fatalf("%s is at %s, want %s; the last record is %d", source, position, want, last)
		}
	}
	appendTo(t, l, last+1, last+5)
	wantRead(t, l, 3, last+5)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir, bytes)
	wantRead(t, again, 3, last+5)
	if err := errors.Join(again.Ack(last+5), again.Close()); err != nil {
		t.Fatal(err)
	}
}

// A byte is changed anywhere, or a file is truncated anywhere. At most one or two records are lost, and the loss is
// reported. If the state file is affected, the whole log can be lost.
func TestDamageAnywhere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	l := open(t, dir, 300)
	appendTo(t, l, 1, 20)
	if err := errors.Join(l.Ack(2), l.Close()); err != nil {
		t.Fatal(err)
	}
	whole := imageOf(t, dir)
	if len(whole) < 4 {
		t.Fatalf("%d files", len(whole))
	}
	step := scale.Of(13, 1)
	lostOne, lostNone := 0, 0
	for name, data := range whole {
		for at := 0; at < len(data); at += step {
			if name == stateName && at >= slotBytes && at < slotDistance {
				continue
			}
			changed := maps.Clone(whole)
			changed[name] = slices.Clone(data)
			changed[name][at] ^= 0x41
			switch lost := lostOf(t, changed); {
			case lost == 0:
				lostNone++
			case lost == 1 && name != stateName:
				lostOne++
			default:
				t.Fatalf("byte %d of %s: %d lost", at, name, lost)
			}
			changed[name] = data[:at]
			if name != stateName {
				lostOf(t, changed)
			}
		}
	}
	if lostOne == 0 || lostNone == 0 {
		t.Errorf("%d times one was lost, %d times none", lostOne, lostNone)
	}
}

// lostOf is how many records of 3..20 are lost; all of these are accounted for, and what is appended is not lost.
func lostOf(t *testing.T, i image) int {
	t.Helper()
	l := open(t, i.restore(t), 300)
	if l.Last() != 20 {
		t.Fatalf("the last record is %d", l.Last())
	}
	appendTo(t, l, 21, 22)
	read, lost := readAll(t, l)
	if n := len(
		read,
	) + len(
		lost,
	); n != 22-int(l.Acked()) || l.Acked() > 2 || !slices.Contains(read, 21) ||
		!slices.Contains(read, 22) {
		t.Fatalf("read %v, lost %v", read, lost)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return len(lost)
}

// faultyFile is a file that fails as the test requires.
type faultyFile struct {
	file
	fail func(write bool) bool
}

var errFull = errors.New("no space left on device")

func (f faultyFile) WriteAt(data []byte, off int64) (int, error) {
	if !f.fail(true) {
		return f.file.WriteAt(data, off)
	}
	n, err := f.file.WriteAt(data[:len(data)*2/3], off)
	return n, errors.Join(err, errFull)
}

func (f faultyFile) Sync() error {
	if f.fail(false) {
		return errFull
	}
	return f.file.Sync()
}

// model describes the expected content of a Log.
type model struct {
	t           *testing.T
	dir         string
	bytes       int64
	log         *Log
	acked, last uint64
	tried       uint64 // an Append that failed can have written records up to this one
	faults      int    // so many writes or syncs of segments will fail, after some others
	after       int
}

func newModel(t *testing.T, bytes int64) *model {
	m := &model{t: t, dir: filepath.Join(t.TempDir(), "log"), bytes: bytes}
	m.reopen()
	return m
}

func (m *model) reopen() {
	l, err := Open(m.dir, m.bytes, quiet(), func(damage error) { m.t.Fatal(damage) })
	if err != nil {
		m.t.Fatal(err)
	}
	l.make = func(path string) (file, error) {
		f, err := makeFile(path)
		return faultyFile{f, m.fail}, err
	}
	if l.Last() < m.last && l.Acked() < m.acked || l.Last() > max(m.last, m.tried) || l.Acked() > m.acked {
		m.t.Fatalf("records %d to %d, want %d to %d (%d)", l.Acked()+1, l.Last(), m.acked+1, m.last, m.tried)
	}
	if l.Acked() < m.acked && l.Last() > l.Acked() {
		m.t.Fatalf("acknowledged up to %d of %d, want %d", l.Acked(), l.Last(), m.acked)
	}
	m.log, m.acked, m.last, m.tried = l, l.Acked(), l.Last(), 0
}

func (m *model) fail(bool) bool {
	if m.faults == 0 {
		return false
	}
	if m.after > 0 {
		m.after--
		return false
	}
	m.faults--
	return true
}

// append appends records; hole are acknowledged without being written.
func (m *model) append(n, hole uint64) {
	if hole > 0 {
		m.ack(m.last + hole)
	}
	first := m.last + 1
	err := m.log.Append(batchOf(m.t, m.log, first, first+n-1), nil)
	switch {
	case err == nil:
		m.last = first + n - 1
	case errors.Is(err, errFull):
		m.tried = max(m.tried, first+n-1)
	default:
		m.t.Fatalf("Append(%d, %d) = %v", first, n, err)
	}
}

func (m *model) ack(upTo uint64) {
	if err := m.log.Ack(upTo); err != nil && !errors.Is(err, errFull) {
		m.t.Fatal(err)
	}
	m.acked, m.last = max(m.acked, upTo), max(m.last, upTo)
}

// step executes one operation.
func (m *model) step(op, arg byte) {
	switch op % 8 {
	case 0, 1, 2:
		m.append(1+uint64(arg%9), 0)
	case 3:
		m.append(1+uint64(arg%3), uint64(arg%4))
	case 4, 5:
		m.ack(min(m.last, m.acked+uint64(arg%16)))
	case 6:
		m.faults, m.after = int(arg%3), int(arg/4%5)
	case 7:
		if err := m.log.Close(); err != nil {
			m.t.Fatal(err)
		}
		m.reopen()
	}
	if m.log.Acked() != m.acked || m.log.Last() != m.last {
		m.t.Fatalf("records %d to %d, want %d to %d", m.log.Acked()+1, m.log.Last(), m.acked+1, m.last)
	}
	wantRead(m.t, m.log, m.acked+1, m.last)
	positions := m.log.Positions()
	for n := m.last; n > m.acked && n+3 > m.last; n-- {
		if got := positions[fmt.Sprint("source", n%3)]; got != fmt.Sprint(n) {
			m.t.Fatalf("record %d: the position is %q", n, got)
		}
	}
}

func (m *model) finish() {
	m.faults = 0
	m.ack(m.last)
	if err := m.log.Close(); err != nil {
		m.t.Fatal(err)
	}
	if m.reopen(); m.last > m.acked || len(segments(m.t, m.dir)) > 0 {
		m.t.Fatalf("records %d to %d are left in %v", m.acked+1, m.last, segments(m.t, m.dir))
	}
	if err := m.log.Close(); err != nil {
		m.t.Fatal(err)
	}
}

// FuzzLog compares a log with a model, over crashes between any two steps, writes that are short and syncs that fail.
func FuzzLog(f *testing.F) {
	f.Add(byte(0), []byte("0000407007304050607"))
	f.Add(byte(30), []byte("0a1b2c6d0e0f4g7h3i4j6k0l7m4n"))
	f.Add(byte(200), []byte("090909090949576a0909094f77393b"))
	f.Fuzz(func(t *testing.T, bytes byte, ops []byte) {
		if len(ops) > 200 {
			return
		}
		m := newModel(t, 1+int64(bytes)*8)
		for ; len(ops) >= 2; ops = ops[2:] {
			m.step(ops[0], ops[1])
		}
		m.finish()
	})
}

// The fuzz target's steps in long random runs.
func TestRandomFaults(t *testing.T) {
	for seed := range scale.Of[uint64](3, 40) {
		random := rand.New(rand.NewPCG(seed, 7)).IntN
		m := newModel(t, 1+int64(random(2)*random(2000)))
		for range scale.Of(100, 1000) {
			m.step(byte(random(256)), byte(random(256)))
		}
		m.finish()
	}
}

// The directory is removed while the log is in use. The records in it are lost, which is reported. Records that are
// appended later are not lost.
func TestDirectoryRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	l := open(t, dir, 150)
	appendTo(t, l, 1, 20)
	wantRead(t, l, 1, 20)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	appendTo(t, l, 21, 40)
	read, lost := readAll(t, l)
	if len(read)+len(lost) != 40 || !slices.Contains(read, 40) || !slices.Contains(lost, 10) {
		t.Errorf("read %v, lost %v", read, lost)
	}
	if err := errors.Join(l.Ack(38), l.Close()); err != nil {
		t.Fatal(err)
	}
	wantRead(t, open(t, dir, 150), 39, 40)
}

// Where the positions at the beginning of the newest segment are damaged, those of an older one count, and what its
// records say.
func TestPositionsOfAnOlderSegment(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	l := open(t, dir, 150)
	if err := l.Append(batchOf(t, l, 1, 3), map[string]string{"other": "7"}); err != nil {
		t.Fatal(err)
	}
	appendTo(t, l, 4, 20)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	names := segments(t, dir)
	if len(names) < 4 {
		t.Fatalf("%d segments", len(names))
	}
	for _, name := range names[2:] {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		data[headBytes]++
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l = open(t, dir, 150)
	if got := l.Positions(); got["other"] != "7" || got["source0"] != "18" || got["source1"] != "19" ||
		got["source2"] != "20" {
		t.Errorf("positions %v", got)
	}
	wantRead(t, l, 1, 20)
}

// If the disk is full, data that could not be written uses no space. Acknowledgements free space, and the log can then
// be written again.
func TestFullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	l := open(t, dir, 150)
	full := false
	l.make = func(path string) (file, error) {
		f, err := makeFile(path)
		return faultyFile{f, func(bool) bool { return full }}, err
	}
	appendTo(t, l, 1, 10)
	before := l.Size()
	full = true
	for range 3 {
		if err := l.Append(batchOf(t, l, 11, 14), nil); !errors.Is(err, errFull) || l.Last() != 10 {
			t.Fatalf("Append = %v, the last record is %d", err, l.Last())
		}
	}
	var onDisk int64
	for _, name := range segments(t, dir) {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		onDisk += info.Size()
	}
	if l.Size() != before || onDisk != before {
		t.Errorf("%d bytes on disk, counted %d, before %d", onDisk, l.Size(), before)
	}
	if err := l.Ack(9); err != nil {
		t.Fatal(err)
	}
	if l.Size() >= before {
		t.Error("acknowledging makes no room")
	}
	wantRead(t, l, 10, 10)
	full = false
	appendTo(t, l, 11, 14)
	wantRead(t, l, 10, 14)
}
