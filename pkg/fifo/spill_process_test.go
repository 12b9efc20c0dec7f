//go:build unix

package fifo

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/internal/pause"
	"github.com/deltabridge/deltabridge/test/scale"
)

const (
	// spillChild is the environment variable that makes a test of this file the child process of another; it has the
	// path.
	spillChild = "FIFO_SPILL_CHILD"
	// spillSettled is one with what is settled of each source, as a checkpoint would say.
	spillSettled = "FIFO_SPILL_SETTLED"
)

// child is this program, running only the named test.
func child(t *testing.T, test, path string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), spillChild+"="+path)
	return cmd
}

const (
	killSources = 4
	killEnd     = 6000 // each source pushes 1 to killEnd
)

// report is the child's one way to tell the parent something; each call is one write, so a line is told whole or not
// at all.
type report struct {
	mu sync.Mutex
	w  io.Writer
}

func (r *report) lines(verb string, items []item) {
	var b bytes.Buffer
	for _, v := range items {
		fmt.Fprintf(&b, "@%s %d %d\n", verb, v.Key, v.ID)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = r.w.Write(b.Bytes())
}

// TestSpillKillChild is the process that TestSpillKill kills: each source pushes what comes behind its position, or
// behind what is settled of it if that is more; the consumer tells what it took and acknowledges it.
func TestSpillKillChild(t *testing.T) {
	path := os.Getenv(spillChild)
	if path == "" {
		return // it is run by TestSpillKill
	}
	out := &report{w: os.Stdout}
	o := spillOptions(path)
	o.MaxItems, o.MaxDiskBytes = 40, 2<<20
	o.OnSettled = func(items []item) { out.lines("settled", items) }
	o.Receipt = func(v item) item { return item{ID: v.ID, Key: v.Key} }
	o.OnCorrupt = func(l Loss) []item { t.Errorf("lost %d: %v", l.Items(), l.Err); return nil }
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	s.syncInterval = 5 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()

	var pushing sync.WaitGroup
	pad := strings.Repeat("x", 1000)
	for source := range killSources {
		position, settled := 0, 0
		_, _ = fmt.Sscan(s.Positions()[fmt.Sprint("source", source)], &position)
		if _, err := fmt.Sscan(strings.Split(os.Getenv(spillSettled), ",")[source], &settled); err != nil {
			t.Fatal(err)
		}
		position = max(position, settled)
		pushing.Go(func() {
			for id := position + 1; id <= killEnd; id++ {
				if err := s.Push(ctx, item{ID: id, Key: source, Size: 1, Hist: pad[:id%1000]}); err != nil {
					t.Errorf("Push: %v", err)
					return
				}
			}
		})
	}
	go func() {
		pushing.Wait()
		s.Close()
	}()
	var batch []item
	for n := 0; ; n++ {
		if batch, err = s.Take(ctx, batch, 1+rand.IntN(40), 1<<30); err != nil {
			break
		}
		out.lines("took", batch)
		if n%64 > 50 { // now and then the consumer is quicker than the producers
			s.Ack(len(batch))
			continue
		}
		pause.For(ctx, time.Duration(rand.IntN(3000))*time.Microsecond)
		for left := len(batch); left > 0; {
			n := 1 + rand.IntN(left)
			s.Ack(n)
			left -= n
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	if items := s.Stats().Items; items > 0 {
		t.Errorf("%d items are left", items)
	}
	out.lines("end", []item{{}})
}

// TestSpillKill kills a process with -9 again and again while it pushes and takes, and checks from its reports, for
// each source: what is taken goes up by one, from what was taken before at most; nothing is skipped. So nothing was
// settled behind what is on disk.
func TestSpillKill(t *testing.T) {
	if os.Getenv(spillChild) != "" {
		t.Skip("is the parent")
	}
	path := filepath.Join(t.TempDir(), "q")
	var taken, settled [killSources]int
	kills, ended := 0, false
	for n := 0; !ended && n < 60; n++ {
		cmd := child(t, "TestSpillKillChild", path)
		cmd.Env = append(cmd.Env, spillSettled+"="+strings.Trim(strings.ReplaceAll(fmt.Sprint(settled), " ", ","), "[]"))
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if n < scale.Of(8, 25) {
			time.AfterFunc(time.Duration(20+rand.IntN(250))*time.Millisecond, func() {
				_ = cmd.Process.Kill()
			})
		}
		ended = checkReports(t, pipe, &taken, &settled)
		if err := cmd.Wait(); err != nil && ended {
			t.Fatalf("the child failed: %v", err)
		}
		if t.Failed() {
			t.Fatalf("after %d kills", kills)
		}
		if !ended {
			kills++
		}
	}
	t.Logf("%d kills, taken up to %v, settled up to %v", kills, taken, settled)
	for source, n := range taken {
		if n != killEnd {
			t.Errorf("source %d: taken up to %d of %d", source, n, killEnd)
		}
	}
	if kills < 3 || settled == [killSources]int{} {
		t.Errorf("%d kills, settled %v: too little happened", kills, settled)
	}
}

// checkReports reads what one child says; ended says that it took everything.
func checkReports(t *testing.T, r io.Reader, taken, settled *[killSources]int) (ended bool) {
	var last [killSources]int // taken in this run
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if err != nil { // a last line without its end was not told
			return ended
		}
		var verb string
		var source, id int
		if _, err := fmt.Sscanf(line, "@%s %d %d", &verb, &source, &id); err != nil {
			if !strings.HasPrefix(line, "=== RUN") && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "PASS") {
				t.Errorf("the child says: %s", line)
			}
			continue
		}
		switch verb {
		case "settled":
			settled[source] = max(settled[source], id)
		case "took":
			if last[source] == 0 && id > taken[source]+1 || last[source] > 0 && id != last[source]+1 {
				t.Errorf("source %d: took %d behind %d, at any time up to %d", source, id, last[source], taken[source])
			}
			last[source] = id
			taken[source] = max(taken[source], id)
		case "end":
			ended = true
		}
	}
}

// TestSpillDiskFullChild is the process of TestSpillDiskFull.
func TestSpillDiskFullChild(t *testing.T) {
	path := os.Getenv(spillChild)
	if path == "" {
		return // it is run by TestSpillDiskFull
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	setLimit := func(n uint64) {
		l := limit
		l.Cur = n
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []uint64{0, 20000, 40000, 300000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			s := openSpill(t, path+fmt.Sprint(size), func(o *Options[item]) {
				o.Logger = slog.New(slog.DiscardHandler)
			})
			s.syncInterval = 10 * time.Millisecond
			s.start()
			setLimit(size)
			defer setLimit(limit.Cur)
			const n = 1000
			pushed := make(chan int, n)
			go func() {
				for id := 1; id <= n; id++ {
					if err := s.Push(t.Context(), item{ID: id, Size: 1, Hist: strings.Repeat("x", 1000)}); err != nil {
						return
					}
					pushed <- id
				}
			}()
			for { // until it failed, more than once
				if spill := s.SpillStats(); spill.Errors >= 2 {
					t.Logf("%d of %d pushed: %s", len(pushed), n, spill.LastErr)
					break
				}
				pause.For(t.Context(), 5*time.Millisecond)
			}
			// What was removed takes no room.
			open, _ := filepath.Glob("/proc/self/fd/*")
			for _, fd := range open {
				if name, err := os.Readlink(fd); err == nil && strings.HasSuffix(name, " (deleted)") {
					t.Errorf("%s is open", name)
				}
			}
			if len(pushed) == n {
				t.Error("Push did not wait")
			}
			// What fits can be taken, and the file is not needed for it.
			if got := s.takeIDs(6); got[0] != 1 || got[5] != 6 {
				t.Errorf("took %v", got)
			}
			setLimit(limit.Cur)
			s.wantIDs("after there was room again", s.takeIDs(n-6), 7, n)
			if err := s.end(); err != nil {
				t.Error(err)
			}
			if lastErr := s.SpillStats().LastErr; lastErr != "" {
				t.Error(lastErr)
			}
		})
	}
}

// TestSpillDiskFull limits the size of files: pushes wait, nothing is lost, and it goes on when there is room. That
// limit is one of a process, so it needs one of its own.
func TestSpillDiskFull(t *testing.T) {
	if os.Getenv(spillChild) != "" {
		t.Skip("is the parent")
	}
	out, err := child(t, "TestSpillDiskFullChild", filepath.Join(t.TempDir(), "q")).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}
