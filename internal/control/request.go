package control

import (
	"cmp"
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

// Bridge is the bridge to which a command is sent: the process that uses a state directory or, if none does and there
// are peers, the leader among them.
type Bridge struct {
	State string // the state directory
	// Peers are the addresses of all replicas, as for ReadStatus.
	Peers []string
	// TokenFile contains the token that is sent to the leader among the peers. If it does not exist, no token is sent.
	TokenFile string
}

// RequestResync asks the bridge to resync one sink, or all sinks if sink is empty. It calls each with the report of a
// sink as soon as the resync of that sink has ended. It returns after the last report, or when each returns an error.
func RequestResync(ctx context.Context, b Bridge, sink string, each func(*ResyncReport) error) error {
	return request(ctx, http.MethodPost, b, "resync", sink, func(response io.Reader) error {
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

// request sends a command for a sink to the bridge, and calls read with the response body if the bridge accepts the
// command.
func request(ctx context.Context, method string, b Bridge, command, sink string, read func(io.Reader) error) error {
	path := "/api/" + command + "?sink=" + url.QueryEscape(sink)
	err := requestLocally(ctx, method, b.State, path, read)
	if _, ok := errors.AsType[*notRunningError](err); !ok || len(b.Peers) == 0 {
		return err
	}
	leader, err := findLeader(ctx, b.Peers)
	if err != nil {
		return fmt.Errorf("no replica at %s is the leader, and none uses this state.path; try again, or see "+
			"`bridge status`: %w", strings.Join(b.Peers, ", "), err)
	}
	token, err := os.ReadFile(b.TokenFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("http.tokenFile: %w", err)
	}
	client := peerClient()
	defer client.CloseIdleConnections()
	if err := send(ctx, client, method, "http://"+leader+path, strings.TrimSpace(string(token)), read); err != nil {
		return fmt.Errorf("leader %s: %w", leader, err)
	}
	return nil
}

// notRunningError is the error if no process uses a state directory.
type notRunningError struct{ socket string }

func (e *notRunningError) Error() string {
	return fmt.Sprintf("no bridge is running with this state.path on this machine (no process listens on %s): start the "+
		"bridge, or specify the configuration that it runs with", e.socket)
}

// requestLocally sends a command to the process that uses a state directory.
func requestLocally(ctx context.Context, method, state, path string, read func(io.Reader) error) error {
	socket := Socket(state)
	client := &http.Client{
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}},
	}
	defer client.CloseIdleConnections()
	err := send(ctx, client, method, "http://bridge"+path, "", read)
	switch {
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED):
		return &notRunningError{socket}
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("only the user that runs the bridge can open its socket: %w", err)
	}
	return err
}

// peerClient returns a client for the HTTP port of a replica. It uses no proxy, and does not follow redirects, because
// another server must not receive the token.
func peerClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DialContext: (&net.Dialer{Timeout: Timeout}).DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// send sends a request, with a token unless it is empty.
func send(
	ctx context.Context, client *http.Client, method, target, token string, read func(io.Reader) error,
) error {
	request, err := http.NewRequestWithContext(ctx, method, target, http.NoBody)
	if err != nil {
		return err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("the bridge did not respond; it may have ended: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, statusBytes)) // a part is enough for the error
		return errors.New(cmp.Or(strings.TrimSpace(string(body)), response.Status))
	}
	return read(response.Body)
}

// withoutURL returns the error of a request without the method and the address.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}
