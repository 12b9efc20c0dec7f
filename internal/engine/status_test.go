package engine

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
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
	for _, p := range e.pipelines {
		p.Buffer.DiskBytes, p.Kind = 1<<30, "stdout"
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
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
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

// A fuse of less than half an hour, a failure that does not go away and a loss matter more than an outage.
func TestSinkHealth(t *testing.T) {
	short, long := &control.Fuse{Seconds: 1700}, &control.Fuse{Seconds: 2000}
	problem := &control.Problem{}
	for _, test := range []struct {
		sink          control.Sink
		lasting, lost bool
		want          control.Health
	}{
		{control.Sink{Connected: true}, false, false, control.Healthy},
		{control.Sink{Connected: true, DeadLetters: 1}, false, false, control.Waiting},
		{control.Sink{Connected: true, Fuse: long}, false, false, control.Waiting},
		{control.Sink{}, false, false, control.Waiting},
		{control.Sink{Problem: problem, Fuse: long}, false, false, control.Waiting},
		{control.Sink{Problem: problem, Fuse: long}, true, true, control.Failing},
		{control.Sink{Problem: problem, Fuse: long}, false, true, control.Lossy},
		{control.Sink{Problem: problem, Fuse: short}, true, true, control.AtRisk},
		{control.Sink{PausedSince: time.Now(), Fuse: long}, true, false, control.Idle},
		{control.Sink{PausedSince: time.Now(), Fuse: short}, false, false, control.AtRisk},
	} {
		if got := sinkHealth(&test.sink, test.lasting, test.lost); got != test.want {
			t.Errorf("%+v: %s, want %s", test, got, test.want)
		}
	}
}

func TestStatusOfSources(t *testing.T) {
	jobs := schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	since := time.Now().Add(-time.Hour)
	for name, test := range map[string]struct {
		status       informer.Status
		blocking     string
		health       control.Health
		text, remedy string
	}{
		"synced":         {informer.Status{Synced: true}, "", control.Healthy, "", ""},
		"not yet synced": {informer.Status{}, "", control.Waiting, "", ""},
		"forbidden":      {informer.Status{Forbidden: true, LastError: "no"}, "", control.Failing, "no", "`bridge rbac`"},
		"need not be readable": {
			informer.Status{Forbidden: true, Excused: true, LastError: "no"}, "", control.Idle, "no", "`bridge rbac`",
		},
		"unreachable": {informer.Status{Synced: true, LastError: "EOF"}, "", control.Waiting, "EOF", "`kubectl get --raw /readyz`"},
		"silent":      {informer.Status{Synced: true, Stale: true}, "", control.Failing, "silent", "DeltabridgeWatchSilent"},
		"held up":     {informer.Status{Synced: true, Stale: true}, "audit", control.Waiting, "it waits for sink audit", "this sink"},
	} {
		i := test.status
		i.Name, i.Resource, i.Namespace, i.FailingSince, i.LastContact = "jobs.batch", jobs, "shop", since, since
		s := sourceStatus(&i, 1.5, test.blocking)
		if s.Name != "jobs.batch" || s.Resource != "jobs.batch" || s.Namespace != "shop" || s.Rate != 1.5 ||
			s.Health != test.health {
			t.Errorf("%s: %+v", name, s)
		}
		switch {
		case (s.Problem == nil) != (test.text == ""):
			t.Errorf("%s: problem %+v", name, s.Problem)
		case s.Problem != nil && (!strings.Contains(s.Problem.Text, test.text) || !strings.Contains(s.Problem.Remedy, test.remedy) ||
			!s.Problem.Since.Equal(since)):
			t.Errorf("%s: %+v", name, s.Problem)
		}
	}
}

// The fuse of a sink that does not deliver is computed from what arrives, and that of one that is too slow from what the
// queue grows by. A state log that is unavailable shortens both.
func TestOutage(t *testing.T) {
	e := engineWith(t, t.TempDir(), map[string]sinks.Sink{"js": stdout.New(io.Discard)})
	defer endEngine(t, e)
	p := e.pipelines[0]
	p.Buffer.DiskBytes = 1 << 20
	now := time.Now()
	if o := e.outage(p, now); o != nil {
		t.Errorf("nothing waits: %+v", o)
	}
	e.sample()
	if e.rates.due(now) || len(e.rates.samples[0].values) != 4 {
		t.Errorf("samples: %+v", e.rates.samples)
	}
	e.rates.samples = nil
	e.rates.add(now.Add(-10*time.Second), map[string]int64{"pushed js": -80, "waiting js": 10})
	for range 20 { // more would wait for the drain
		m := &event.Message{
			ID:       "a",
			Type:     event.Updated,
			Resource: pods,
			Time:     now.Add(-5 * time.Second),
			Data:     make([]byte, 600),
		}
		if err := p.Queue.Push(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	o := e.outage(p, now)
	if o == nil || o.growth != 10 || o.waiting != 20 || o.memory != 30 || o.onlyHere != 0 {
		t.Fatalf("%+v", o)
	}
	if each := float64(storedHeader + 600 + 1 + 400); o.eventOnDisk != each || o.diskEvents != (1<<20)/each {
		t.Errorf("%+v", o)
	}
	e.options.DetachedSince = func() time.Time { return now.Add(-time.Minute) }
	if o = e.outage(p, time.Now()); o.onlyHere < 5*time.Second || o.onlyHere > 30*time.Second {
		t.Errorf("age of the oldest event that is not in the log: %v", o.onlyHere)
	}
	if s := e.Status(); !s.Checkpoint.Detached || s.Checkpoint.Problem == nil || s.Sinks[0].Health != control.AtRisk {
		t.Errorf("%+v, %+v", s.Checkpoint, s.Sinks[0])
	}
}
