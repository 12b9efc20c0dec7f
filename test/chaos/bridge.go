package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/deltabridge/deltabridge/test/poll"
	"github.com/deltabridge/deltabridge/test/process"
)

// bridge is a process of the built binary.
type bridge struct {
	*process.Process

	log   string       // the file
	addr  string       // of its HTTP server
	ready atomic.Int64 // the revision at which it had handed over its first lists; 0: not yet
}

var httpAddress = regexp.MustCompile(`http=(\S+)`)

// startBridge starts the binary and waits until it serves HTTP, or has ended.
func startBridge(w *world, dir, config string, n int) (*bridge, error) {
	b := &bridge{log: filepath.Join(dir, fmt.Sprintf("bridge-%d.log", n))}
	file, err := os.Create(b.log)
	if err != nil {
		return nil, err
	}
	defer file.Close() // the process has its own
	cmd := exec.Command(w.binary, "run", "--config", config)
	cmd.Env = append(os.Environ(), w.env...)
	cmd.Stdout, cmd.Stderr = file, file
	if b.Process, err = process.Start(cmd); err != nil {
		return nil, err
	}
	err = poll.Until(context.Background(), pollInterval, 4*time.Minute, func() error {
		if match := httpAddress.FindStringSubmatch(b.text()); match != nil {
			b.addr = match[1]
			return nil
		}
		if b.Ended() {
			return nil
		}
		return errors.New("the bridge has not named its address")
	})
	if err == nil && b.addr != "" {
		go b.watch(w) // ends with the process
	}
	return b, err
}

// watch notes when the bridge has handed over its first lists.
func (b *bridge) watch(w *world) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		select {
		case <-b.Done():
			return
		case <-tick.C:
		}
		if b.listed(client) {
			if rv, err := w.cluster.Revision(context.Background()); err == nil {
				b.ready.Store(rv)
				return
			}
		}
	}
}

// listed reports whether nothing keeps the bridge from being ready but its sinks and its disk.
func (b *bridge) listed(client *http.Client) bool {
	response, err := client.Get("http://" + b.addr + "/readyz")
	if err != nil {
		return false
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(body)) {
		if reason, ok := strings.CutPrefix(
			line,
			"- ",
		); ok && !strings.HasPrefix(reason, "sink ") &&
			!strings.Contains(reason, "checkpoint") {
			return false
		}
	}
	return !strings.Contains(string(body), "shutting down")
}

func (b *bridge) text() string {
	text, err := os.ReadFile(b.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// tail is the end of its log.
func (b *bridge) tail(lines int) string { return process.Tail(b.log, lines) }

// stopTimeout is how long a SIGTERM may take: shutdownTimeout is two seconds.
const stopTimeout = 90 * time.Second

// term ends the bridge in order.
func (b *bridge) term() error {
	if err := b.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-b.Done():
		return b.Wait()
	case <-time.After(stopTimeout):
		_ = b.Signal(syscall.SIGQUIT) // its goroutines are in the log
		pause(context.Background(), time.Second)
		return errors.Join(fmt.Errorf("it did not end within %s", stopTimeout), b.Kill())
	}
}

// relist is what the bridge logs when it lists a resource again.
var relist = regexp.MustCompile(`msg="the watch could not be continued, [^"]*" resource=(\S+) from=(\d+) to=(\d+)`)

// relists are the lists again of which the log says that states before them can be missing.
func (b *bridge) relists() (all []Gap) {
	for _, match := range relist.FindAllStringSubmatch(b.text(), -1) {
		from, _ := strconv.ParseInt(match[2], 10, 64) // digits
		to, _ := strconv.ParseInt(match[3], 10, 64)
		all = append(all, Gap{Resource: match[1], Reason: "relist", From: from, To: to})
	}
	return all
}
