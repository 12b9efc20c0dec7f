// Package process runs the programs that tests and benchmarks start. On Linux, they end with the process that has
// started them, however it ends.
package process

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a program that was started. Its methods can be called concurrently.
type Process struct {
	*os.Process

	done chan struct{}
	err  error
}

// Start starts a program. If cmd has no SysProcAttr, it gets [Attr].
func Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = Attr()
	}
	p := &Process{done: make(chan struct{})}
	started := make(chan error)
	go func() { // ends with the process
		// The kernel sends the death signal when the thread that started the process ends, not when the whole parent does.
		// So this thread is kept until the process has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.Process = cmd.Process
	return p, nil
}

// Done returns a channel that is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports whether the program has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Wait waits until the program has ended, and returns how: the error of [exec.Cmd.Wait].
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Stop sends SIGTERM, and waits until the program has ended. If it takes longer than limit, or ctx ends, Stop kills it
// and returns false.
func (p *Process) Stop(ctx context.Context, limit time.Duration) (inTime bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_ = p.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
		return true
	case <-ctx.Done():
		_ = p.Kill() // the caller reports that it took too long
		return false
	}
}

// Kill ends the program at once, as a crash does, and waits until it has ended.
func (p *Process) Kill() error {
	if err := p.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// Tail returns the last lines of a log, for error messages.
func Tail(path string, lines int) string {
	const most = 64 << 10 // bytes
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if end, err := file.Seek(0, io.SeekEnd); err == nil {
		_, _ = file.Seek(max(0, end-most), io.SeekStart) // at worst it is read from its start
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
