package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"time"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/internal/explain"
	"github.com/deltabridge/deltabridge/internal/guard"
	"github.com/deltabridge/deltabridge/internal/page"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

func newRunCommand(stdout, stderr io.Writer) *cobra.Command {
	var (
		lines    bool
		profiles string
	)
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Stream changes until SIGINT or SIGTERM",
		Long: "run watches the cluster and delivers events until SIGINT or SIGTERM. Then it delivers the queued events\n" +
			"for at most shutdownTimeout. A second signal stops it immediately. The configuration is read only at the\n" +
			"start: SIGHUP is logged and ignored, except on a terminal, where it is the same as SIGTERM.\n\n" +
			"Without a configuration file, it watches all resources of the kubeconfig's cluster, delivers to an embedded\n" +
			"JetStream server that stores its data in ./data, and prints each change.",
		Args: cobra.NoArgs,
	}
	file := newConfigFile(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := file.load()
		if errors.Is(err, errNoConfig) {
			cfg, err = config.Default(), nil
			lines = lines || !cmd.Flags().Changed("print")
		}
		if err != nil {
			return err
		}
		var out io.Writer
		if lines {
			out = stdout
		}
		if profiles != "" {
			stop, err := servePprof(cmd.Context(), profiles, stderr)
			if err != nil {
				return err
			}
			defer stop()
		}
		path, _, _ := file.find()
		return run(cmd.Context(), cfg, cmp.Or(path, "built-in"), out, stderr)
	}
	cmd.Flags().BoolVar(&lines, "print", false,
		"print a line for each acknowledged event, and one for an initial list (default without a configuration file)")
	cmd.Flags().
		StringVar(&profiles, "pprof", "", "serve profiles of this process at this `address`, without authentication")
	_ = cmd.Flags().MarkHidden("pprof") // only benchmarks use this flag
	return cmd
}

// run builds and runs the bridge. file is the name of the configuration for the log. If out is not nil, run prints each
// acknowledged event to out.
func run(ctx context.Context, cfg *config.Config, file string, out, stderr io.Writer) error {
	if err := orphanedEvents(cfg); err != nil {
		return err
	}
	log := newLogger(cfg, stderr)
	defer logHangups(log)()
	// client-go logs to klog's global logger, so the command sets this logger and packages do not.
	klog.SetSlogLogger(log)
	kube, err := assemble.Kubeconfig(cfg.Kubeconfig)
	if err != nil {
		return err
	}
	server, err := newFrontend(cfg, kube, log)
	if err != nil {
		return err
	}
	server.configuration.Store(inUse(file))
	log.Info("starting bridge", "version", version, "config", file, "cluster", cfg.Cluster, "apiServer", kube.Host,
		"http", server.listener.Addr(), "sinks", len(cfg.Sinks), "processors", runtime.GOMAXPROCS(0))
	b := &bridge{cfg: cfg, file: file, kube: kube, server: server, out: out, log: log}
	return server.during(ctx, b.run)
}

// inUse describes the configuration in a file, which was loaded a moment ago.
func inUse(file string) *control.Configuration {
	c := &control.Configuration{File: file, Loaded: time.Now()}
	c.Hash, _ = configurationHash(file) // fails without a file, and if it was removed meanwhile
	return c
}

func newFrontend(cfg *config.Config, kube *rest.Config, log *slog.Logger) (*frontend, error) {
	name, err := processName()
	if err != nil {
		return nil, err
	}
	g, err := guard.New(kube, log)
	if err != nil {
		return nil, err
	}
	role := control.Single
	if cfg.State.Log != nil {
		role = control.Standby
	}
	f, err := listen(cfg.HTTP.Listen, name, role, g)
	if err == nil && cfg.HTTP.UI {
		f.page = newPage(f, cfg, log)
	}
	return f, err
}

// newPage returns the live page of a frontend.
func newPage(f *frontend, cfg *config.Config, log *slog.Logger) *page.Page {
	return page.New(page.Options{
		Status: f.status, Protect: f.guard.Protect, IsLocal: guard.IsLocal, Logger: log,
		Explain: func(ctx context.Context, resource, name string) (*explain.Report, error) {
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
	cfg    *config.Config
	file   string // name of the configuration file
	kube   *rest.Config
	server *frontend
	out    io.Writer // if not nil, each acknowledged event is printed to it
	log    *slog.Logger
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
	state, err := assemble.Checkpoint(b.cfg, b.log)
	if err != nil {
		return err
	}
	state.Quarantined = quarantined
	store, err := checkpoint.Open(state)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return b.runEngine(ctx, task{role: control.Single}, nil, func(o *engine.Options) { o.Store = store })
}

// runEngine builds and runs an engine, and serves its pages. t contains the role, and edit completes the options of the
// engine. taking is the take-over that the engine is a part of, or nil.
func (b *bridge) runEngine(ctx context.Context, t task, taking *takeOver, edit func(*engine.Options)) error {
	options, err := assemble.Options(b.cfg, b.kube, engine.Build{Version: version, Commit: commit}, b.log)
	if err != nil {
		return err
	}
	edit(&options)
	printed := func(string, *event.Message) {}
	if b.out != nil {
		printed = newPrinter(b.out, assemble.Places(b.cfg)).print
	}
	options.OnSettled = func(sink string, m *event.Message) {
		taking.endFirst()
		printed(sink, m)
		b.server.page.Observe(sink, m)
	}
	options.Transform = b.server.page.Counting(options.Transform)
	options.OnReady = func() { taking.end(stepReady) }
	e, err := engine.New(options)
	if err != nil {
		return err
	}
	taking.end(stepEngine)
	t.readiness, t.pages, t.commands, t.status = e.Readiness, e.Handler(), e.Commands(), e.Status
	b.server.serve(t)
	return e.Run(ctx)
}

func newLogger(cfg *config.Config, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: cfg.Log.Level}
	if cfg.Log.Format == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
