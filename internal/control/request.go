package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
)

// ResyncReport is the result of a resync for one sink.
type ResyncReport struct {
	Sink      string   `json:"sink"`
	Resources int      `json:"resources"`
	Objects   int      `json:"objects"`
	Skipped   []string `json:"skipped,omitempty"` // the resources that were skipped, each with the reason
	Error     string   `json:"error,omitempty"`   // why the resync did not finish; empty if it finished
}

// RequestResync asks the bridge that uses the given state directory to resync one sink, or all sinks if sink is empty.
// It calls each with the report of a sink as soon as the resync of that sink has ended. It returns after the last
// report, or when each returns an error.
func RequestResync(ctx context.Context, state, sink string, each func(*ResyncReport) error) error {
	return request(ctx, http.MethodPost, state, "resync", sink, func(response io.Reader) error {
		for reports := json.NewDecoder(response); ; {
			var report ResyncReport
			switch err := reports.Decode(&report); {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return fmt.Errorf("the bridge stopped during the resync, or is a different version: %w", err)
			}
			if err := each(&report); err != nil {
				return err
			}
		}
	})
}

// request sends a command for a sink to the bridge that uses the given state directory. It calls read with the response
// body if the bridge accepts the command.
func request(ctx context.Context, method, state, command, sink string, read func(io.Reader) error) error {
	path := Socket(state)
	client := http.Client{
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}},
	}
	defer client.CloseIdleConnections()
	target := "http://bridge/" + command + "?sink=" + url.QueryEscape(sink)
	r, err := http.NewRequestWithContext(ctx, method, target, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(r)
	switch {
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no bridge is running with this state.path on this machine (no process listens on %s): start the "+
			"bridge, or specify the configuration that it runs with", path)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("only the user that runs the bridge can open its socket: %w", err)
	case err != nil:
		return fmt.Errorf("the bridge did not respond; it may have ended: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body) // the part that can be read is enough for the error
		return errors.New(strings.TrimSpace(string(body)))
	}
	return read(response.Body)
}
