package engine

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/parked"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/stdout"
)

// The status of each sink says what prevents it from delivering, and what to do.
func TestStatusOfSinks(t *testing.T) {
	state := t.TempDir()
	store := openStore(t, state)
	if err := store.SetPaused("paused", time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	e := engineOf(t, store, state, map[string]sinks.Sink{
		"away": &awaySink{}, "gap": stdout.New(io.Discard), "parks": stdout.New(io.Discard), "paused": stdout.New(io.Discard),
		"works": stdout.New(io.Discard), "wrong": &slowSink{away: &sinks.ConnectError{
			Step:     sinks.StepAuthenticate,
			Address:  "kafka:9092",
			Key:      "kafka.sasl",
			Err:      errors.New("wrong password"),
			Rejected: true,
		}},
	})
	defer endEngine(t, e)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	for n, p := range e.pipelines {
		e.observer.Sinks[n].Buffer.DiskBytes, e.observer.Sinks[n].Kind = 1<<30, "stdout"
		if p.Name == "parks" {
			part := []parked.Parking{{Destination: "k8s.pods", Message: &event.Message{}}}
			if err := p.Drain.Parked.Park(part); err != nil {
				t.Fatal(err)
			}
			continue // its drain does not run, so that the event stays parked
		}
		m := &event.Message{ID: "a", Type: event.Updated, Resource: pods, Time: time.Now()}
		if p.Name == "gap" {
			m.Type, m.GapInfo = event.Gap, &event.GapInfo{Reason: event.ReasonRelist}
		}
		if err := p.Queue.Push(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		go func() { ended <- p.Drain.Run(ctx) }()
	}
	type row struct {
		Health          control.Health
		Text, Remedy    string
		Delivered       int64
		Waiting, Parked int64
		Fuse            bool
	}
	generic := "check the broker, and run `bridge doctor`, which tests each step of the connection"
	want := map[string]row{
		"away":   {Health: control.Waiting, Text: "connection refused", Remedy: generic, Waiting: 1, Fuse: true},
		"gap":    {Health: control.Lossy, Delivered: 1},
		"parks":  {Health: control.Waiting, Parked: 1, Fuse: true},
		"paused": {Health: control.Idle, Waiting: 1, Fuse: true},
		"works":  {Health: control.Healthy, Delivered: 1},
		"wrong": {
			Health:  control.Failing,
			Text:    "kafka:9092: authenticate: wrong password",
			Remedy:  "see kafka.sasl",
			Waiting: 1,
			Fuse:    true,
		},
	}
	var got map[string]row
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		got = map[string]row{}
		for _, s := range e.Status().Sinks {
			r := row{Health: s.Health, Delivered: s.Delivered, Waiting: s.Queue.Events, Fuse: s.Fuse != nil}
			for _, p := range s.Parked {
				r.Parked += int64(p.Events)
			}
			if s.Problem != nil {
				r.Text, r.Remedy = s.Problem.Text, s.Problem.Remedy
			}
			got[s.Name] = r
		}
		if cmp.Equal(got, want) {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	s := e.Status()
	if gaps := s.Sinks[1].Gaps; len(gaps) != 1 || gaps[0].Resource != "pods" || time.Since(gaps[0].At) > time.Minute {
		t.Errorf("gaps: %+v", gaps)
	}
	if since := s.Sinks[3].PausedSince; s.At.Sub(since) < 59*time.Minute {
		t.Errorf("paused since %v", since)
	}
	stop()
	for _, p := range e.pipelines {
		if p.Name == "parks" {
			continue
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
