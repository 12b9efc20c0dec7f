package segment

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// The first Append creates the state file, but cannot make its directory durable, because the process has no file
// descriptor left. The next one begins again.
func TestCreateFails(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "log"), DefaultBytes)
	free, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	var before syscall.Rlimit
	next := uint64(free.Fd())
	if err := errors.Join(free.Close(), syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before)); err != nil {
		t.Fatal(err)
	}
	few := syscall.Rlimit{Cur: next + 1, Max: before.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	failed := l.Append(batchOf(t, l, 1, 2), nil)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(failed, syscall.EMFILE) {
		t.Fatalf("Append: %v", failed)
	}
	appendTo(t, l, 1, 2)
	wantRead(t, l, 1, 2)
}
