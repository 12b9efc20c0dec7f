package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/deltabridge/deltabridge/test/observe"
	"github.com/deltabridge/deltabridge/test/poll"
	"github.com/deltabridge/deltabridge/test/process"
)

// program is a process: the one that is measured, or a server for it.
type program struct {
	*process.Process

	name   string
	output observe.LogBuffer
}

// start starts a program. The caller must call stop.
func start(binary string, args ...string) (*program, error) {
	return startWith(nil, binary, args...)
}

// startWith starts a program with additional environment variables.
func startWith(env []string, binary string, args ...string) (*program, error) {
	p := &program{name: filepath.Base(binary)}
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	var err error
	p.Process, err = process.Start(cmd)
	return p, err
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
	if !p.Stop(context.Background(), stopTimeout) {
		return p.failed(errors.New("did not end at SIGTERM"))
	}
	if err := p.Wait(); err != nil && !endedBy(err, syscall.SIGTERM) {
		return p.failed(err)
	}
	return nil
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

// cpu returns the CPU time that the running program has used.
func (p *program) cpu() (time.Duration, error) { return cpuOf(p.Pid) }

// prints waits until find succeeds on the program's output.
func (p *program) prints(ctx context.Context, find func(output string) bool) error {
	return until(ctx, startTimeout, func() error {
		switch {
		case find(p.output.String()):
			return nil
		case p.Ended():
			return poll.Permanent(p.failed(errors.New("ended early")))
		default:
			return errors.New(p.name + " has not started")
		}
	})
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

// until calls check until it returns nil, ctx ends or the limit has passed.
func until(ctx context.Context, limit time.Duration, check func() error) error {
	return poll.Until(ctx, pollInterval, limit, check)
}

// untilSlow is like until, with a longer pause: for checks that cost the measured program CPU, such as its metrics.
func untilSlow(ctx context.Context, check func() error) error {
	return poll.Until(ctx, slowInterval, loadTimeout, check)
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
