package sinks

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// relogInterval is the minimum interval between log messages about one lasting failure. The failure is logged again
// only if its cause has changed.
const relogInterval = time.Minute

// state is the status of the destination. Only the goroutine of Run writes it; any goroutine may read it.
type state struct {
	mu       sync.Mutex
	once     bool      // Connect has succeeded
	since    time.Time // start of the failure; zero if the destination works
	attempts int       // failed attempts since then
	cause    error
	logged   string    // the cause that was logged last
	loggedAt time.Time // when cause was logged last
}

// Connected reports whether the sink has been connected at least once.
func (d *Drain) Connected() bool {
	d.state.mu.Lock()
	defer d.state.mu.Unlock()
	return d.state.once
}

// Failure returns the error of the last attempt to connect or deliver, and since when attempts fail. It returns nil if
// the destination works.
func (d *Drain) Failure() (since time.Time, cause error) {
	d.state.mu.Lock()
	defer d.state.mu.Unlock()
	return d.state.since, d.state.cause
}

// Delivering reports whether the sink is connected, its last attempt to send or check did not fail, and it is not
// paused.
func (d *Drain) Delivering() bool {
	_, cause := d.Failure()
	return d.Connected() && cause == nil && d.PausedSince().IsZero()
}

// Status returns "ok", or the reason why the destination takes no events and since when.
func (d *Drain) Status() string {
	status := d.connectionStatus()
	if since := d.PausedSince(); !since.IsZero() {
		status = "paused since " + since.UTC().Format(time.RFC3339)
	}
	if parts := d.Unavailable(); len(parts) > 0 {
		status += fmt.Sprintf("; %d destinations have parked events, the first is %s, since %s",
			len(parts), parts[0].Destination, parts[0].Since.UTC().Format(time.RFC3339))
		if parts[0].Cause != nil {
			status += ": " + parts[0].Cause.Error()
		}
	}
	return status
}

func (d *Drain) connectionStatus() string {
	s := &d.state
	s.mu.Lock()
	defer s.mu.Unlock()
	doing := "connecting"
	if s.once {
		doing = "retrying"
	}
	switch {
	case !s.since.IsZero():
		return doing + " since " + s.since.UTC().Format(time.RFC3339) + ": " + s.cause.Error()
	case s.once:
		return "ok"
	}
	return doing
}

func (s *state) connected(log *slog.Logger) {
	s.mu.Lock()
	s.once = true
	s.mu.Unlock()
	log.Info("sink connected")
	s.ok(log)
}

// ok records that the destination works. It ends the failure if there was one.
func (s *state) ok(log *slog.Logger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return
	}
	log.Info("destination available again",
		"after", time.Since(s.since).Round(time.Millisecond), "failedAttempts", s.attempts)
	s.since, s.attempts, s.cause, s.logged = time.Time{}, 0, nil, ""
}

// failed records a failed attempt. A failure is logged when it begins, and again when its cause changes, but not more
// often than every relogInterval.
func (s *state) failed(log *slog.Logger, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.since.IsZero() {
		s.since = now
	}
	s.attempts++
	s.cause = err
	if s.logged == "" || (s.logged != err.Error() && now.Sub(s.loggedAt) >= relogInterval) {
		s.logged, s.loggedAt = err.Error(), now
		log.Warn("destination unavailable, retrying", "err", err)
	}
}
