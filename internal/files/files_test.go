package files

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestQuarantineName(t *testing.T) {
	at := time.Date(2026, 11, 20, 13, 0, 0, 0, time.FixedZone("", 3600))
	path := filepath.Join(t.TempDir(), "x.db")
	for _, want := range []string{".corrupt-20261120T120000Z", ".corrupt-20261120T120000Z-2", ".corrupt-20261120T120000Z-3"} {
		got := QuarantineName(path, "corrupt", at)
		if got != path+want {
			t.Errorf("%s, want %s", got, want)
		}
		if err := os.WriteFile(got, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	unlock, err := Lock(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(path, 0); !errors.Is(err, ErrLocked) {
		t.Errorf("locked twice: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	unlock, err = Lock(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	for _, want := range []string{"one", "2"} {
		if err := os.WriteFile(path+".new", []byte("left by a crash"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := WriteFile(path, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%q, %v", got, err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(dir, "sub"), nil); err == nil {
		t.Error("replaced a directory")
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 2 {
		t.Errorf("left: %v, %v", names, err)
	}
}
