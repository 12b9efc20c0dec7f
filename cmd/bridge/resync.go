package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/internal/control"
)

func newResyncCommand(stdout io.Writer) *cobra.Command {
	var sink string
	cmd := &cobra.Command{
		Use:   "resync",
		Short: "Re-send all existing objects to sinks",
		Long: "resync asks the bridge that runs with this configuration on this machine, or else the leader among\n" +
			"`http.peers:`, to re-send the current state of each object that passes a sink's filters. The events have\n" +
			"the type restated; they are not changes. The command waits until all events are delivered. If it is\n" +
			"interrupted, the resync continues in the bridge. It exits with 1 if a resync was rejected or aborted, and\n" +
			"with 2 if resources were skipped or did not end with a synced event.\n\n" +
			"In a pod of the chart this is enough: `kubectl exec statefulset/deltabridge -- bridge resync`.",
		Args: cobra.NoArgs,
	}
	file := newConfigFile(cmd.Flags())
	file.addSink(cmd, &sink, "resync only the sink with this `name` (default: all sinks)")
	out := newOutput(cmd, stdout, formatText, formatJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, _, err := file.read(true)
		if err != nil {
			return err
		}
		return requestResync(cmd.Context(), cfg, sink, out)
	}
	return cmd
}

// requestResync asks the bridge that uses the state directory of the configuration to resync. It prints each report as
// soon as it arrives. The returned error contains an error for each sink whose resync failed. If no resync failed but
// resources were skipped, the error has exit code 2.
func requestResync(ctx context.Context, cfg *config.Config, sink string, out *output) error {
	var failed []error
	skipped := 0
	err := control.RequestResync(ctx, runningBridge(cfg), sink, func(report *control.ResyncReport) error {
		skipped += len(report.Skipped)
		if report.Error != "" {
			failed = append(failed, fmt.Errorf("sink %s: %s", report.Sink, report.Error))
		}
		return out.print(resyncReport{report})
	})
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted; the resync continues in the bridge")
	case err == nil && len(failed) == 0 && skipped > 0:
		return &exitError{
			fmt.Errorf("%s resources were not re-sent completely, see the output above", console.Count(int64(skipped))),
			exitPartly,
		}
	}
	return errors.Join(append(failed, err)...)
}

// runningBridge returns the bridge that runs with a configuration.
func runningBridge(cfg *config.Config) control.Bridge {
	return control.Bridge{State: cfg.State.Path, Peers: cfg.HTTP.Peers, TokenFile: cfg.HTTP.TokenFile}
}

// resyncReport is the result of one sink's resync.
type resyncReport struct {
	*control.ResyncReport
}

func (r resyncReport) WriteTable(w io.Writer, _ console.Style) error {
	_, err := fmt.Fprintf(w, "%s: %s objects of %s resources re-sent\n",
		r.Sink, console.Count(int64(r.Objects)), console.Count(int64(r.Resources)))
	for _, skipped := range r.Skipped {
		_, err = fmt.Fprintln(w, "  incomplete:", skipped)
	}
	return err
}
