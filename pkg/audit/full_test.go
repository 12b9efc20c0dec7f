//go:build unix

package audit

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/deltabridge/deltabridge/test/certs"
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

// setLimit limits the size of files, of the whole process.
func setLimit(t *testing.T, bytes uint64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = min(bytes, limit.Max)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
}

// TestDiskFullChild is the process of TestDiskFull: events that do not fit on the disk are refused, nothing that was
// appended is lost, and the journal works again when there is room.
func TestDiskFullChild(t *testing.T) {
	dir := os.Getenv(childVariable)
	if dir == "" {
		return // it is run by TestDiskFull
	}
	for _, size := range []uint64{0, 10, 5000, 50_000} { // not even the identity fits, no state file, no event, some events
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			dir := dir + fmt.Sprint(size)
			setLimit(t, size)
			defer setLimit(t, math.MaxUint64)
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
			setLimit(t, math.MaxUint64)
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
	t.Run("server", func(t *testing.T) { fillDiskOfServer(t, dir) })
}

// fillDiskOfServer sends events until the disk is full. The server tells the client to repeat the request, which succeeds
// when there is room again.
func fillDiskOfServer(t *testing.T, dir string) {
	ours := newAuthority(t, "ours")
	o := tlsOptions(t, ours)
	j := openJournal(t, dir+"server")
	var counted *counter
	o.Handler, counted = newHandler(t, j)
	url, _ := start(t, o)
	c := client(t, ours, nil, certs.Options{})
	post := func() (status int, retryAfter string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(sent(t)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode, response.Header.Get("Retry-After")
	}
	setLimit(t, 20_000)
	defer setLimit(t, math.MaxUint64)
	accepted := 0
	for range 20 {
		switch status, retryAfter := post(); {
		case status == http.StatusOK:
			accepted++
		case status != http.StatusServiceUnavailable || retryAfter != "2":
			t.Fatalf("%d, Retry-After %q", status, retryAfter)
		}
	}
	if accepted == 0 || accepted == 20 || counted.refused[Failing] != 20-accepted {
		t.Fatalf("%d of 20 requests were accepted, %v", accepted, counted.refused)
	}
	setLimit(t, math.MaxUint64)
	if status, _ := post(); status != http.StatusOK {
		t.Fatalf("with room on the disk: %d", status)
	}
	if ids, lost := read(t, j, 1); len(ids) != 3*(accepted+1) || lost != nil {
		t.Errorf("%d requests with 3 events were accepted, the journal has %d, lost %v", accepted+1, len(ids), lost)
	}
}

// A file system without any room left: an event is refused, nothing is lost, and acknowledging events makes room again.
func TestNoSpaceLeft(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", dir).
		CombinedOutput(); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	j := openJournal(t, filepath.Join(dir, "audit"))
	appended := 0
	for ; ; appended++ {
		err := j.Append(t.Context(), [][]byte{event(t, fmt.Sprint("e", appended), 200_000)})
		if errors.Is(err, syscall.ENOSPC) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	rest := bytes.NewReader(make([]byte, 16<<20))
	file, err := os.Create(filepath.Join(dir, "rest"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := rest.WriteTo(file); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if ids, lost := read(t, j, 1); len(ids) != appended || lost != nil {
		t.Errorf("%d events were appended, the journal has %d, lost %v", appended, len(ids), lost)
	}
	if err := j.Ack(uint64(appended) - 1); err != nil {
		t.Fatal(err)
	}
	appendTo(t, j, "later")
	id := j.ID()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	again := openJournal(t, filepath.Join(dir, "audit"))
	if ids, lost := read(t, again, uint64(appended)); len(ids) != 2 || lost != nil || again.ID() != id {
		t.Errorf("after a restart: %v, lost %v", ids, lost)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}
