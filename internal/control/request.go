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
	return post(ctx, state, "resync", sink, func(response io.Reader) error {
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

// RequestPause asks the bridge that uses the given state directory to pause a sink, or to resume it. When it returns
// nil, the bridge has stored that the sink is paused or resumed. answer describes what has changed.
func RequestPause(ctx context.Context, state, sink string, paused bool) (answer string, err error) {
	command := "resume"
	if paused {
		command = "pause"
	}
	err = post(ctx, state, command, sink, func(response io.Reader) error {
		body, err := io.ReadAll(response)
		answer = string(body)
		return err
	})
	return answer, err
}

// post sends a command for a sink to the bridge that uses the given state directory, and calls read with the response
// body if the bridge accepts the command.
func post(ctx context.Context, state, command, sink string, read func(io.Reader) error) error {
	path := Socket(state)
	client := http.Client{
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}},
	}
	defer client.CloseIdleConnections()
	target := "http://bridge/" + command + "?sink=" + url.QueryEscape(sink)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
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
