package election

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/deltabridge/deltabridge/internal/pause"
	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/observe"
)

// A leader that is stopped and continued finds out at once that its term is over, and leaves the Lease alone.
func TestStoppedProcess(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	a := k.startChild()
	a.calledValid(true, time.Time{})
	b := k.start("b", k.firm(), k.Config)
	b.sees("child")
	observe.Must(t, a.Process.Signal(syscall.SIGSTOP))
	second := b.term()
	begun := time.Now()
	observe.Must(t, a.Process.Signal(syscall.SIGCONT))
	a.calledValid(false, begun)
	observe.Must(t, a.stdin.Close()) // the work ends, and so does the candidate
	await(t, a.ended, "end of a")
	if at := a.last[true]; at.After(begun) {
		t.Errorf("the term of the stopped process was valid %s after the next one had begun", at.Sub(begun))
	}
	k.expectHolder("b")
	expectValid(t, second)
}

// child is a candidate in a process of its own. It calls Valid all the time.
type child struct {
	*exec.Cmd

	t     *testing.T
	stdin io.Closer
	ended chan struct{}

	mu   sync.Mutex
	last map[bool]time.Time // when the last call began that returned true or false
}

// childVariable is an environment variable with the namespace of the Lease.
const childVariable = "DELTABRIDGE_TEST_ELECTION"

func (k *kube) startChild() *child {
	k.t.Helper()
	self, err := os.Executable()
	observe.Must(k.t, err)
	c := &child{
		Cmd: exec.CommandContext(k.t.Context(), self), t: k.t,
		ended: make(chan struct{}), last: map[bool]time.Time{},
	}
	c.Env = append(os.Environ(), childVariable+"="+k.namespace, "KUBECONFIG="+cluster.Shared(k.t).Kubeconfig())
	c.Stderr = k.t.Output()
	c.stdin, err = c.StdinPipe()
	observe.Must(k.t, err)
	stdout, err := c.StdoutPipe()
	observe.Must(k.t, err)
	observe.Must(k.t, c.Start())
	go func() {
		defer close(c.ended)
		c.read(stdout)
		if err := c.Wait(); err != nil {
			k.t.Errorf("child: %v", err)
		}
	}()
	return c
}

func (c *child) read(stdout io.Reader) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var valid bool
		var nanos int64
		if _, err := fmt.Sscan(lines.Text(), &valid, &nanos); err != nil {
			c.t.Errorf("child: %q: %v", lines.Text(), err)
		}
		c.mu.Lock()
		c.last[valid] = time.Unix(0, nanos)
		c.mu.Unlock()
	}
}

// calledValid waits until Valid has returned a result, in a call after a time.
func (c *child) calledValid(result bool, after time.Time) {
	c.t.Helper()
	observe.Eventually(c.t, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.last[result].After(after) {
			return fmt.Errorf("Valid has not returned %t", result)
		}
		return nil
	})
}

// beChild is what the child does instead of running tests.
func beChild(namespace string) {
	kube, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	c, err := New(quick(namespace), kube, "child", slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		panic(err)
	}
	err = c.Lead(ctx, func(term *Term) {
		for ctx.Err() == nil {
			at := time.Now()
			if _, err := fmt.Fprintln(os.Stdout, term.Valid(), at.UnixNano()); err != nil {
				panic(err)
			}
			pause.For(ctx, time.Millisecond)
		}
	})
	if err != nil {
		panic(err)
	}
}
