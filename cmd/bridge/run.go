package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/daemon"
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
		hangups, stop := notifyHangups()
		defer stop()
		o := daemon.Options{Version: version, Commit: commit, Hangups: hangups, Log: stderr}
		o.File, _, _ = file.find() // start returns the error
		start := func() error { return f.start(cmd.Context(), file, stdout, o) }
		if !f.wait {
			return start()
		}
		return daemon.UntilAccepted(cmd.Context(), o, start, func(err error) bool { return exitCode(err) == exitConfig })
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
func (f *runFlags) start(ctx context.Context, file *configFile, stdout io.Writer, o daemon.Options) error {
	cfg, err := file.load()
	lines := f.print
	if errors.Is(err, errNoConfig) {
		cfg, err = config.Default(), nil
		lines = lines || !f.printSet
	}
	if err != nil {
		return err
	}
	if err := orphanedEvents(cfg); err != nil {
		return err
	}
	if o.Config = cfg; lines {
		o.Events = stdout
	}
	err = daemon.Run(ctx, o)
	if _, ok := errors.AsType[*daemon.RefusedError](err); ok {
		err = &exitError{err, exitConfig}
	}
	return err
}
