package boltfile

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/files"
	"github.com/deltabridge/deltabridge/test/scale"
)

var quick = Options{NoSync: true}

// put returns a function that puts a value under a key of the only bucket.
func put(key, value string) func(*bbolt.Tx) error {
	return func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucketIfNotExists([]byte("b"))
		if err != nil {
			return err
		}
		return bucket.Put([]byte(key), []byte(value))
	}
}

func get(t *testing.T, f *File, key string) (value string) {
	t.Helper()
	if err := f.View(
		func(tx *bbolt.Tx) error { value = string(tx.Bucket([]byte("b")).Get([]byte(key))); return nil },
	); err != nil {
		t.Fatal(err)
	}
	return value
}

// create creates a file in which the key "k" has a value, and opens it.
func create(t *testing.T, path, value string) *File {
	t.Helper()
	if err := Prepare(path, quick, func(db *bbolt.DB) error { return db.Update(put("k", value)) }); err != nil {
		t.Fatal(err)
	}
	f, err := Install(path, quick)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestAFileIsReplacedAsAWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.db")
	old := create(t, path, "old")
	failed := errors.New("failed")
	if err := Prepare(
		path,
		Options{},
		func(db *bbolt.DB) error { return errors.Join(db.Update(put("k", "half")), failed) },
	); !errors.Is(
		err,
		failed,
	) {
		t.Error(err)
	}
	if got := names(t, dir); len(got) != 1 || get(t, old, "k") != "old" {
		t.Errorf("%v, %q", got, get(t, old, "k"))
	}
	fresh := create(t, path, "new")
	if get(t, old, "k") != "old" || get(t, fresh, "k") != "new" {
		t.Error("the files are not what they were")
	}
	if err := errors.Join(old.Close(), fresh.Close()); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path+suffixNew, []byte("left by a crash"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := names(t, dir); len(got) != 1 || get(t, f, "k") != "new" {
		t.Errorf("%v, %q", got, get(t, f, "k"))
	}
}

func TestOpenFails(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"empty": "", "short": "x", "text": strings.Repeat("text ", 10_000)} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path, quick); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != content {
			t.Errorf("%s was changed, %v", name, err)
		}
	}
	if _, err := Open(filepath.Join(dir, "none"), quick); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := Open(
		dir,
		quick,
	); err == nil || errors.Is(err, ErrDamaged) ||
		!strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
	path := filepath.Join(dir, "x.db")
	create(t, path, "v")
	if _, err := Open(
		path,
		quick,
	); err == nil ||
		!strings.Contains(Explain("open", path, err).Error(), "another program has the file open") {
		t.Error(err)
	}
}

func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.db")
	if err := create(t, path, "v").Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+suffixNew, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Update(put("k", "w")); err == nil || get(t, f, "k") != "v" || len(names(t, dir)) != 2 {
		t.Errorf("something was changed: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := f.View(func(*bbolt.Tx) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// After a transaction that failed, the next one begins by confirming what the file shows.
func TestATransactionAfterOneThatFailed(t *testing.T) {
	f := create(t, filepath.Join(t.TempDir(), "x.db"), "v")
	transactions := func() (id int) {
		if err := f.View(func(tx *bbolt.Tx) error { id = tx.ID(); return nil }); err != nil {
			t.Fatal(err)
		}
		return id
	}
	failed := errors.New("failed")
	before := transactions()
	if err := f.Update(
		func(tx *bbolt.Tx) error { return errors.Join(put("k", "w")(tx), failed) },
	); !errors.Is(err, failed) ||
		get(t, f, "k") != "v" {
		t.Errorf("%v, %q", err, get(t, f, "k"))
	}
	for i, want := range []int{2, 3} {
		if err := f.Update(put("k", "x")); err != nil || transactions()-before != want || get(t, f, "k") != "x" {
			t.Errorf("%d: %d transactions, %v", i, transactions()-before, err)
		}
	}
}

// What reads a file that was cut off while it is in use gets errors. (What writes ends the process: bbolt then looks
// for free pages in a goroutine of its own.)
func TestFaultsAreErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	f := create(t, path, strings.Repeat("v", 20_000))
	if err := os.Truncate(path, 2*pageSize); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := f.View(func(tx *bbolt.Tx) error { _ = tx.Bucket([]byte("b")).Get([]byte("k")); return nil })
		if !errors.Is(err, ErrDamaged) || !strings.Contains(Explain("read", path, err).Error(), "restart the bridge") {
			t.Error(err)
		}
	}
}

func TestUsage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	f := create(t, path, "v")
	if err := f.Update(put("large", strings.Repeat("x", 4<<20))); err != nil {
		t.Fatal(err)
	}
	if err := f.Update(put("large", "")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path, quick)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if u := f.Usage(); u.Used > 10*pageSize || u.Total < 4<<20 {
		t.Errorf("%+v", u)
	}
}

// The map is released within transactions of the file alone, and what is read stays the same.
func TestReleaseOfTheMap(t *testing.T) {
	dir := t.TempDir()
	f, other := create(t, filepath.Join(dir, "x.db"), "v"), create(t, filepath.Join(dir, "y.db"), "w")
	err := f.View(func(tx *bbolt.Tx) error {
		for range 3 {
			f.Release(tx, 1<<30)
			other.Release(tx, 1<<30)
			if got := string(tx.Bucket([]byte("b")).Get([]byte("k"))); got != "v" {
				t.Errorf("%q", got)
			}
		}
		return nil
	})
	if err != nil || get(t, other, "k") != "w" {
		t.Error(err)
	}
}

// If any bits change, either the file is rejected, or bbolt reads it without an endless loop or a fault.
func TestFlippedBits(t *testing.T) {
	sound := newBoltFile(t).b
	path := filepath.Join(t.TempDir(), "x.db")
	random := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for n := range scale.Of(500, 10_000) {
		b := bytes.Clone(sound)
		at := random.IntN(len(b))
		if n%2 == 0 {
			at = at&^(pageSize-1) + random.IntN(80) // where a page says how it is to be read
		}
		b[at] ^= 1 << random.IntN(8)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path, quick)
		if errors.Is(err, ErrDamaged) {
			refused++
			continue
		}
		if err != nil {
			t.Fatalf("bit at %d: %v", at, err)
		}
		read := func(tx *bbolt.Tx) error {
			return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
				return b.ForEach(func(_, v []byte) error { _ = bytes.Count(v, []byte("x")); return nil })
			})
		}
		if err := errors.Join(f.View(read), f.Update(put("more", "x")), f.Close()); err != nil {
			t.Errorf("bit at %d: %v", at, err)
		}
	}
	if refused == 0 {
		t.Error("no file was refused")
	}
}

func TestRemedy(t *testing.T) {
	for err, want := range map[error]string{
		syscall.ENOSPC:                            "make room",
		errors.New("write: file too large"):       "ulimit",
		&fs.PathError{Err: syscall.EROFS}:         "mounted read-only",
		&fs.PathError{Err: syscall.EACCES}:        "fsGroup",
		files.ErrLocked:                           "another bridge uses this directory",
		&fs.PathError{Err: syscall.ENOTDIR}:       "part of the path is a file, not a directory",
		errors.Join(errors.New("x"), syscall.EIO): "the disk reports I/O errors",
		errors.New("something else"):              "",
	} {
		if got := Remedy(err); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	if err := Explain("read", "x", nil); err != nil {
		t.Error(err)
	}
	if got := Explain("read", "x", errors.New("y")).Error(); got != "read x: y" {
		t.Error(got)
	}
}
