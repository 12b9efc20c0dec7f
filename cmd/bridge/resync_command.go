package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/console"
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
	path := filepath.Join(cfg.State.Path, socketName)
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://bridge/resync?sink="+url.QueryEscape(sink), nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no bridge runs with this state.path on this machine (nobody listens on %s): start it, or give the configuration that it runs with", path)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("the socket of the bridge is for the user that it runs as: %w", err)
	case err != nil:
		return fmt.Errorf("the bridge gave no answer; it may have ended: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body) // what there is of it
		return errors.New(strings.TrimSpace(string(body)))
	}
	var failed []error
	skipped := 0
	for reports := json.NewDecoder(response.Body); ; {
		var report resyncReport
		switch err := reports.Decode(&report); {
		case errors.Is(err, io.EOF):
			if len(failed) == 0 && skipped > 0 {
				return &exitError{fmt.Errorf("%s resources are not told completely: see above", console.Count(int64(skipped))), 2}
			}
			return errors.Join(failed...)
		case ctx.Err() != nil:
			return errInterrupted
		case err != nil:
			return fmt.Errorf("the bridge ended meanwhile, or is of another version: %w", err)
		}
		if err := printResync(out, &report); err != nil {
			return err
		}
		skipped += len(report.Skipped)
		if report.Error != "" {
			failed = append(failed, fmt.Errorf("sink %s: %s", report.Sink, report.Error))
		}
	}
}

var errInterrupted = errors.New("interrupted; the bridge goes on with the resync")

// printResync shows what came of the resync of a sink.
func printResync(out io.Writer, r *resyncReport) error {
	lines := []string{fmt.Sprintf("%s: %s objects of %s resources told once more", r.Sink, console.Count(int64(r.Objects)), console.Count(int64(r.Resources)))}
	for _, skipped := range r.Skipped {
		lines = append(lines, "  without "+skipped)
	}
	_, err := fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}
