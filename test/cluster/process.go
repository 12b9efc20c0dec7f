package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// stopTimeout is how long a process may take to end when it is asked to.
const stopTimeout = 20 * time.Second

// tailLines and tailBytes bound what is shown of a log, whichever is less.
const (
	tailLines = 40
	tailBytes = 16 << 10
)

// process is one program of the cluster, running or not. Its fields belong to
// the Cluster, which does not call its methods concurrently.
type process struct {
	name string // also that of the log
	log  string // path of the file that takes the output of all its runs
	run  *run   // nil when it does not run
}

// run is one life of a process.
type run struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how it ended; to be read after done
}

// start runs the program at path and appends its output to the log.
func (p *process) start(path string, args ...string) error {
	if p.run != nil {
		return fmt.Errorf("start %s: it runs already", p.name)
	}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	defer out.Close() // the process has its own descriptor

	r := &run{cmd: exec.Command(path, args...), done: make(chan struct{})}
	r.cmd.Stdout, r.cmd.Stderr = out, out
	r.cmd.Env = append(os.Environ(), "GOGC=400") // less work for the garbage collector, more memory
	r.cmd.SysProcAttr = processAttributes()
	started := make(chan error)
	go func() {
		// The kernel sends the death signal when the thread that started the
		// process ends, not when the whole parent does. So this thread is kept
		// until the process has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := r.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		r.err = r.cmd.Wait()
		close(r.done)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.run = r
	return nil
}

// stop asks the process to end and waits until it has. It is killed when it
// takes too long, or when ctx ends. To stop what does not run is no error, but a
// process that had ended by itself is one.
func (p *process) stop(ctx context.Context) error {
	r := p.run
	if r == nil {
		return nil
	}
	p.run = nil
	select {
	case <-r.done:
		return p.endedByItself(r)
	default:
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return errors.Join(fmt.Errorf("stop %s: %w", p.name, err), p.killRun(r))
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return p.killRun(r)
	}
}

// kill ends the process at once, with no chance to clean up.
func (p *process) kill() error {
	r := p.run
	if r == nil {
		return nil
	}
	p.run = nil
	return p.killRun(r)
}

func (p *process) killRun(r *run) error {
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-r.done
	return nil
}

// endedByItself describes an end that nobody asked for, with the last lines of
// the log.
func (p *process) endedByItself(r *run) error {
	how := "exit status 0"
	if r.err != nil {
		how = r.err.Error()
	}
	return fmt.Errorf("%s ended by itself (%s); the end of %s:\n%s", p.name, how, p.log, p.tail())
}

// tail returns the end of the log.
func (p *process) tail() string {
	file, err := os.Open(p.log)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	defer file.Close()
	if end, err := file.Seek(0, io.SeekEnd); err == nil {
		_, _ = file.Seek(max(0, end-tailBytes), io.SeekStart) // at worst it is read from its start
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return fmt.Sprintf("(log cannot be read: %v)", err)
	}
	lines := bytes.Split(bytes.TrimRight(data, "\n"), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-tailLines):], []byte("\n")))
}
