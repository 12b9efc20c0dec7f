package observe

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

// Status returns the sources, the sinks and the checkpoint. The other fields are zero.
func (o *Observer) Status() control.Status {
	all := control.Status{At: time.Now(), Checkpoint: o.checkpointStatus()}
	fuses, blocking := o.fuses(all.At), ""
	for _, s := range o.Sinks {
		sink := o.sinkStatus(s, fuses[s.Name], all.At)
		if sink.Queue.Blocked {
			blocking = s.Name
		}
		all.Sinks = append(all.Sinks, sink)
	}
	for _, i := range o.Informers() {
		all.Sources = append(all.Sources, sourceStatus(&i, o.rates.of("read "+i.Name, all.At, i.Changes), blocking))
	}
	slices.SortFunc(all.Sources, func(a, b control.Source) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Sample takes a sample of the counters from which Status and the fuses compute rates, if one is due. It is called once
// a second.
func (o *Observer) Sample(now time.Time) {
	if !o.rates.due(now) {
		return
	}
	values := map[string]int64{}
	for _, s := range o.Sinks {
		stats, totals := s.Queue.Stats(), s.Metrics.Totals()
		values["waiting "+s.Name], values["pushed "+s.Name] = int64(stats.Items)+s.Parked(), stats.Pushed
		values["delivered "+s.Name], values["dropped "+s.Name] = totals.Acknowledged, totals.Dropped
	}
	for _, i := range o.Informers() {
		values["read "+i.Name] = i.Changes
	}
	if o.Journal != nil {
		values[auditRate] = int64(o.Journal.Status().Last)
	}
	o.rates.add(now, values)
}

func (o *Observer) sinkStatus(s *Sink, fuse *control.Fuse, now time.Time) control.Sink {
	totals := s.Metrics.Totals()
	status := control.Sink{
		Name: s.Name, Kind: s.Kind, Destination: s.Place, Connected: s.Drain.Delivering(),
		PausedSince: s.Drain.PausedSince(), Received: totals.Received, Filtered: totals.Filtered,
		Delivered: totals.Acknowledged, Rate: o.rates.of("delivered "+s.Name, now, totals.Acknowledged),
		Queue: s.queueStatus(), Lag: s.Queue.Age().Seconds(), Dropped: totals.Dropped, Fuse: fuse,
	}
	parts := s.Drain.Unavailable()
	for _, part := range parts[:min(len(parts), statusParked)] {
		status.Parked = append(status.Parked, control.Parked{Destination: part.Destination, Events: part.Events})
	}
	gaps := o.Metrics.Gaps(s.Name)
	for _, g := range gaps[:min(len(gaps), statusGaps)] {
		status.Gaps = append(status.Gaps, control.Gap{Resource: g.Resource, Reason: g.Reason, At: g.At})
	}
	var lasting bool
	status.Problem, lasting = s.problem(parts)
	drops := o.rates.of("dropped "+s.Name, now, totals.Dropped) > 0
	status.Health = sinkHealth(&status, lasting, drops || len(gaps) > 0 && now.Sub(gaps[0].At) < control.Recent)
	return status
}

func (s *Sink) queueStatus() control.Queue {
	stats := s.Queue.Stats()
	spill := s.Queue.SpillStats()
	parkedBytes, _ := s.Drain.Parked.Bytes()
	journal := int64(0)
	if s.Audit != nil {
		journal = s.Audit.Waiting()
	}
	return control.Queue{
		Events: int64(stats.Items), Bytes: stats.Bytes, MemoryBytes: s.Buffer.Bytes,
		DiskEvents: spill.Items + s.Parked(), DiskBytes: spill.Bytes + parkedBytes, MaxDisk: s.Buffer.DiskBytes,
		Overflow: s.Buffer.Overflow, Blocked: !s.Queue.BlockedSince().IsZero(), Journal: journal,
	}
}

// problem returns why the sink does not deliver some or all of its events, or nil. lasting means that the problem does
// not go away by itself.
func (s *Sink) problem(parts []sinks.UnavailablePart) (problem *control.Problem, lasting bool) {
	if err := s.Queue.SpillStats().LastErr; err != "" {
		return &control.Problem{
			Text:   "its spill can't be written: " + err,
			Remedy: "make room on the volume of state.path, or replace the volume: see DeltabridgeSpillFailing in docs/operations.md",
		}, true
	}
	since, cause := s.Drain.Failure()
	if cause == nil && s.Drain.PausedSince().IsZero() && len(parts) > 0 && parts[0].Cause != nil {
		since, cause = parts[0].Since, fmt.Errorf("%s accepts no events: %w", parts[0].Destination, parts[0].Cause)
	}
	if cause == nil {
		return nil, false
	}
	return problemOf(cause, since, "check the broker, and run `bridge doctor`, which tests each step of the connection"),
		sinks.IsRejected(cause)
}

// problemOf returns the problem that an error is. remedy is used if the error has none.
func problemOf(cause error, since time.Time, remedy string) *control.Problem {
	problem := &control.Problem{Text: cause.Error(), Since: since, Remedy: remedy}
	if e, ok := errors.AsType[*sinks.ConnectError](cause); ok {
		problem.Text = e.Cause()
		if advice := e.Advice(); advice != "" {
			problem.Remedy = advice
		}
	}
	return problem
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
	case s.Problem != nil || !s.Connected || s.Fuse != nil:
		return control.Waiting
	}
	return control.Healthy
}

// sourceStatus returns the status of a source. rate is negative if another informer has begun to count. blocking is the
// name of a sink whose queue is full, if there is one.
func sourceStatus(i *informer.Status, rate float64, blocking string) control.Source {
	resource := event.GroupResource(i.Resource)
	s := control.Source{
		Name:            i.Name,
		Resource:        resource,
		Namespace:       i.Namespace,
		Selector:        i.Selector,
		Health:          control.Healthy,
		Synced:          i.Synced,
		Objects:         i.Objects,
		Changes:         i.Changes,
		Rate:            max(0, rate),
		LastContact:     i.LastContact,
		ResourceVersion: i.ResourceVersion,
		Relists:         i.Relists,
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

func (o *Observer) checkpointStatus() *control.Checkpoint {
	stats := o.Tracker.Stats()
	c := &control.Checkpoint{LastCommit: stats.LastCommit, Bytes: stats.SizeBytes, Log: o.LogPlace}
	if o.DetachedSince != nil {
		if since := o.DetachedSince(); !since.IsZero() {
			c.Detached = true
			c.Problem = &control.Problem{
				Text: "the state log is unavailable, so only this replica knows what has changed", Since: since,
				Remedy: "repair the broker of the state log; until then, do not delete this Pod, and do not drain its node",
			}
		}
	}
	if err := o.Tracker.NotReady(); err != nil && !errors.Is(err, tracker.ErrNoAPIServer) {
		c.Problem = &control.Problem{
			Text:   err.Error(),
			Remedy: "make room on the volume of state.path; do not restart the bridge before the checkpoint can be written",
		}
	}
	return c
}
