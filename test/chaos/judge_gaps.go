package chaos

import (
	"slices"
	"time"
)

// judgeGaps asks for the cause of each gap event.
func (j *sinkJudge) judgeGaps() {
	for _, g := range j.gaps {
		switch g.Gap.Reason {
		case "relist":
			if !j.forgotten(g) {
				j.report(GapCause, "%s: the API server had the history", g.describe())
				continue
			}
			j.width(g)
		case "overflow":
			if !j.everHad("drop-oldest") {
				j.report(GapCause, "%s: the sink drops nothing", g.describe())
			}
		default:
			j.report(GapCause, "%s", g.describe())
		}
	}
}

func (e *Event) describe() string {
	return e.Gap.Reason + " gap of " + e.Gap.Resource + " from " + itoa(e.Gap.From) + " to " + itoa(e.Gap.To) + " (" + e.At.Format("05.000") + ") " + e.Gap.Subject
}

// forgotten reports whether something made it necessary to list a resource again.
func (j *sinkJudge) forgotten(g *Event) bool {
	lost := slices.ContainsFunc(j.Timeline.Faults, func(f Fault) bool {
		affects := f.Action == RestartAPI || f.Action == Forget && !slices.Contains(Cached(), g.Gap.Resource)
		return affects && f.Rev >= g.Gap.From && f.From.Before(g.At)
	})
	for n, p := range j.Timeline.Processes {
		if n > 0 && p.StartRev <= g.Gap.To && !sameWatch(p.Config, j.Timeline.Processes[n-1].Config) {
			lost = true // what is watched changed
		}
	}
	return lost
}

// width looks for changes within a gap that the bridge must have known before the history was lost.
func (j *sinkJudge) width(g *Event) {
	stalled, ok := j.stall(g)
	if !ok {
		return
	}
	known := map[string]*Rev{} // the last that had to be known, by what is watched by itself
	watched := map[string]bool{}
	for _, p := range j.Timeline.Processes {
		for n, w := range p.Config.Watch {
			if slices.Contains(w.Resources, g.Gap.Resource) && p.StartRev <= g.Gap.To {
				j.knownOf(itoa(int64(n)), g, w, stalled, known, watched)
			}
		}
	}
	var example *Rev
	for scope := range watched {
		r := known[scope]
		if r == nil || r.RV <= g.Gap.From {
			return // it may be the gap of this one
		}
		example = r
	}
	if example != nil {
		j.report(GapWidth, "%s: the bridge had %s@%d (%s) before that", g.describe(), example.subject(), example.RV, example.At.Format("05.000"))
	}
}

func (j *sinkJudge) knownOf(entry string, g *Event, w Watch, stalled time.Time, known map[string]*Rev, watched map[string]bool) {
	scopes := w.Namespaces
	if len(scopes) == 0 {
		scopes = []string{""}
	}
	for _, namespace := range scopes {
		watched[entry+"/"+w.Team+"/"+namespace] = true
	}
	for _, r := range j.History.Revs {
		if r.Resource != g.Gap.Resource || !r.At.Before(stalled) || w.Team != "" && r.Team != w.Team || r.RV > g.Gap.To {
			continue
		}
		if len(w.Namespaces) == 0 {
			known[entry+"/"+w.Team+"/"] = r
		} else if slices.Contains(w.Namespaces, r.Namespace) {
			known[entry+"/"+w.Team+"/"+r.Namespace] = r
		}
	}
}

// stall is the time up to which the bridge was certainly reading, and what it read was certainly in its checkpoint; false if
// there is none.
func (j *sinkJudge) stall(g *Event) (time.Time, bool) {
	processes := j.Timeline.Processes
	n := len(processes) - 1
	for n > 0 && processes[n].StartRev > g.Gap.To {
		n--
	}
	at := g.At
	if processes[n].StartRev <= g.Gap.From && processes[n].ReadyRev > 0 { // it was reading, and knew its position
		at = at.Add(-flightSlack)
	} else {
		for n--; n >= 0 && processes[n].ReadyRev == 0; n-- {
			// it did not come far enough to know more than the one before
		}
		if n < 0 {
			return at, false
		}
		at = processes[n].Asked.Add(-time.Second)
		if processes[n].How == string(Kill) {
			at = processes[n].End.Add(-commitSlack)
			if j.anyFault(processes[n].End) {
				at = processes[n].End.Add(-waitSlack - commitSlack)
			}
		}
	}
	// What held the reading up, or the checkpoint, before that. Faults can follow each other.
	for again := true; again; {
		again = false
		for _, f := range j.Timeline.Faults {
			if begin := f.From.Add(-commitSlack); j.stalls(f) && f.around(at, commitSlack) && begin.Before(at) {
				at, again = begin, true
			}
		}
	}
	return at, true
}

// anyFault reports whether a destination was away at a time, or shortly before it.
func (j *sinkJudge) anyFault(at time.Time) bool {
	return slices.ContainsFunc(j.Timeline.Faults, func(f Fault) bool { return f.Sink != "" && f.around(at, waitSlack) })
}

// stalls reports whether a fault can hold up the reading of changes, or the checkpoint.
func (j *sinkJudge) stalls(f Fault) bool {
	switch f.Action {
	case HangAPI, RestartAPI, FillDisk:
		return true
	case Away, Hang:
		return slices.ContainsFunc(j.Timeline.Processes, func(p Process) bool {
			s := p.Config.Sink(f.Sink)
			return s != nil && (s.Overflow == "block" || s.Small)
		})
	}
	return false
}
