package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// do does one step.
func (r *run) do(ctx context.Context, s Step) error {
	switch s.Action {
	case Write:
		r.writers.Go(func() { (&writer{w: r.w, names: r.names, step: s}).run(ctx) })
	case Await:
		r.writers.Wait()
	case Pause:
		pause(ctx, s.Pause)
	case Kill, Term:
		r.end(s.Action)
	case Start:
		return r.start(ctx)
	case Configure:
		zones := r.config.Zones
		r.config = s.Config.Clone()
		r.config.Zones = zones // what the cluster has
	case Reload:
		return r.reload(ctx)
	case Away, Hang, Late, Cut:
		return r.disturb(ctx, s.Sink, s.Action)
	case Back:
		r.back(s.Sink)
	case Forget, RestartAPI:
		return r.forget(ctx, s.Action)
	case HangAPI:
		if r.fault(HangAPI, "") == nil {
			r.api.Freeze()
			return r.begins(ctx, HangAPI, "")
		}
	case BackAPI:
		r.api.Thaw()
		r.finishes("", HangAPI)
	case FillDisk:
		return r.fillDisk(ctx)
	case FreeDisk:
		r.freeDisk()
	case Lose:
		return r.lose(ctx)
	case Resync:
		r.resync(ctx, s.Sink)
	case PauseSink:
		return r.pauseSink(ctx, s.Sink)
	case ResumeSink:
		return r.resumeSink(ctx, s.Sink)
	case Label:
		return r.label(ctx, s)
	case Settle:
		return r.settle(ctx)
	default:
		return fmt.Errorf("unknown action %q", s.Action)
	}
	return nil
}

// disturb begins a fault of a destination.
func (r *run) disturb(ctx context.Context, sink string, a Action) error {
	d := r.dests[sink]
	if d == nil {
		return nil
	}
	if a != Cut {
		r.finishes(sink, Away, Hang, Late)
	}
	err := r.begins(ctx, a, sink)
	switch a {
	case Cut:
		d.proxy.Cut()
		r.finishes(sink, Cut)
	case Away:
		d.proxy.Refuse()
	case Hang:
		d.proxy.Freeze()
	default: // Late
		d.proxy.Stall()
	}
	return err
}

// back ends the faults of a destination.
func (r *run) back(sink string) {
	if d := r.dests[sink]; d != nil {
		d.proxy.Thaw()
		r.finishes(sink, Away, Hang, Late)
	}
}

// forget makes the API server lose its history.
func (r *run) forget(ctx context.Context, a Action) error {
	if err := r.begins(ctx, a, ""); err != nil {
		return err
	}
	f := &r.timeline.Faults[len(r.timeline.Faults)-1]
	var err error
	if a == Forget {
		err = r.w.cluster.Compact(ctx)
	} else if err = r.w.cluster.KillAPIServer(); err == nil {
		err = r.w.cluster.StartAPIServer(ctx)
	}
	if err != nil {
		return err
	}
	f.To = time.Now()
	f.Rev, err = r.w.cluster.Revision(ctx) // it may have gone on meanwhile
	return err
}

// lose removes the checkpoint.
func (r *run) lose(ctx context.Context) error {
	if r.bridge != nil {
		return nil
	}
	err := os.Remove(filepath.Join(r.state, "checkpoint.db"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = r.begins(ctx, Lose, "")
		r.finishes("", Lose)
	}
	return err
}

func (r *run) filler() string { return filepath.Join(r.state, "filler") }

// fillDisk leaves no room in the file system of the state.
func (r *run) fillDisk(ctx context.Context) error {
	if r.fault(FillDisk, "") != nil {
		return nil
	}
	if err := r.begins(ctx, FillDisk, ""); err != nil {
		return err
	}
	file, err := os.Create(r.filler())
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	_, err = io.Copy(file, endless{})
	if !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("the disk is not full: %w", err)
	}
	return errors.Join(file.Close())
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func (r *run) freeDisk() {
	if r.fault(FillDisk, "") == nil {
		return
	}
	_ = os.Remove(r.filler()) // if it is not there, there is room
	r.finishes("", FillDisk)
}

// pauseSink pauses the sink of a destination. The sink stays paused when the bridge is restarted.
func (r *run) pauseSink(ctx context.Context, dest string) error {
	if r.bridge == nil || r.used.At(dest) == nil || r.fault(PauseSink, dest) != nil {
		return nil
	}
	if err := r.begins(ctx, PauseSink, dest); err != nil {
		return err
	}
	return r.command(ctx, "pause", r.used.At(dest).Name)
}

func (r *run) resumeSink(ctx context.Context, dest string) error {
	if r.bridge == nil || r.used.At(dest) == nil || r.fault(PauseSink, dest) == nil {
		return nil
	}
	err := r.command(ctx, "resume", r.used.At(dest).Name)
	r.finishes(dest, PauseSink)
	return err
}

// resumeSinks resumes all sinks of the bridge.
func (r *run) resumeSinks(ctx context.Context) error {
	if !slices.ContainsFunc(r.timeline.Faults, func(f Fault) bool { return f.Action == PauseSink }) {
		return nil
	}
	for _, s := range r.used.Sinks {
		if err := r.command(ctx, "resume", s.Name); err != nil {
			return err
		}
	}
	for dest := range r.dests {
		r.finishes(dest, PauseSink)
	}
	return nil
}

// command runs a command of the bridge for a sink. It may fail if the disk is full. A pause waits for a request to a
// broker that hangs, which takes up to 15 seconds by default.
func (r *run) command(ctx context.Context, name, sink string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.w.binary, name, sink, "--config", filepath.Join(r.dir, "bridge.yaml"))
	cmd.Env = append(os.Environ(), r.w.env...)
	out, err := cmd.CombinedOutput()
	if err != nil && r.fault(FillDisk, "") == nil && !r.bridge.Ended() {
		r.violation("bridge %s %s: %v\n%s", name, sink, err, out)
	}
	return ctx.Err()
}

// resync asks for one, and does not wait.
func (r *run) resync(ctx context.Context, dest string) {
	s := r.used.At(dest)
	if r.bridge == nil || s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	cmd := exec.CommandContext(
		ctx,
		r.w.binary,
		"resync",
		"--config",
		filepath.Join(r.dir, "bridge.yaml"),
		"--sink",
		s.Name,
	)
	cmd.Env = append(os.Environ(), r.w.env...)
	r.background.Go(func() {
		defer cancel()
		_ = cmd.Run() // it is broken off where the bridge ends
	})
}
