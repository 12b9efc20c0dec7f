package segment

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/files"
	"github.com/deltabridge/deltabridge/test/laterformat"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// open opens a log that must be usable, and closes it when the test ends.
func open(t *testing.T, dir string, bytes int64) *Log {
	t.Helper()
	l, err := Open(dir, bytes, quiet(), func(damage error) { t.Fatal(damage) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// content is the data of a record with this number; the length depends on it.
func content(number uint64) []byte {
	return []byte(strings.Repeat(fmt.Sprintf("<%d>", number), 1+int(number%5)))
}

// batchOf returns a batch with the records from..to. Their source is named after the number modulo 3.
func batchOf(t *testing.T, l *Log, from, to uint64) *Batch {
	t.Helper()
	return addTo(t, l.NewBatch(), from, to)
}

func addTo(t *testing.T, b *Batch, from, to uint64) *Batch {
	t.Helper()
	for n := from; n <= to; n++ {
		source := fmt.Sprint("source", n%3)
		if added, err := b.Add(n, source, fmt.Sprint(n), math.MaxInt64, func(dst []byte) ([]byte, error) {
			return append(dst, content(n)...), nil
		}); !added || err != nil {
			t.Fatal(added, err)
		}
	}
	return b
}

// appendTo appends records, at a time as many as a segment has room for.
func appendTo(t *testing.T, l *Log, from, to uint64) {
	t.Helper()
	for from <= to {
		end := from
		for end < to && batchOf(t, l, from, end+1).Bytes() <= l.bytes {
			end++
		}
		if err := l.Append(batchOf(t, l, from, end), nil); err != nil || l.Last() != end {
			t.Fatalf("Append(%d..%d): %d, %v", from, end, l.Last(), err)
		}
		from = end + 1
	}
}

// readAll reads all unacknowledged records, and returns the numbers of the records that could be read and of those that
// are lost.
func readAll(t *testing.T, l *Log) (read, lost []uint64) {
	t.Helper()
	for n := l.Acked() + 1; n <= l.Last(); {
		records, err := read3(l, n)
		if err != nil || len(records) == 0 {
			t.Fatalf("Read(%d) = %d records, %v", n, len(records), err)
		}
		for _, r := range records {
			if r.First != n || r.Last < r.First || r.Last > l.Last() {
				t.Fatalf("record %d to %d, want it to begin with %d, and to end with %d at most", r.First, r.Last, n, l.Last())
			}
			if r.Err == nil {
				if diff := cmp.Diff(string(content(n)), string(r.Data)); diff != "" {
					t.Fatalf("record %d:\n%s", n, diff)
				}
				read = append(read, n)
			} else {
				for lostNumber := r.First; lostNumber <= r.Last; lostNumber++ {
					lost = append(lost, lostNumber)
				}
			}
			n = r.Last + 1
		}
	}
	return read, lost
}

// read3 reads up to three records, of which the last is not used.
func read3(l *Log, from uint64) (records []Record, err error) {
	for range 3 {
		r, err := l.Read(from)
		if err != nil {
			return nil, err
		}
		records = append(records, r)
		if from = r.Last + 1; from > l.Last() {
			return records, nil
		}
	}
	return records[:2], nil
}

func numbers(from, to uint64) (n []uint64) {
	for ; from <= to; from++ {
		n = append(n, from)
	}
	return n
}

func wantRead(t *testing.T, l *Log, from, to uint64) {
	t.Helper()
	read, lost := readAll(t, l)
	if !slices.Equal(read, numbers(from, to)) || len(lost) > 0 {
		t.Fatalf("read %v, lost %v, want %d to %d", read, lost, from, to)
	}
}

func segments(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestAppendReadAck(t *testing.T) {
	for _, bytes := range []int64{1, 200, DefaultBytes} {
		t.Run(fmt.Sprint(bytes), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "log")
			l := open(t, dir, bytes)
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Error("there is a directory before the first record")
			}
			if err := l.Ack(5); err != nil { // of records that were never written
				t.Fatal(err)
			}
			appendTo(t, l, 6, 20)
			wantRead(t, l, 6, 20)
			if err := l.Ack(9); err != nil {
				t.Fatal(err)
			}
			appendTo(t, l, 21, 40)
			wantRead(t, l, 10, 40)
			if n := len(segments(t, dir)); n != map[int64]int{1: 31, DefaultBytes: 1}[bytes] && bytes != 200 {
				t.Errorf("%d segments", n)
			}
			bytes0 := l.Size()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}

			if n, err := Peek(dir); n != 31 || err != nil {
				t.Errorf("Peek = %d, %v", n, err)
			}
			l = open(t, dir, bytes)
			wantRead(t, l, 10, 40)
			if diff := cmp.Diff(
				map[string]string{"source0": "39", "source1": "40", "source2": "38"},
				l.Positions(),
			); diff != "" {
				t.Error(diff)
			}
			var size int64
			for _, name := range append(segments(t, dir), filepath.Join(dir, stateName)) {
				info, err := os.Stat(name)
				if err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("%v, %v", info.Mode(), err)
				}
				size += info.Size()
			}
			if again := l.Size(); size != bytes0+StateBytes || again != bytes0 || bytes0 < 500 {
				t.Errorf("%d bytes in files, %d when they are opened, which have %d", bytes0, again, size)
			}
			appendTo(t, l, 41, 50)
			wantRead(t, l, 10, 50)
			if err := l.Ack(50); err != nil {
				t.Fatal(err)
			}
			if names := segments(t, dir); len(names) > 0 {
				t.Errorf("left: %v", names)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := read3(l, 50); !errors.Is(err, ErrClosed) {
				t.Errorf("Read = %v", err)
			}
			if l = open(t, dir, bytes); l.Acked() != 50 || l.Last() != 50 {
				t.Errorf("acknowledged up to %d of %d", l.Acked(), l.Last())
			}
		})
	}
}

// Records that are acknowledged and were never written leave a hole. Readers do not see it, even after a crash at any
// moment.
func TestHole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	l := open(t, dir, DefaultBytes)
	appendTo(t, l, 1, 5)
	if err := l.Ack(5); err != nil {
		t.Fatal(err)
	}
	if err := l.Ack(9); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(batchOf(t, l, 10, 12), map[string]string{"other": "77"}); err != nil {
		t.Fatal(err)
	}
	if err := l.Ack(14); err != nil {
		t.Fatal(err)
	}
	appendTo(t, l, 15, 16)
	check := func(l *Log) {
		t.Helper()
		wantRead(t, l, 15, 16)
		if got := l.Positions(); got["other"] != "77" || got["source0"] != "15" || got["source2"] != "11" {
			t.Errorf("positions %v", got)
		}
	}
	check(l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = open(t, dir, DefaultBytes)
	check(l)
	if n := len(segments(t, dir)); n != 1 {
		t.Errorf("%d segments", n)
	}
}

// What was read and not used is read again; so is all of it, from any place.
func TestReadAgain(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "log"), 150)
	appendTo(t, l, 1, 30)
	for _, from := range []uint64{1, 2, 2, 30, 5, 7, 6, 8, 8, 1, 29} {
		records, err := read3(l, from)
		if err != nil || len(records) == 0 || records[0].First != from {
			t.Fatalf("Read(%d) = %+v, %v", from, records, err)
		}
		for i, r := range records {
			if want := from + uint64(i); r.First != want || string(r.Data) != string(content(want)) || r.Err != nil {
				t.Fatalf("%+v", r)
			}
		}
	}
}

// A record larger than the window that is read at a time.
func TestLargeRecord(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	l := open(t, dir, DefaultBytes)
	large := make([]byte, 5*windowBytes)
	b := l.NewBatch()
	for n := range uint64(3) {
		data := large[:len(large)-int(n)]
		if n == 2 {
			data = nil
		}
		encode := func(dst []byte) ([]byte, error) { return append(dst, data...), nil }
		if added, err := b.Add(n+1, "", "", b.Bytes()+headBytes+int64(len(data))-1, encode); added || err != nil {
			t.Fatal("added beyond the room", err)
		}
		if added, err := b.Add(n+1, "", "", b.Bytes()+headBytes+int64(len(data)), encode); !added || err != nil {
			t.Fatal(added, err)
		}
	}
	none := func(dst []byte) ([]byte, error) { return dst, nil }
	if _, err := b.Add(4, strings.Repeat("x", 1<<16), "", math.MaxInt64, none); err == nil {
		t.Error("a source that is too long was taken")
	}
	fail := errors.New("no")
	if _, err := b.Add(
		4,
		"",
		"",
		math.MaxInt64,
		func([]byte) ([]byte, error) { return nil, fail },
	); !errors.Is(err, fail) ||
		b.Last() != 3 {
		t.Errorf("%v; the last record is %d", err, b.Last())
	}
	if err := l.Append(b, nil); err != nil {
		t.Fatal(err)
	}
	var records []Record
	var err error
	for n := uint64(1); n <= 3 && err == nil; n++ {
		var r Record
		r, err = l.Read(n)
		records = append(records, r)
	}
	if err != nil || len(records) != 3 || len(records[0].Data) != len(large) || len(records[1].Data) != len(large)-1 ||
		len(records[2].Data) != 0 {
		t.Errorf("%d records, %v", len(records), err)
	}
}

// Another kind of log finds in a batch what was added to it.
func TestBatch(t *testing.T) {
	b := NewBatch()
	for _, positions := range []map[string]string{{"source0": "6", "source1": "7", "source2": "5"}, {}, {"source0": "3"}} {
		b.Reset()
		from, to := uint64(5), uint64(7)
		switch len(positions) {
		case 0:
			from, to = 1, 0
		case 1:
			from, to = 3, 3
		}
		addTo(t, b, from, to)
		next := from
		for number, data := range b.Records() {
			if number != next || string(data) != string(content(number)) {
				t.Errorf("record %d: %s, want %d", number, data, next)
			}
			next++
		}
		if diff := cmp.Diff(positions, b.Positions()); diff != "" || next != to+1 {
			t.Errorf("%d records, positions: %s", next-from, diff)
		}
	}
	for number := range b.Records() {
		if number == 3 {
			break
		}
	}
}

func TestLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	l := open(t, dir, DefaultBytes)
	second := open(t, dir, DefaultBytes) // there is nothing to lock yet
	appendTo(t, l, 1, 3)
	if err := second.Append(batchOf(t, second, 1, 2), nil); !errors.Is(err, files.ErrLocked) {
		t.Errorf("Append = %v", err)
	}
	if _, err := Open(dir, DefaultBytes, quiet(), nil); !errors.Is(err, files.ErrLocked) {
		t.Errorf("Open = %v", err)
	}
	if _, err := Peek(dir); !errors.Is(err, files.ErrLocked) {
		t.Errorf("Peek = %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := second.Append(batchOf(t, second, 1, 2), nil); err == nil {
		t.Error("a log was overwritten that another process has made meanwhile")
	}
	wantRead(t, open(t, dir, DefaultBytes), 1, 3)
}

// A state that was being written when the power failed: the one before counts, at each byte.
func TestTornState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	l := open(t, dir, DefaultBytes)
	appendTo(t, l, 1, 9)
	for n := uint64(1); n <= 3; n++ {
		if err := l.Ack(n); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(dir, stateName)
	before, err := os.ReadFile(name)
	if err == nil {
		err = errors.Join(l.Ack(4), l.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for n := range after {
		if err := os.WriteFile(name, slices.Concat(after[:n], before[n:]), 0o600); err != nil {
			t.Fatal(err)
		}
		if n < len(after)-1 && after[n] == before[n] {
			continue
		}
		l := open(t, dir, DefaultBytes)
		if l.Acked() != 3 && l.Acked() != 4 || l.Last() != 9 {
			t.Fatalf("with %d new bytes: acknowledged up to %d of %d", n, l.Acked(), l.Last())
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A directory without records is as none, whatever its state is; one of a newer format is refused.
func TestFreshDirectory(t *testing.T) {
	for name, state := range map[string][]byte{
		"empty": nil, "short": make([]byte, 10), "zeros": make([]byte, StateBytes),
		"garbage": []byte(strings.Repeat("garbage", StateBytes/7+1)),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if state != nil {
				if err := os.WriteFile(filepath.Join(dir, stateName), state, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			l := open(t, dir, DefaultBytes)
			appendTo(t, l, 1, 3)
			wantRead(t, l, 1, 3)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			wantRead(t, open(t, dir, DefaultBytes), 1, 3)
		})
	}
	dir := filepath.Join(t.TempDir(), "log")
	l := open(t, dir, DefaultBytes)
	appendTo(t, l, 1, 3)
	if err := errors.Join(l.Ack(2), l.Close()); err != nil {
		t.Fatal(err)
	}
	laterformat.Write(t, dir)
	if _, err := Open(dir, DefaultBytes, quiet(), nil); !errors.Is(err, files.NewerFormatError{What: dir, Format: 2}) {
		t.Errorf("Open = %v", err)
	}
	laterformat.Restore(t, dir)
	wantRead(t, open(t, dir, DefaultBytes), 3, 3)
}

// If a process ended before it removed acknowledged records, they are removed when the log is opened.
func TestRemovesAtOpening(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	l := open(t, dir, 1)
	appendTo(t, l, 1, 9)
	kept := map[string][]byte{}
	for _, name := range segments(t, dir) {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		kept[name] = data
	}
	if err := errors.Join(l.Ack(7), l.Close()); err != nil {
		t.Fatal(err)
	}
	for name, data := range kept {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wantRead(t, open(t, dir, 1), 8, 9)
	if got := len(segments(t, dir)); got != 2 {
		t.Errorf("%d segments", got)
	}
}
