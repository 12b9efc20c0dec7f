package control

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"
)

// RequestPause asks the bridge to pause a sink, or to resume it. When it returns nil, the bridge has stored that the
// sink is paused or resumed. answer describes what has changed.
func RequestPause(ctx context.Context, b Bridge, sink string, paused bool) (answer string, err error) {
	command := "resume"
	if paused {
		command = "pause"
	}
	return requestText(ctx, b, command, sink)
}

// RequestReload asks the bridge to read its configuration file now. The answer says whether it has changed. If the file
// has mistakes, they are the error.
func RequestReload(ctx context.Context, b Bridge) (answer string, err error) {
	return requestText(ctx, b, "reload", "")
}

// requestText sends a command whose response is a text.
func requestText(ctx context.Context, b Bridge, command, sink string) (answer string, err error) {
	err = request(ctx, http.MethodPost, b, command, sink, func(response io.Reader) error {
		body, err := io.ReadAll(response)
		answer = string(body)
		return err
	})
	return answer, err
}

// RequestPaused asks the bridge that uses the given state directory which sinks are paused, and since when.
func RequestPaused(ctx context.Context, state string) (since map[string]time.Time, err error) {
	err = request(ctx, http.MethodGet, Bridge{State: state}, "paused", "", func(response io.Reader) error {
		return json.NewDecoder(response).Decode(&since)
	})
	return since, err
}
