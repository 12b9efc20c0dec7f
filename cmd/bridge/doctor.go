package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/doctor"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
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
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
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
			report := doctor.Examine(cmd.Context(), options)
			if cmd.Context().Err() != nil {
				return errors.New("interrupted")
			}
			if output == "json" {
				err = report.WriteJSON(stdout)
			} else {
				err = report.WriteTable(stdout, consoleStyle(stdout))
			}
			if err == nil && report.Failed > 0 {
				err = fmt.Errorf("%d of %d steps failed", report.Failed, len(report.Findings))
			}
			return err
		},
	}
	configFlag(cmd.Flags(), &path)
	cmd.Flags().StringVarP(&output, "output", "o", "table", "`format` of the report: table or json")
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "time limit for each step at the API server")
	return cmd
}

// doctorOptions returns the options for checking a configuration. The sinks in the options are not connected.
func doctorOptions(cfg *config.Config) (doctor.Options, error) {
	options := doctor.Options{Config: cfg, Kube: func() (*rest.Config, error) {
		kube, err := assemble.Kubeconfig(cfg.Kubeconfig)
		if err == nil {
			kube.UserAgent, kube.WarningHandler = "deltabridge-doctor/"+version, rest.NoWarnings{}
		}
		return kube, err
	}}
	options.Scopes = assemble.Scopes(cfg)
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

// additional returns the additional destinations of a sink, which receive the messages that the main destination
// rejects.
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
