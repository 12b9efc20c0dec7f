package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

const (
	// soon is a fuse that is so short that somebody must act now.
	soon = 30 * time.Minute
	// statusGaps is the maximum number of gaps of a sink in a status.
	statusGaps = 20
	// statusParked is the maximum number of destinations with parked events of a sink in a status.
	statusParked = 20
)

// Status returns the sources, the sinks and the checkpoint. The other fields are zero. It never waits for a handler, a
// destination or a commit, and can be called at any time.
func (e *Engine) Status() control.Status {
	s := control.Status{At: time.Now(), Checkpoint: e.checkpointStatus()}
	fuses, blocking := e.fuses(s.At), ""
	for _, p := range e.pipelines {
		sink := e.sinkStatus(p, fuses[p.Name], s.At)
		if sink.Queue.Blocked {
			blocking = p.Name
		}
		s.Sinks = append(s.Sinks, sink)
	}
	for _, i := range e.set.Statuses() {
		s.Sources = append(s.Sources, sourceStatus(&i, e.rates.of("read "+i.Name, s.At, i.Changes), blocking))
	}
	slices.SortFunc(s.Sources, func(a, b control.Source) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// sample takes a sample of the counters from which Status and the fuses compute rates, and the cuts that are due. The
// tracker calls it once a second.
func (e *Engine) sample() {
	now := time.Now()
	for _, p := range e.pipelines {
		p.progress.cut(now, p.Queue)
	}
	if !e.rates.due(now) {
		return
	}
	values := map[string]int64{}
	for _, p := range e.pipelines {
		stats, totals := p.Queue.Stats(), p.Metrics.Totals()
		waiting, _ := p.waiting(stats)
		values["waiting "+p.Name], values["pushed "+p.Name] = waiting, stats.Pushed
		values["delivered "+p.Name], values["dropped "+p.Name] = totals.Acknowledged, totals.Dropped
	}
	for _, i := range e.set.Statuses() {
		values["read "+i.Name] = i.Changes
	}
	if e.options.Journal != nil {
		values[auditRate] = int64(e.options.Journal.Status().Last)
	}
	e.rates.add(now, values)
}

func (e *Engine) sinkStatus(p *pipeline, fuse *control.Fuse, now time.Time) control.Sink {
	totals := p.Metrics.Totals()
	s := control.Sink{
		Name: p.Name, Kind: p.Kind, Destination: p.Place, Connected: p.Drain.Delivering(),
		PausedSince: p.Drain.PausedSince(), Received: totals.Received, Filtered: totals.Filtered,
		Delivered: totals.Acknowledged, Rate: e.rates.of("delivered "+p.Name, now, totals.Acknowledged),
		Queue: p.queueStatus(), Lag: p.Queue.Age().Seconds(), Dropped: totals.Dropped, Fuse: fuse,
	}
	if p.Actor {
		s.Actors = &control.Actors{}
		s.Actors.Proven, s.Actors.Sole, s.Actors.Unknown = p.Metrics.ActorTotals()
		waiting, _ := p.lines.sizes()
		s.Actors.Waiting = waiting.events
	}
	parts := p.Drain.Unavailable()
	for n, part := range parts {
		if n < statusParked {
			s.Parked = append(s.Parked, control.Parked{Destination: part.Destination, Events: part.Events})
		}
	}
	for n, g := range e.metrics.Gaps(p.Name) {
		if n < statusGaps {
			s.Gaps = append(s.Gaps, control.Gap{Resource: g.Resource, Reason: g.Reason, At: g.At})
		}
	}
	if p.Letters != nil {
		s.DeadLetters, _, _ = p.Letters.Stats() // an error is logged at each scrape
	}
	problem, lasting := p.problem(parts)
	s.Problem = problem
	drops := e.rates.of("dropped "+p.Name, now, totals.Dropped) > 0
	s.Health = sinkHealth(&s, lasting, drops || len(s.Gaps) > 0 && now.Sub(s.Gaps[0].At) < control.Recent)
	return s
}

func (p *pipeline) queueStatus() control.Queue {
	stats := p.Queue.Stats()
	spilled, bytes, _, _, _ := p.Queue.SpillStats()
	waiting, parkedBytes := p.waiting(stats)
	journal := int64(0)
	if p.audit != nil {
		journal = p.audit.Waiting()
	}
	return control.Queue{
		Events: int64(stats.Items), Bytes: stats.Bytes, MemoryBytes: p.Buffer.Bytes,
		DiskEvents: spilled + waiting - int64(stats.Items), DiskBytes: bytes + parkedBytes, MaxDisk: p.Buffer.DiskBytes,
		Overflow: p.Buffer.Overflow, Blocked: !p.Queue.BlockedSince().IsZero(), Journal: journal,
	}
}

// problem returns why the sink does not deliver some or all of its events, or nil. lasting means that the problem does
// not go away by itself.
func (p *pipeline) problem(parts []sinks.UnavailablePart) (problem *control.Problem, lasting bool) {
	if _, _, _, _, err := p.Queue.SpillStats(); err != "" {
		return &control.Problem{
			Text:   "its spill can't be written: " + err,
			Remedy: "make room on the volume of state.path, or replace the volume: see DeltabridgeSpillFailing in docs/operations.md",
		}, true
	}
	since, cause := p.Drain.Failure()
	if cause == nil && p.Drain.PausedSince().IsZero() && len(parts) > 0 && parts[0].Cause != nil {
		since, cause = parts[0].Since, fmt.Errorf("%s accepts no events: %w", parts[0].Destination, parts[0].Cause)
	}
	if cause == nil {
		return nil, false
	}
	problem = &control.Problem{
		Text: cause.Error(), Since: since,
		Remedy: "check the broker, and run `bridge doctor`, which tests each step of the connection",
	}
	if e, ok := errors.AsType[*sinks.ConnectError](cause); ok {
		problem.Text = e.Cause()
		if advice := e.Advice(); advice != "" {
			problem.Remedy = advice
		}
	}
	return problem, sinks.IsRejected(cause)
}

func sinkHealth(s *control.Sink, lasting, lost bool) control.Health {
	switch paused := !s.PausedSince.IsZero(); {
	case s.Fuse != nil && s.Fuse.Seconds < soon.Seconds():
		return control.AtRisk
	case lasting && !paused:
		return control.Failing
	case lost:
		return control.Lossy
	case paused:
		return control.Idle
	case s.Problem != nil || !s.Connected || s.Fuse != nil || s.DeadLetters > 0:
		return control.Waiting
	}
	return control.Healthy
}

// sourceStatus returns the status of a source. blocking is the name of a sink whose queue is full, if there is one.
func sourceStatus(i *informer.Status, rate float64, blocking string) control.Source {
	resource := event.GroupResource(i.Resource)
	s := control.Source{
		Name: i.Name, Resource: resource, Namespace: i.Namespace, Selector: i.Selector, Health: control.Healthy,
		Synced: i.Synced, Objects: i.Objects, Changes: i.Changes, Rate: rate, LastContact: i.LastContact, Relists: i.Relists,
	}
	failing := func(h control.Health, text, remedy string, since time.Time) {
		s.Health, s.Problem = h, &control.Problem{Text: text, Remedy: remedy, Since: since}
	}
	switch {
	case i.Forbidden:
		health := control.Failing
		if i.Excused {
			health = control.Idle
		}
		failing(health, i.LastError, "grant the permissions that `bridge rbac` prints, or exclude the resource in `watch`",
			i.FailingSince)
	case i.LastError != "":
		failing(
			control.Waiting,
			i.LastError,
			"check whether the API server answers other clients: `kubectl get --raw /readyz`; "+
				"the bridge tries again by itself",
			i.FailingSince,
		)
	case i.Stale && blocking != "":
		failing(control.Waiting, "it waits for sink "+blocking+", whose queue is full", "repair this sink first",
			i.LastContact)
	case i.Stale:
		failing(
			control.Failing,
			"its watch has been silent",
			"check whether the API server answers other clients, and whether "+
				"a proxy drops idle connections: see DeltabridgeWatchSilent in docs/operations.md",
			i.LastContact,
		)
	case !i.Synced:
		s.Health = control.Waiting
	}
	return s
}

func (e *Engine) checkpointStatus() *control.Checkpoint {
	stats := e.tracker.Stats()
	c := &control.Checkpoint{LastCommit: stats.LastCommit, Bytes: stats.SizeBytes, Log: e.options.LogPlace}
	if e.options.DetachedSince != nil {
		if since := e.options.DetachedSince(); !since.IsZero() {
			c.Detached = true
			c.Problem = &control.Problem{
				Text: "the state log is unavailable, so only this replica knows what has changed", Since: since,
				Remedy: "repair the broker of the state log; until then, do not delete this Pod, and do not drain its node",
			}
		}
	}
	if err := e.tracker.NotReady(); err != nil && !errors.Is(err, tracker.ErrNoAPIServer) {
		c.Problem = &control.Problem{
			Text:   err.Error(),
			Remedy: "make room on the volume of state.path; do not restart the bridge before the checkpoint can be written",
		}
	}
	return c
}
