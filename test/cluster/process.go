package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/deltabridge/deltabridge/test/process"
)

// stopTimeout is how long a process may take to end when it is asked to.
const stopTimeout = 20 * time.Second

// program is one program of the cluster, running or not. Its fields belong to
// the Cluster, which does not call its methods concurrently.
type program struct {
	name string           // also that of the log
	log  string           // path of the file that takes the output of all its runs
	run  *process.Process // nil when it does not run
}

// start runs the program at path and appends its output to the log.
func (p *program) start(path string, args ...string) error {
	if p.run != nil {
		return fmt.Errorf("start %s: it runs already", p.name)
	}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	defer out.Close() // the process has its own descriptor

	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), "GOGC=400") // less work for the garbage collector, more memory
	cmd.SysProcAttr = process.Attr()
	// It is kept out of the terminal's process group: Ctrl-C reaches only the parent, which stops the processes in order.
	// Only Linux ties the process to the life of its parent, and without that Ctrl-C had better reach it as well.
	cmd.SysProcAttr.Setpgid = runtime.GOOS == "linux"
	if p.run, err = process.Start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	return nil
}

// stop asks the process to end and waits until it has. It is killed when it
// takes too long, or when ctx ends. To stop what does not run is no error, but a
// process that had ended by itself is one.
func (p *program) stop(ctx context.Context) error {
	run := p.run
	if run == nil {
		return nil
	}
	p.run = nil
	if run.Ended() {
		return p.endedByItself(run)
	}
	run.Stop(ctx, stopTimeout)
	return nil
}

// kill ends the process at once, with no chance to clean up.
func (p *program) kill() error {
	run := p.run
	if run == nil {
		return nil
	}
	p.run = nil
	if err := run.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	return nil
}

// endedByItself describes an end that nobody asked for, with the last lines of
// the log.
func (p *program) endedByItself(run *process.Process) error {
	how := "exit status 0"
	if err := run.Wait(); err != nil {
		how = err.Error()
	}
	return fmt.Errorf("%s ended by itself (%s); the end of %s:\n%s", p.name, how, p.log, p.tail())
}

// tail returns the end of the log.
func (p *program) tail() string { return process.Tail(p.log, 40) }
