package chaos

import (
	"slices"
	"strings"
)

// progress looks for changes behind a progress event that covers them. A partition has its own progress events, or they
// are apart and have a position.
func (j *sinkJudge) progress() {
	type sequence struct {
		place    int
		resource string
	}
	changes := map[*Event]bool{}
	for _, e := range j.kept {
		changes[e] = j.isChange(e)
	}
	covered := map[sequence]int64{}
	for _, e := range j.Events[j.dest] {
		at := sequence{e.Place, e.Resource}
		switch {
		case e.Operation == "progress" && !e.Apart:
			covered[at] = max(covered[at], e.RV)
		case changes[e] && e.RV <= covered[at]:
			j.report(Ahead, "%s, behind progress up to %d", e, covered[at])
		}
	}
	for _, p := range j.Events[j.dest] {
		if p.Operation != "progress" || !p.Apart {
			continue
		}
		for _, e := range j.kept {
			if changes[e] && e.Resource == p.Resource && e.RV <= p.RV && e.Seq >= p.Position[e.Place] {
				j.report(Ahead, "%s, behind the position of progress up to %d (%s)", e, p.RV, p.At.Format("05.000"))
				changes[e] = false
			}
		}
	}
}

// isChange reports whether an event is a new change: others can have older resourceVersions ("Progress" in events.md).
func (j *sinkJudge) isChange(e *Event) bool {
	return e.Operation != "restated" && !e.Initial && !e.Unknown && !strings.Contains(e.ID, ".filter.") && !j.restarted(e)
}

// misplaced looks for control events in a destination whose sinks send them to another one.
func (j *sinkJudge) misplaced() {
	var places []Control
	for _, p := range j.Timeline.Processes {
		if s := p.Config.At(j.dest); s != nil {
			places = append(places, s.Control)
		}
	}
	allApart := !slices.Contains(places, "")
	for _, e := range j.Events[j.dest] {
		if e.object() || e.Operation == "" {
			continue
		}
		if !e.Apart && allApart || e.Apart && !slices.Contains(places, Apart) {
			j.report(Misplaced, "a %s event of %s", e.Operation, e.Resource)
		}
	}
}
