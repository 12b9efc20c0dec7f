package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/internal/files"
	"github.com/deltabridge/deltabridge/internal/guard"
	"github.com/deltabridge/deltabridge/internal/page"
	"github.com/deltabridge/deltabridge/internal/reload"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
)

// Options configures [Run].
type Options struct {
	Version, Commit string // of the program
	Config          *config.Config
	File            string           // the configuration file; empty if there is none
	Hangups         <-chan os.Signal // receives each SIGHUP
	Events          io.Writer        // if not nil, a line for each acknowledged event is printed to it
	Log             io.Writer
}

// RefusedError means that the bridge cannot run with its configuration. It has the text of Err.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *RefusedError) Unwrap() error { return e.Err }

// Run runs the bridge until ctx ends.
func Run(ctx context.Context, o Options) error {
	cfg, level := o.Config, new(slog.LevelVar)
	log := newLogger(cfg.Log.Format, level, o.Log)
	// client-go logs to klog's global logger, so the program sets this logger and packages do not.
	klog.SetSlogLogger(log)
	kube, err := assemble.Kubeconfig(cfg.Kubeconfig)
	if err != nil {
		return err
	}
	name, err := processName()
	if err != nil {
		return err
	}
	b := &bridge{Options: o, cfg: cfg, kube: kube, log: log}
	if b.reload, err = reload.New(reload.Options{
		File: o.File, Config: cfg, Name: name, Level: level, Logger: log,
		Build: func(cfg *config.Config) (engine.Options, error) { return assemble.Options(cfg, kube, o.Version, log) },
	}); err != nil {
		return &RefusedError{err}
	}
	if b.server, err = newFrontend(cfg, name, o.Version, kube, b.reload, log); err != nil {
		return err
	}
	log.Info("starting bridge", "version", o.Version, "config", b.reload.Status().File, "cluster", cfg.Cluster,
		"apiServer", kube.Host, "http", b.server.listener.Addr(), "sinks", len(cfg.Sinks),
		"processors", runtime.GOMAXPROCS(0))
	return b.server.during(ctx, func(ctx context.Context) error {
		var reloading sync.WaitGroup
		defer reloading.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		reloading.Go(func() { b.reload.Watch(ctx, o.Hangups) })
		return b.run(ctx)
	})
}

func newFrontend(
	cfg *config.Config, name, version string, kube *rest.Config, reloader *reload.Reloader, log *slog.Logger,
) (*frontend, error) {
	g, err := guard.New(kube, log)
	if err != nil {
		return nil, err
	}
	f, err := listen(cfg.HTTP.Listen, name, version, roleOf(cfg), g, reloader)
	if err == nil && cfg.HTTP.UI {
		f.page = newPage(f, log)
	}
	return f, err
}

// roleOf returns the role of a process that has just started.
func roleOf(cfg *config.Config) control.Role {
	if cfg.State.Log != nil {
		return control.Standby
	}
	return control.Single
}

// newPage returns the live page of a frontend.
func newPage(f *frontend, log *slog.Logger) *page.Page {
	return page.New(page.Options{
		Status: f.status, Protect: f.guard.Protect, IsLocal: guard.IsLocal, Logger: log,
	})
}

// bridge contains what the engines of a process have in common.
type bridge struct {
	Options

	cfg    *config.Config   // Options.Config: that at the start, for what cannot change
	reload *reload.Reloader // has the configuration in use
	kube   *rest.Config
	server *frontend
	intake *intake // nil without the key audit, and with a state log
	// auditing accepts and delivers audit events if there is a state log. It is nil without the key audit.
	auditing *auditing
	log      *slog.Logger
}

// run runs engines until ctx ends.
func (b *bridge) run(ctx context.Context) error {
	err := checkpoint.CheckFormats(b.cfg.State.Path)
	switch {
	case err != nil:
	case b.cfg.State.Log != nil:
		err = b.replicate(ctx)
	default:
		err = b.runAlone(ctx, 0)
		if errors.Is(err, tracker.ErrOtherCluster) { // once: the new checkpoint belongs to no cluster yet
			b.log.Warn("starting again with a new checkpoint", "because", err)
			err = b.runAlone(ctx, 1)
		}
	}
	if newer, ok := errors.AsType[files.NewerFormatError](err); ok {
		b.refuseState(ctx, newer)
		return nil
	}
	return err
}

// refuseState says until ctx ends that a newer version has written the state. If the process ended instead, it would
// only be started again.
func (b *bridge) refuseState(ctx context.Context, newer files.NewerFormatError) {
	b.log.Error("cannot use the state, staying unready", "err", newer)
	b.server.serve(task{
		role:      roleOf(b.cfg),
		readiness: func() (reasons, notes []string) { return []string{newer.Error()}, nil },
		status: func() control.Status {
			problem := control.Problem{Text: newer.Problem(), Remedy: newer.Remedy()}
			return control.Status{At: time.Now(), Checkpoint: &control.Checkpoint{Problem: &problem}}
		},
	})
	<-ctx.Done()
}

// runAlone opens the checkpoint and runs an engine. quarantined is the number of checkpoints that the process has
// quarantined.
func (b *bridge) runAlone(ctx context.Context, quarantined int64) (err error) {
	state, err := assemble.Checkpoint(b.reload.InUse().Config, b.log)
	if err != nil {
		return err
	}
	state.Quarantined = quarantined
	store, err := checkpoint.Open(state)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if b.intake, err = b.openIntake(b.cfg, store); err != nil {
		return err
	}
	return b.intake.during(ctx, func(ctx context.Context) error {
		return b.runEngines(ctx, task{role: control.Single}, nil, store, b.intake.giveTo)
	})
}

func newLogger(format string, level slog.Leveler, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
