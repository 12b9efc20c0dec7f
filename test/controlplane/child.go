package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// stopTimeout is how long a child may take to end when it is asked to.
const stopTimeout = 20 * time.Second

// child is a running process whose output goes to a file. It ends with its
// parent, however the parent ends (on Linux; elsewhere only if the parent ends
// in order).
type child struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	err  error         // how it ended; to be read after done
}

// startChild starts the program at path and appends its output to the file log.
// When the process has ended, it is sent to ended, which must have room.
func startChild(name, log, path string, ended chan<- *child, args ...string) (*child, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer out.Close() // the process has its own descriptor

	c := &child{name: name, log: log, cmd: exec.Command(path, args...), done: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = out, out
	c.cmd.SysProcAttr = childAttributes()

	started := make(chan error)
	go func() {
		// The death signal is sent when the thread that started the process
		// ends, so this thread stays until the process has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		c.err = c.cmd.Wait()
		close(c.done)
		ended <- c
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

// stop asks the process to end, waits, and kills it when it does not. A process
// that had ended by itself is an error.
func (c *child) stop() error {
	select {
	case <-c.done:
		return c.ended()
	default:
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", c.name, err)
	}
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-c.done:
		return nil
	case <-timeout.C:
	}
	_ = c.cmd.Process.Kill() // fails only when it has ended meanwhile
	<-c.done
	return fmt.Errorf("stop %s: killed, because it had not ended after %s", c.name, stopTimeout)
}

// ended describes the end of a process that nobody asked for.
func (c *child) ended() error {
	how := "exit status 0"
	if c.err != nil {
		how = c.err.Error()
	}
	return fmt.Errorf("%s ended by itself (%s), see %s", c.name, how, c.log)
}
