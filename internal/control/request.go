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

// ResyncReport is the result of a resync of one sink.
type ResyncReport struct {
	Sink      string   `json:"sink"`
	Resources int      `json:"resources"`
	Objects   int      `json:"objects"`
	Skipped   []string `json:"skipped,omitempty"` // resources, each with the reason
	Error     string   `json:"error,omitempty"`   // why the resync was not finished; empty if it was
}

// RequestResync requests a resync of one sink, or of all if sink is empty, from the process with this state directory.
// It calls each with the report of each sink as soon as the resync of that sink has ended, and returns after the last
// one, or with the first error of each.
func RequestResync(ctx context.Context, state, sink string, each func(*ResyncReport) error) error {
	path := Socket(state)
	client := http.Client{
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}},
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(
		ctx,
		http.MethodPost,
		"http://bridge/resync?sink="+url.QueryEscape(sink),
		nil,
	)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	switch {
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf(
			"no bridge runs with this state.path on this machine (nobody listens on %s): start it, or give the configuration that it runs with",
			path,
		)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("the socket of the bridge is for the user that it runs as: %w", err)
	case err != nil:
		return fmt.Errorf("the bridge gave no answer; it may have ended: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body) // as much as can be read
		return errors.New(strings.TrimSpace(string(body)))
	}
	for reports := json.NewDecoder(response.Body); ; {
		var report ResyncReport
		switch err := reports.Decode(&report); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("the bridge ended meanwhile, or is of another version: %w", err)
		}
		if err := each(&report); err != nil {
			return err
		}
	}
}
