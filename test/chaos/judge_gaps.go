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
	return e.Gap.Reason + " gap of " + e.Gap.Resource + " from " + itoa(
		e.Gap.From,
	) + " to " + itoa(
		e.Gap.To,
	) + " (" + e.At.Format(
		"05.000",
	) + ") " + e.Gap.Subject
}

// forgotten reports whether something made it necessary to list a resource again.
func (j *sinkJudge) forgotten(g *Event) bool {
	lost := slices.ContainsFunc(j.Timeline.Faults, func(f Fault) bool {
		affects := f.Action == RestartAPI || f.Action == Forget && !slices.Contains(Cached(), g.Gap.Resource)
		return affects && f.Rev >= g.Gap.From && f.From.Before(g.made())
	})
	for n, p := range j.Timeline.Processes {
		if p.StartRev <= g.Gap.To && g.Gap.To <= j.listed(n) && (j.watchChanges(n) || j.changing(n)) {
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
		j.report(
			GapWidth,
			"%s: the bridge had %s@%d (%s) before that",
			g.describe(),
			example.subject(),
			example.RV,
			example.At.Format("05.000"),
		)
	}
}

func (j *sinkJudge) knownOf(
	entry string,
	g *Event,
	w Watch,
	stalled time.Time,
	known map[string]*Rev,
	watched map[string]bool,
) {
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

// stall is the time up to which the bridge was certainly reading, and what it read was certainly in its checkpoint;
// false if there is none.
func (j *sinkJudge) stall(g *Event) (time.Time, bool) {
	processes := j.Timeline.Processes
	n := len(processes) - 1
	for n > 0 && processes[n].Start.After(g.made()) { // its list can be of a revision before the start
		n--
	}
	at := g.made()
	if processes[n].StartRev <= g.Gap.From && processes[n].ReadyRev > 0 { // it was reading, and knew its position
		at = at.Add(-flightSlack)
	} else {
		for n--; n >= 0 && !j.caughtUp(&processes[n]); n-- {
			// it did not come far enough to know more than the one before
		}
		if n < 0 {
			return at, false
		}
		return j.committed(&processes[n]), true
	}
	return j.beforeStalls(at), true
}
