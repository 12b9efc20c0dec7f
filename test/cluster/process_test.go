package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/poll"
)

func TestStartReportsWhyItFailed(t *testing.T) {
	dir := t.TempDir()
	_, err := Start(t.Context(), Options{Dir: dir, APIServerFlags: []string{"--no-such-flag"}})
	if err == nil {
		t.Fatal("Start takes a wrong flag")
	}
	for _, want := range []string{"apiserver ended by itself", "no-such-flag"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	wantNoProcess(t, dir)
}

// A process that crashed is not passed over in silence.
func TestStopReportsACrash(t *testing.T) {
	c, err := newCluster(t.Context(), Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.StartEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.etcd.run.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(); err == nil || !strings.Contains(err.Error(), "etcd ended by itself (signal: killed)") {
		t.Errorf("Stop after a crash: %v", err)
	}
	if err := c.Stop(); err != nil {
		t.Errorf("the second Stop: %v", err)
	}
}

// The processes die with the process that started them, even when it is killed.
func TestProcessesDieWithTheParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can tie the life of a process to that of its parent")
	}
	dir := t.TempDir()
	parent := exec.CommandContext(t.Context(), os.Args[0])
	parent.Env = append(os.Environ(), orphanDir+"="+dir)
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Errorf("etcd did not start: %v", err)
	}
	if n := len(processesOf(t, dir)); n != 1 {
		t.Errorf("%d processes run, want etcd alone", n)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed, and says so
	wantNoProcess(t, dir)
}

// wantNoProcess waits for the end of the processes of the folder: the
// kernel takes its time after a kill.
func wantNoProcess(t *testing.T, dir string) {
	t.Helper()
	err := poll.Until(t.Context(), 10*time.Millisecond, time.Minute, func() error {
		if left := processesOf(t, dir); len(left) > 0 {
			return fmt.Errorf("processes left behind:\n%s", strings.Join(left, "\n"))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// processesOf returns the command lines of the programs that were started for
// the folder. It needs /proc, and finds nothing where there is none.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		line, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has ended meanwhile
		}
		if bytes.Contains(line, []byte("\x00--dir="+dir+"\x00")) {
			found = append(found, filepath.Dir(file)+": "+string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return found
}
