package page

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/internal/control"
)

// What is shown before the rest is folded. The worst is first.
const (
	openLanes   = 8
	openSources = 10
	openLosses  = 10
)

// view is what the page shows.
type view struct {
	control.Status
	Now    time.Time
	Local  bool // whether the tail requires no token
	Totals totals

	Lanes, FoldedLanes     []control.Sink
	Rows, FoldedRows       []control.Source
	Losses, FoldedLosses   []loss
	ReadingHealth          control.Health // the worst of all sources
	LastContact            time.Time      // with the API server
	NotHealthy, NotServing int            // sources: that are not ok, and that are idle
}

// totals sums up all sources and sinks.
type totals struct {
	In, Out  float64 // per second
	Objects  int
	Waiting  int64
	Lag      float64
	Fuse     *control.Fuse // the shortest
	FuseSink string
	Gaps     int
	Dropped  int64
}

// loss is a place where a consumer lacks something, or may lack something.
type loss struct {
	Sink, What, Detail string
	At                 time.Time // zero if it is not known
}

func newView(s control.Status, now time.Time) *view {
	v := &view{Status: s, Now: now, ReadingHealth: control.Healthy}
	sinks, sources := slices.Clone(s.Sinks), slices.Clone(s.Sources)
	slices.SortFunc(sinks, func(a, b control.Sink) int {
		return cmp.Or(b.Health.Compare(a.Health), cmp.Compare(fuseOf(&a), fuseOf(&b)),
			cmp.Compare(b.Lag, a.Lag), strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(sources, func(a, b control.Source) int {
		return cmp.Or(b.Health.Compare(a.Health), cmp.Compare(b.Objects, a.Objects),
			strings.Compare(a.Name, b.Name))
	})
	v.Lanes, v.FoldedLanes = fold(sinks, openLanes, func(s *control.Sink) control.Health { return s.Health })
	v.Rows, v.FoldedRows = fold(sources, openSources, func(s *control.Source) control.Health { return s.Health })
	v.addSources(sources)
	v.addSinks(sinks)
	return v
}

// foldedNames returns a string that differs if other sources are folded.
func (v *view) foldedNames() string {
	var names strings.Builder
	for i := range v.FoldedRows {
		names.WriteString(v.FoldedRows[i].Name + "\n")
	}
	return names.String()
}

// addSources sums up the sources.
func (v *view) addSources(sources []control.Source) {
	for i := range sources {
		s := &sources[i]
		v.Totals.In += s.Rate
		v.Totals.Objects += s.Objects
		if s.Health != control.Idle {
			v.ReadingHealth = control.Worst(v.ReadingHealth, s.Health)
		}
		if s.LastContact.After(v.LastContact) {
			v.LastContact = s.LastContact
		}
		switch s.Health {
		case control.Healthy:
		case control.Idle:
			v.NotServing++
		default:
			v.NotHealthy++
		}
	}
}

// addSinks sums up the sinks, and collects what consumers may lack.
func (v *view) addSinks(sinks []control.Sink) {
	var all []loss
	for i := range sinks {
		s := &sinks[i]
		v.Totals.Out += s.Rate
		v.Totals.Waiting += s.Waiting()
		v.Totals.Lag = max(v.Totals.Lag, s.Lag)
		v.Totals.Dropped += s.Dropped
		v.Totals.Gaps += len(s.Gaps)
		if s.Fuse != nil && (v.Totals.Fuse == nil || s.Fuse.Seconds < v.Totals.Fuse.Seconds) {
			v.Totals.Fuse, v.Totals.FuseSink = s.Fuse, s.Name
		}
		for _, g := range s.Gaps {
			all = append(all, loss{s.Name, "gap", g.Resource + ", " + g.Reason, g.At})
		}
		if s.Dropped > 0 {
			all = append(all, loss{s.Name, "dropped", plural(s.Dropped, "event") + " by the full queue", time.Time{}})
		}
		for _, p := range s.Parked {
			all = append(all, loss{s.Name, "parked", plural(int64(p.Events), "event") + " for " + p.Destination, time.Time{}})
		}
	}
	slices.SortStableFunc(all, func(a, b loss) int { return b.At.Compare(a.At) })
	shown := min(openLosses, len(all))
	v.Losses, v.FoldedLosses = all[:shown], all[shown:]
}

// fold returns the part of a sorted list that is shown, and the part that is folded. Everything that is not well is
// shown, up to three times the usual number.
func fold[T any](all []T, open int, health func(*T) control.Health) (shown, folded []T) {
	n := 0
	for n < len(all) && n < 3*open && health(&all[n]).Compare(control.Idle) > 0 {
		n++
	}
	if n = max(n, open); n+1 >= len(all) { // one more needs as much space as the fold
		return all, nil
	}
	return all[:n], all[n:]
}

// class returns the CSS class and the icon of a state.
func class(h control.Health) string {
	switch h {
	case control.Healthy:
		return "ok"
	case control.Idle:
		return "idle"
	case control.Waiting:
		return "wait"
	case control.AtRisk:
		return "risk"
	case control.Failing:
		return "fail"
	case control.Lossy:
		return "loss"
	case control.Stopping:
		return "stop"
	}
	return "unknown"
}

// fuseOf returns the seconds of the fuse, or infinity if nothing waits.
func fuseOf(s *control.Sink) float64 {
	if s.Fuse == nil {
		return math.Inf(1)
	}
	return s.Fuse.Seconds
}
