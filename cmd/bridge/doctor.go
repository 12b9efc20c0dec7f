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
		Short: "Try everything that run would need, and change nothing",
		Long: "doctor goes to the API server, looks at the state folder and the machine, and goes to each destination, step by step.\n" +
			"It prints what it found, with a remedy for each failure, and exits with 1 if something failed. Warnings are no failures.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output %s: want table or json", output)
			}
			cfg, err := loadConfig(path)
			if err != nil {
				return err
			}
			options, err := examined(cfg)
			options.Step = timeout
			if err != nil {
				return err
			}
			klog.SetLogger(logr.Discard()) // what fails is in the report
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
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long a step at the API server may take")
	return cmd
}

// examined is what of a configuration can be tried.
func examined(cfg *config.Config) (doctor.Options, error) {
	options := doctor.Options{Config: cfg, Kube: func() (*rest.Config, error) {
		kube, err := assemble.Kubeconfig(cfg.Kubeconfig)
		if err == nil {
			kube.UserAgent, kube.WarningHandler = "deltabridge-doctor/"+version, rest.NoWarnings{}
		}
		return kube, err
	}}
	var err error
	if options.Scopes, err = assemble.Scopes(cfg); err != nil { // the configuration was checked, so there is none
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
		options.Sinks = append(options.Sinks, doctor.NamedSink{Name: s.Name, Sink: d.Sink, Besides: besides(refusals)})
	}
	return options, nil
}

// besides are the destinations of what a sink refuses.
func besides(r sinks.Rejections) (all []diagnose.Checker) {
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

// consoleStyle is that of a terminal, or of a file: without colors, and nothing is cut.
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
