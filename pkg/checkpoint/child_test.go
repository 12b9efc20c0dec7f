//go:build linux

package checkpoint

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/files"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// Some guarantees can only be tested with a process that ends or has limited resources. These tests run this test
// program again, to do one thing in a directory.
const (
	envChild  = "CHECKPOINT_TEST_CHILD"
	envFolder = "CHECKPOINT_TEST_FOLDER"
)

// TestChild is the code of such a process. When it is run as a test, it does nothing.
func TestChild(t *testing.T) {
	folder := os.Getenv(envFolder)
	switch os.Getenv(envChild) {
	case "commit":
		childCommits(t, folder)
	case "hold":
		s := open(t, folder)
		_, _ = fmt.Fprintln(os.Stdout, "holds")
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
		s.Close()
	case "open":
		_, err := Open(Options{Path: folder})
		_, _ = fmt.Fprintln(os.Stdout, err)
	case "limit":
		childLimit(t, folder)
	}
}

// child prepares a process; its output is that of TestChild.
func child(t *testing.T, what, folder string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), envChild+"="+what, envFolder+"="+folder)
	cmd.Stderr = os.Stderr
	return cmd
}

// start starts a process and returns its output. The process is killed when the test ends.
func start(t *testing.T, cmd *exec.Cmd) *bufio.Scanner {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(cmd) })
	return bufio.NewScanner(out)
}

// kill ends a process at once.
func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// childCommits commits until it is killed. Each commit writes its number into the watermark and all rows of two
// sources. The number of rows changes too.
func childCommits(t *testing.T, folder string) {
	s, err := Open(Options{Path: folder})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.BeginCluster(testUID); err != nil {
		t.Fatal(err)
	}
	n := 0
	if state, _, err := s.Load("one"); err != nil {
		t.Fatal(err)
	} else if state.ResourceVersion != "" {
		n, _ = strconv.Atoi(state.ResourceVersion)
	}
	for {
		n++
		var updates []ledger.Update
		for _, name := range []string{"one", "two"} {
			u := ledger.Update{
				State: ledger.State{
					Source:          testSource(name),
					ResourceVersion: fmt.Sprint(n),
					Sinks:           map[string]string{"a": fmt.Sprint(n)},
				},
			}
			for i := range 60 {
				switch {
				case i < rowsAt(n):
					u.Upserts = append(u.Upserts, small(t, "ns", fmt.Sprintf("%03d", i), fmt.Sprint(n)))
				default:
					u.Deletes = append(u.Deletes, fmt.Sprintf("ns/%03d", i))
				}
			}
			updates = append(updates, u)
		}
		if n%17 == 0 { // a list that will not be finished
			commit(t, s, nil, part("three", true, small(t, "ns", "a", fmt.Sprint(n))))
		}
		if err := s.Commit(updates, map[string]string{"a": fmt.Sprint(n)}, nil); err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintln(os.Stdout, n)
	}
}

// rowsAt returns the number of rows after commit n.
func rowsAt(n int) int { return n % 60 }

// TestKill kills a process during its commits, again and again. The file must contain the result of exactly one commit:
// the last commit that the process reported, or the one after it.
func TestKill(t *testing.T) {
	folder := t.TempDir()
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	for range 20 {
		cmd := child(t, "commit", folder)
		lines := start(t, cmd)
		told := 0
		timer := time.AfterFunc(time.Duration(20+random.IntN(60))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		for lines.Scan() {
			told, _ = strconv.Atoi(lines.Text())
		}
		timer.Stop()
		kill(cmd)
		s := open(t, folder)
		if s.Stats().Quarantined != 0 {
			t.Fatal("the file was refused")
		}
		if n := oneCommit(t, s); told != 0 && n != told && n != told+1 {
			t.Fatalf("commit %d was told of, and %d is there", told, n)
		}
		s.Close()
	}
}

// oneCommit checks that a store contains the result of exactly one commit, and returns the number of the commit.
func oneCommit(t *testing.T, s *Store) int {
	t.Helper()
	states, err := s.States()
	if err != nil {
		t.Fatal(err)
	}
	if len(states) == 0 {
		return 0
	}
	version := states[0].ResourceVersion
	n, _ := strconv.Atoi(version)
	if text := s.noted().Sinks["a"]; text != version || len(states) != 2 {
		t.Fatalf("configuration of %s and watermark of %s; %d sources", text, version, len(states))
	}
	for _, name := range []string{"one", "two"} {
		state, objects, err := s.Load(name)
		if err != nil || state.ResourceVersion != version || state.Sinks["a"] != version || len(objects) != rowsAt(n) {
			t.Fatalf("%d rows, %+v, want %s; %v", len(objects), state, version, err)
		}
		for _, o := range objects {
			if o.ResourceVersion != version {
				t.Fatalf("row of %s, watermark of %s", o.ResourceVersion, version)
			}
		}
	}
	return n
}

func TestLockedByAnotherProcess(t *testing.T) {
	folder := t.TempDir()
	cmd := child(t, "hold", folder)
	lines := start(t, cmd)
	if !lines.Scan() || lines.Text() != "holds" {
		t.Fatal(lines.Text(), lines.Err())
	}
	_, err := Open(Options{Path: folder})
	if !errors.Is(err, files.ErrLocked) || !strings.Contains(err.Error(), "another bridge uses this directory") ||
		!strings.Contains(err.Error(), folder) {
		t.Errorf("%v", err)
	}
	kill(cmd)
	usable(t, open(t, folder))
}

func TestOpenInATool(t *testing.T) {
	folder := t.TempDir()
	open(t, folder).Close()
	db, err := bbolt.Open(filepath.Join(folder, fileName), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(Options{Path: folder})
	if err == nil || !strings.Contains(err.Error(), "another program has the file open") {
		t.Errorf("%v", err)
	}
	db.Close()
	if s := open(t, folder); s.Stats().Quarantined != 0 {
		t.Error("the file was refused")
	}
}

// childLimit fills a store until the file size limit is reached, and continues when the limit is raised.
func childLimit(t *testing.T, folder string) {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := Open(Options{Path: folder})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.BeginCluster(testUID); err != nil {
		t.Fatal(err)
	}
	fill(t, s, func(set bool) {
		limit := syscall.Rlimit{Cur: ^uint64(0), Max: ^uint64(0)}
		if set {
			limit.Cur = uint64(s.Stats().SizeBytes)
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
	}, "raise the limit")
}

// fill checks that commits fail while there is no room, and succeed when there is room again. full(true) removes the
// room, and full(false) restores it.
func fill(t *testing.T, s *Store, full func(bool), want string) {
	t.Helper()
	source := testSource("pods")
	kept := pods(t, 0, 20, 1)
	commit(
		t,
		s,
		map[string]string{"a": "rules"},
		ledger.Update{State: ledger.State{Source: source, ResourceVersion: "1"}, Upserts: kept},
	)
	before := contents(t, s)
	full(true)
	more := ledger.Update{
		State:   ledger.State{Source: source, ResourceVersion: "2"},
		Upserts: pods(t, 10, 5000, 2),
		Deletes: []string{kept[0].Key()},
	}
	for range 3 {
		err := s.Commit([]ledger.Update{more}, map[string]string{"b": "other"}, nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), s.path) {
			t.Fatalf("%v, want %q", err, want)
		}
		if diff := fmt.Sprint(contents(t, s)); diff != fmt.Sprint(before) {
			t.Fatal("a commit that failed changed something")
		}
		if _, known := s.noted().Sinks["b"]; known {
			t.Fatal("a commit that failed noted a sink")
		}
		if _, rows := rowsOf(t, s, "pods"); len(rows) != 20 {
			t.Fatalf("%d rows", len(rows))
		}
	}
	full(false)
	commit(t, s, map[string]string{"b": "other"}, more)
	state, rows := rowsOf(t, s, "pods")
	if stats := s.Stats(); state.ResourceVersion != "2" || len(rows) != 5009 || stats.Errors < 3 {
		t.Fatalf("%+v, %d rows, %+v", state, len(rows), stats)
	}
	s.Close()
	s = open(t, filepath.Dir(s.path))
	if _, rows := rowsOf(t, s, "pods"); len(rows) != 5009 || s.Stats().Quarantined != 0 {
		t.Fatalf("%d rows, %+v", len(rows), s.Stats())
	}
	s.Close()
}

func TestFileMayNotGrow(t *testing.T) {
	if out, err := child(t, "limit", t.TempDir()).Output(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestFullDisk requires a small file system of its own, which only root can mount.
func TestFullDisk(t *testing.T) {
	folder := smallDisk(t, "size=8m")
	s, err := Open(Options{Path: folder})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.BeginCluster(testUID); err != nil {
		t.Fatal(err)
	}
	fill(t, s, func(full bool) {
		if full {
			remount(t, folder, "size=1m")
		} else {
			remount(t, folder, "size=100m")
		}
	}, "the disk or quota is full")

	// A full disk is no reason to think ill of the file, and without room none is set aside.
	s = open(t, folder)
	fillUp(t, folder)
	if err := s.BeginCluster("another"); err == nil || !strings.Contains(err.Error(), "is full") {
		t.Errorf("%v", err)
	}
	s.Close()
	s = open(t, folder)
	if _, rows := rowsOf(t, s, "pods"); s.Stats().Quarantined != 0 || len(rows) != 5009 {
		t.Errorf("%+v, %d rows", s.Stats(), len(rows))
	}
	s.Close()
	if err := os.Remove(filepath.Join(folder, fileName)); err != nil {
		t.Fatal(err)
	}
	fillUp(t, folder)
	if _, err := Open(Options{Path: folder}); err == nil || !strings.Contains(err.Error(), "make room") {
		t.Errorf("%v", err)
	}
}

// fillUp writes until the disk is full.
func fillUp(t *testing.T, folder string) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(folder, "ballast"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for err == nil {
		_, err = file.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

func TestReadOnlyDisk(t *testing.T) {
	folder := smallDisk(t, "size=8m")
	s := begin(t, folder)
	commit(t, s, nil, ledger.Update{State: ledger.State{Source: testSource("pods"), ResourceVersion: "1"}})
	s.Close()
	if err := syscall.Mount("", folder, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Path: folder}); err == nil || !strings.Contains(err.Error(), "mounted read-only") {
		t.Errorf("%v", err)
	}
	remount(t, folder, "size=8m")
	if states, err := open(t, folder).States(); err != nil || len(states) != 1 {
		t.Error(states, err)
	}
}

func smallDisk(t *testing.T, options string) string {
	t.Helper()
	folder := t.TempDir()
	if err := syscall.Mount("none", folder, "tmpfs", 0, options); err != nil {
		t.Skip("no file system can be mounted here:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(folder, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return folder
}

func remount(t *testing.T, folder, options string) {
	t.Helper()
	if err := syscall.Mount("", folder, "tmpfs", syscall.MS_REMOUNT, options); err != nil {
		t.Fatal(err)
	}
}

// TestFolderOfAnotherUser opens a directory as a user who cannot write to it.
func TestFolderOfAnotherUser(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state")
	s := begin(t, folder)
	s.Close()
	for _, change := range []func() error{
		func() error { return os.Chmod(folder, 0o555) },
		func() error { return os.Remove(filepath.Join(folder, lockName)) },
		func() error { return os.Remove(s.path) },
	} {
		if err := change(); err != nil && !errors.Is(err, os.ErrPermission) {
			t.Fatal(err)
		}
		cmd := child(t, "open", folder)
		if os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, want := range []string{"permission denied", "make the directory and its content writable for user id", "fsGroup"} {
			if !bytes.Contains(out, []byte(want)) {
				t.Errorf("%q is missing: %s", want, out)
			}
		}
	}
	if err := os.Chmod(folder, 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestPathsThatCannotBe(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(folder, "taken", fileName), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		file: "not a directory", filepath.Join(file, "below"): "set state.path to a directory",
		filepath.Join(folder, "taken"): "not a regular file",
	} {
		s, err := Open(Options{Path: path, Logger: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), want) || s != nil {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// TestUnsure: after a transaction that failed, the next begins by making sure of what is there.
func TestUnsure(t *testing.T) {
	s := begin(t, t.TempDir())
	transactions := func() int {
		id := 0
		if err := s.view(func(tx *bbolt.Tx) error { id = tx.ID(); return nil }); err != nil {
			t.Fatal(err)
		}
		return id
	}
	if err := s.Commit([]ledger.Update{{}}, nil, nil); err == nil {
		t.Fatal("expected an error")
	}
	before := transactions()
	for i, want := range []int{2, 3} {
		o := small(t, "n", "a", fmt.Sprint(i))
		commit(t, s, nil, ledger.Update{State: ledger.State{Source: testSource("pods")}, Upserts: []*object.Object{o}})
		if got := transactions() - before; got != want {
			t.Errorf("%d transactions, want %d", got, want)
		}
	}
}
