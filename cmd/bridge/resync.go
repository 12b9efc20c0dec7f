package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/internal/engine"
)

// configVariable names the configuration of the bridge that runs beside, for commands without --config: the chart sets it.
const configVariable = "DELTABRIDGE_CONFIG"

func newResyncCommand(stdout io.Writer) *cobra.Command {
	var path, sink string
	cmd := &cobra.Command{
		Use:   "resync",
		Short: "Tell sinks once more what exists",
		Long: "resync asks the bridge that runs with this configuration, on this machine, to send each object that its sinks are\n" +
			"for once more, as it is now: as events of the type restated, which are no changes. It waits until all of them are\n" +
			"delivered; if it is interrupted, the bridge goes on. It ends with 1 if a resync was refused or broken off, and with 2\n" +
			"if resources were left out, or their ends not marked.\n\n" +
			"Without --config it takes the file that " + configVariable + " names, so that in a pod of the chart\n" +
			"`kubectl exec statefulset/deltabridge -- bridge resync` will do.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				path = os.Getenv(configVariable)
			}
			cfg, err := loadConfig(path)
			if err != nil {
				return err
			}
			ctx, cancel := untilSignal(cmd.Context(), slog.New(slog.DiscardHandler))
			defer cancel()
			return requestResync(ctx, cfg, sink, stdout)
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "", "configuration `file` of the bridge that runs")
	cmd.Flags().StringVar(&sink, "sink", "", "`name` of the only sink to tell (empty: all)")
	return cmd
}

// requestResync asks the bridge that has the state of the configuration, and prints its answer as it comes. The error says why some
// sink was not told everything; the process ends with 2 if that was so of some resources only.
func requestResync(ctx context.Context, cfg *config.Config, sink string, out io.Writer) error {
	var failed []error
	skipped := 0
	err := engine.RequestResync(ctx, cfg.State.Path, sink, func(report *engine.ResyncReport) error {
		skipped += len(report.Skipped)
		if report.Error != "" {
			failed = append(failed, fmt.Errorf("sink %s: %s", report.Sink, report.Error))
		}
		return printResync(out, report)
	})
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted; the bridge goes on with the resync")
	case err == nil && len(failed) == 0 && skipped > 0:
		return &exitError{fmt.Errorf("%s resources are not told completely: see above", console.Count(int64(skipped))), 2}
	}
	return errors.Join(append(failed, err)...)
}

// printResync shows what came of the resync of a sink.
func printResync(out io.Writer, r *engine.ResyncReport) error {
	lines := []string{fmt.Sprintf("%s: %s objects of %s resources re-sent", r.Sink, console.Count(int64(r.Objects)), console.Count(int64(r.Resources)))}
	for _, skipped := range r.Skipped {
		lines = append(lines, "  without "+skipped)
	}
	_, err := fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}
