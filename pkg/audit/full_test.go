//go:build unix

package audit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
)

// childVariable makes a test the child process of another one. It has the directory of the journal.
const childVariable = "DELTABRIDGE_AUDIT_CHILD"

// child returns a command that runs only the named test of this program.
func child(t *testing.T, test, dir string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), childVariable+"="+dir)
	return cmd
}

// TestDiskFull limits the size of files, which is only possible for a whole process.
func TestDiskFull(t *testing.T) {
	if out, err := child(t, "TestDiskFullChild", newDir(t)).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestDiskFullChild is the process of TestDiskFull: events that do not fit on the disk are refused, nothing that was
// appended is lost, and the journal works again when there is room.
func TestDiskFullChild(t *testing.T) {
	dir := os.Getenv(childVariable)
	if dir == "" {
		return // it is run by TestDiskFull
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	setLimit := func(bytes uint64) {
		l := limit
		l.Cur = min(bytes, limit.Max)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []uint64{0, 10, 5000, 50_000} { // not even the identity fits, no state file, no event, some events
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			dir := dir + fmt.Sprint(size)
			setLimit(size)
			defer setLimit(limit.Cur)
			j := openJournal(t, dir)
			var stored []string
			failed := 0
			for n := 0; failed < 3; n++ {
				id := fmt.Sprint("e", n)
				if err := j.Append(t.Context(), [][]byte{event(t, id, 5000)}); err == nil {
					stored = append(stored, id)
				} else if failed++; !errors.Is(err, syscall.EFBIG) {
					t.Fatal(err)
				}
			}
			if (len(stored) > 0) != (size == 50_000) {
				t.Errorf("stored %v", stored)
			}
			id := j.ID()
			setLimit(limit.Cur)
			appendTo(t, j, "later")
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			again := openJournal(t, dir)
			ids, lost := read(t, again, 1)
			if !slices.Equal(ids, append(stored, "later")) || lost != nil || again.ID() != id {
				t.Errorf("read %v, lost %v, want %v and one more", ids, lost, stored)
			}
		})
	}
}
