package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"sync"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/internal/explain"
	"github.com/deltabridge/deltabridge/internal/guard"
	"github.com/deltabridge/deltabridge/internal/page"
	"github.com/deltabridge/deltabridge/internal/reload"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

func newRunCommand(stdout, stderr io.Writer) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Stream changes until SIGINT or SIGTERM",
		Long: "run watches the cluster and delivers events until SIGINT or SIGTERM. Then it delivers the queued events\n" +
			"for at most shutdownTimeout. A second signal stops it immediately.\n\n" +
			"If the configuration file changes, and after SIGHUP or `bridge reload`, it checks the file and loads it\n" +
			"without a restart. A file with mistakes changes nothing. On a terminal, SIGHUP is the same as SIGTERM.\n\n" +
			"Without a configuration file, it watches all resources of the kubeconfig's cluster, delivers to an embedded\n" +
			"JetStream server that stores its data in ./data, and prints each change.",
		Args: cobra.NoArgs,
	}
	file := newConfigFile(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.profiles != "" {
			stop, err := servePprof(cmd.Context(), f.profiles, stderr)
			if err != nil {
				return err
			}
			defer stop()
		}
		f.printSet = cmd.Flags().Changed("print")
		start := func() error { return f.start(cmd.Context(), file, stdout, stderr) }
		if !f.wait {
			return start()
		}
		return untilAccepted(cmd.Context(), file, stderr, start)
	}
	cmd.Flags().BoolVar(&f.print, "print", false,
		"print a line for each acknowledged event, and one for an initial list (default without a configuration file)")
	cmd.Flags().BoolVar(&f.wait, "wait-for-config", false, "if the configuration is refused at the start, do not exit: "+
		"serve the reason over HTTP, and start when the file is corrected")
	cmd.Flags().
		StringVar(&f.profiles, "pprof", "", "serve profiles of this process at this `address`, without authentication")
	_ = cmd.Flags().MarkHidden("pprof") // only benchmarks use this flag
	return cmd
}

// runFlags are the flags of `bridge run`.
type runFlags struct {
	print, printSet, wait bool
	profiles              string
}

// start reads the configuration and runs the bridge.
func (f *runFlags) start(ctx context.Context, file *configFile, stdout, stderr io.Writer) error {
	cfg, err := file.load()
	lines := f.print
	if errors.Is(err, errNoConfig) {
		cfg, err = config.Default(), nil
		lines = lines || !f.printSet
	}
	if err != nil {
		return err
	}
	var out io.Writer
	if lines {
		out = stdout
	}
	path, _, _ := file.find()
	return run(ctx, cfg, path, out, stderr)
}

// run builds and runs the bridge. file is the configuration file, or empty. If out is not nil, run prints each
// acknowledged event to out.
func run(ctx context.Context, cfg *config.Config, file string, out, stderr io.Writer) error {
	if err := orphanedEvents(cfg); err != nil {
		return err
	}
	level := new(slog.LevelVar)
	log := newLogger(cfg.Log.Format, level, stderr)
	hangups, stop := notifyHangups()
	defer stop()
	// client-go logs to klog's global logger, so the command sets this logger and packages do not.
	klog.SetSlogLogger(log)
	kube, err := assemble.Kubeconfig(cfg.Kubeconfig)
	if err != nil {
		return err
	}
	name, err := processName()
	if err != nil {
		return err
	}
	b := &bridge{cfg: cfg, kube: kube, out: out, log: log}
	if b.reload, err = reload.New(reload.Options{
		File: file, Config: cfg, Name: name, Level: level, Logger: log,
		Build: func(cfg *config.Config) (engine.Options, error) { return assemble.Options(cfg, kube, version, log) },
	}); err != nil {
		return &exitError{err, exitConfig}
	}
	if b.server, err = newFrontend(cfg, name, kube, b.reload, log); err != nil {
		return err
	}
	log.Info("starting bridge", "version", version, "config", b.reload.Status().File, "cluster", cfg.Cluster,
		"apiServer", kube.Host, "http", b.server.listener.Addr(), "sinks", len(cfg.Sinks),
		"processors", runtime.GOMAXPROCS(0))
	return b.server.during(ctx, func(ctx context.Context) error {
		var reloading sync.WaitGroup
		defer reloading.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		reloading.Go(func() { b.reload.Watch(ctx, hangups) })
		return b.run(ctx)
	})
}

func newFrontend(
	cfg *config.Config, name string, kube *rest.Config, reloader *reload.Reloader, log *slog.Logger,
) (*frontend, error) {
	g, err := guard.New(kube, log)
	if err != nil {
		return nil, err
	}
	f, err := listen(cfg.HTTP.Listen, name, roleOf(cfg), g, reloader)
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
		Explain: func(ctx context.Context, resource, name string) (*explain.Report, error) {
			cfg := f.reload.InUse().Config
			reports, err := explain.Options{Version: version}.Reports(ctx, cfg, []string{resource, name}, nil)
			if err != nil {
				return nil, err
			}
			return reports[0], nil
		},
	})
}

// bridge contains what the engines of a process have in common.
type bridge struct {
	cfg    *config.Config   // at the start: only what cannot change
	reload *reload.Reloader // has the configuration in use
	kube   *rest.Config
	server *frontend
	intake *intake // nil without the key audit, and with a state log
	// auditing accepts and delivers audit events if there is a state log. It is nil without the key audit.
	auditing *auditing
	out      io.Writer // if not nil, each acknowledged event is printed to it
	log      *slog.Logger
}

// run runs engines until ctx ends.
func (b *bridge) run(ctx context.Context) error {
	if b.cfg.State.Log != nil {
		return b.replicate(ctx)
	}
	err := b.runAlone(ctx, 0)
	if errors.Is(err, tracker.ErrOtherCluster) { // once: the new checkpoint belongs to no cluster yet
		b.log.Warn("starting again with a new checkpoint", "because", err)
		err = b.runAlone(ctx, 1)
	}
	return err
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
		return b.runEngines(ctx, task{role: control.Single}, nil, store, func(o *engine.Options) {
			if b.intake != nil {
				o.Journal = b.intake.journal
			}
		})
	})
}

func newLogger(format string, level slog.Leveler, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
