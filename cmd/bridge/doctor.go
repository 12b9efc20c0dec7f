package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/internal/doctor"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

func newDoctorCommand(stdout io.Writer) *cobra.Command {
	var (
		path, output string
		timeout      time.Duration
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check everything that run requires, and change nothing",
		Long: "doctor checks the API server, the state directory, the machine and each destination, step by step. It\n" +
			"prints what it found, with a remedy for each problem, and exits with 1 if a step failed. Warnings are\n" +
			"not failures.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output %s: must be table or json", output)
			}
			cfg, err := loadConfig(path)
			if err != nil {
				return err
			}
			options, err := doctorOptions(cfg)
			options.Step = timeout
			if err != nil {
				return err
			}
			klog.SetLogger(logr.Discard()) // the report has the errors
			ctx, cancel := untilSignal(cmd.Context(), slog.New(slog.DiscardHandler))
			defer cancel()
			report := doctor.Examine(ctx, options)
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			if output == "json" {
				err = report.WriteJSON(stdout)
			} else {
				err = report.WriteTable(stdout, consoleStyle(stdout))
			}
			if _, _, failed := report.Count(); err == nil && failed > 0 {
				err = fmt.Errorf("%d of %d steps failed", failed, len(report))
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "", "configuration `file`")
	_ = cmd.MarkFlagRequired("config")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "`format` of the report: table or json")
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "time limit for each step at the API server")
	return cmd
}

// doctorOptions returns what to check of a configuration.
func doctorOptions(cfg *config.Config) (doctor.Options, error) {
	options := doctor.Options{Config: cfg, Kube: func() (*rest.Config, error) {
		kube, err := assemble.Kubeconfig(cfg.Kubeconfig)
		if err == nil {
			kube.UserAgent, kube.WarningHandler = "deltabridge-doctor/"+version, rest.NoWarnings{}
		}
		return kube, err
	}}
	var err error
	if options.Scopes, err = assemble.Scopes(cfg); err != nil { // impossible: the configuration was validated
		return options, err
	}
	for n := range cfg.Sinks {
		s := &cfg.Sinks[n]
		d, err := assemble.NewDestination(s, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			return options, err
		}
		refusals, err := d.Rejections(s, cfg.State.Path)
		if err != nil {
			return options, err
		}
		options.Sinks = append(options.Sinks, doctor.NamedSink{Name: s.Name, Sink: d.Sink, Additional: additional(refusals)})
	}
	return options, nil
}

// additional returns the destinations for messages that a sink's own destination rejects.
func additional(r sinks.Rejections) (all []diagnose.Checker) {
	if c, ok := r.Payloads.(diagnose.Checker); ok {
		all = append(all, c)
	}
	if l, ok := r.DeadLetters.(*sinks.DeadLetterSink); ok {
		if c, ok := l.Sink.(diagnose.Checker); ok {
			all = append(all, c)
		}
	}
	return all
}

// consoleStyle returns the style for a terminal. For other writers the style has no colors and no maximum width.
func consoleStyle(w io.Writer) console.Style {
	if !isTerminal(w) {
		return console.Style{}
	}
	style := console.Style{Color: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if width, _, err := term.GetSize(int(w.(*os.File).Fd())); err == nil {
		style.Width = width
	}
	return style
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
