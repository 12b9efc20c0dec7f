package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// program is a process: the one that is measured, or a server for it.
type program struct {
	name   string
	cmd    *exec.Cmd
	output output
	done   chan struct{} // closed when the process has ended and err is set
	err    error
}

// output collects what a program prints.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// start starts a program. The caller must call stop.
func start(binary string, args ...string) (*program, error) {
	return startWith(nil, binary, args...)
}

// startWith starts a program with additional environment variables.
func startWith(env []string, binary string, args ...string) (*program, error) {
	p := &program{name: filepath.Base(binary), cmd: exec.Command(binary, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.SysProcAttr = childAttr()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { p.err = p.cmd.Wait(); close(p.done) }() // ends with the process
	return p, nil
}

// startSelf starts this binary as one of its helpers.
func startSelf(args ...string) (*program, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := start(self, args...)
	if err == nil {
		p.name = args[0]
	}
	return p, err
}

// stopTimeout is longer than the bridge's shutdownTimeout.
const stopTimeout = 40 * time.Second

// stop sends SIGTERM to the program and waits until it ends. It returns nil if the program has already ended.
func (p *program) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill() // reported below
		<-p.done
		return p.failed(errors.New("did not end at SIGTERM"))
	}
	if p.err != nil && !endedBy(p.err, syscall.SIGTERM) {
		return p.failed(p.err)
	}
	return nil
}

// kill sends SIGKILL to the program and waits until it has ended.
func (p *program) kill() error {
	err := p.cmd.Process.Kill()
	<-p.done
	return err
}

func endedBy(err error, signal syscall.Signal) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == signal
}

func (p *program) failed(err error) error {
	lines := strings.Split(strings.TrimSpace(p.output.String()), "\n")
	return fmt.Errorf("%s: %w; its last words:\n%s", p.name, err, strings.Join(lines[max(0, len(lines)-15):], "\n"))
}

func (p *program) pid() int { return p.cmd.Process.Pid }

// cpu returns the CPU time that the running program has used.
func (p *program) cpu() (time.Duration, error) { return cpuOf(p.pid()) }

// prints waits until find succeeds on the program's output.
func (p *program) prints(ctx context.Context, find func(output string) bool) error {
	return until(ctx, startTimeout, func() error {
		switch {
		case find(p.output.String()):
			return nil
		case p.ended():
			return permanent{p.failed(errors.New("ended early"))}
		default:
			return errors.New(p.name + " has not started")
		}
	})
}

func (p *program) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// firstWord waits for the program's first line, which helpers print when they are ready.
func (p *program) firstWord(ctx context.Context) (string, error) {
	word := ""
	err := p.prints(ctx, func(output string) bool {
		line, _, whole := strings.Cut(output, "\n")
		word = line
		return whole
	})
	return word, err
}

const (
	startTimeout = time.Minute
	pollInterval = 10 * time.Millisecond
	slowInterval = 200 * time.Millisecond
)

// permanent is an error at which until stops immediately.
type permanent struct{ error }

// until calls check until it returns nil, ctx ends or the limit has passed.
func until(ctx context.Context, limit time.Duration, check func() error) error {
	return poll(ctx, pollInterval, limit, check)
}

// untilSlow is like until, with a longer pause: for checks that cost the measured program CPU, such as its metrics.
func untilSlow(ctx context.Context, check func() error) error {
	return poll(ctx, slowInterval, loadTimeout, check)
}

func poll(ctx context.Context, interval, limit time.Duration, check func() error) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := check()
		var lasting permanent
		switch {
		case err == nil:
			return nil
		case errors.As(err, &lasting):
			return lasting.error
		}
		select {
		case <-deadline.C:
			return fmt.Errorf("after %s: %w", limit, err)
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// pause waits until d has passed or ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
