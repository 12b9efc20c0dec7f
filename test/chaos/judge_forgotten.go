package chaos

import (
	"reflect"
	"slices"
	"time"
)

// This file is about what a process committed before it ended, and what the next one therefore does not know.

const (
	// commitSlack is how long the last commit of the checkpoint can have been before a kill: "about a second and at most
	// four".
	commitSlack = 5 * time.Second
	// waitSlack is for how long events wait in memory while a destination is away.
	waitSlack = 12 * time.Second
)

// committed is the time up to which everything is certain to be in the checkpoint of a process that has ended, or on
// disk for its sinks.
func (j *sinkJudge) committed(p *Process) time.Time {
	at := p.Asked.Add(-time.Second)
	if p.How == string(Kill) {
		at = p.End.Add(-commitSlack)
		if j.anyFault(p.End) {
			at = at.Add(-waitSlack)
		}
		debounce := time.Duration(0) // for which updates wait in memory
		for _, s := range p.Config.Sinks {
			debounce = max(debounce, s.Filter.Debounce)
		}
		at = at.Add(-debounce)
	}
	return j.beforeStalls(at)
}

// caughtUp reports whether a process that has ended certainly had read what came before it. One that resumes is ready
// at once.
func (j *sinkJudge) caughtUp(p *Process) bool {
	up := p.Up
	if up.IsZero() {
		up = p.Start
	}
	return p.ReadyRev > 0 && j.committed(p).After(up.Add(time.Second))
}

// beforeStalls is at, or the beginning of what held up the reading, or the checkpoint, before that. Faults can follow
// each other.
func (j *sinkJudge) beforeStalls(at time.Time) time.Time {
	for again := true; again; {
		again = false
		for _, f := range j.Timeline.Faults {
			if begin := f.From.Add(-commitSlack); j.stalls(f) && f.around(at, commitSlack) && begin.Before(at) {
				at, again = begin, true
			}
		}
	}
	return at
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
	case Away, Hang, Late, PauseSink:
		return slices.ContainsFunc(j.Timeline.Processes, func(p Process) bool {
			s := p.Config.At(f.Sink)
			return s != nil && (s.Overflow != "" || s.Small) // its disk can be full
		})
	}
	return false
}

// forgot reports whether p made an event, and ended before that was certainly in its checkpoint: it was killed, stopped
// on a full disk, or stopped while something held up the reading within a list.
func (j *sinkJudge) forgot(p *Process, e *Event) bool {
	made := e.made()
	return (j.abrupt(p) || j.heldUp(p)) && !made.Before(p.Start) && made.Before(p.End.Add(time.Second)) &&
		!made.Before(j.committed(p))
}

// heldUp reports whether something can have held up the reading of changes, or the checkpoint, when a process ended.
func (j *sinkJudge) heldUp(p *Process) bool {
	return !p.End.IsZero() &&
		slices.ContainsFunc(j.Timeline.Faults, func(f Fault) bool { return j.stalls(f) && f.around(p.End, 0) })
}

// abrupt reports whether a process ended without writing its checkpoint.
func (j *sinkJudge) abrupt(p *Process) bool {
	return p.How == string(Kill) || !p.End.IsZero() && slices.ContainsFunc(j.Timeline.Faults, func(f Fault) bool {
		return f.Action == FillDisk && f.around(p.End, 0)
	})
}

// unknown reports whether the bridge may have forgotten that it sent a state, because the API server had lost the
// history too. The gap event covers it ("Limits" in delivery.md). A deletion or a leave can carry an older state, so the
// gap event of a later list covers it.
func (j *sinkJudge) unknown(last *Event) bool {
	if last == nil {
		return false
	}
	removal := last.Operation == "deleted"
	covers := func(g Gap) bool {
		return g.Resource == last.Resource && g.Reason == "relist" && (g.From < last.RV || removal) && last.RV <= g.To
	}
	return slices.ContainsFunc(j.Timeline.Processes, func(p Process) bool {
		return j.forgot(&p, last) && (j.sink.Kind.LastOnly() && slices.ContainsFunc(j.Timeline.Relists, covers) ||
			slices.ContainsFunc(j.gaps, func(g *Event) bool {
				return covers(*g.Gap) && (!removal || g.At.After(p.End))
			}))
	})
}

// uncommitted reports whether the bridge may have forgotten that it sent a state, and the next process that certainly
// read what came before it had another configuration, or continued with a change of what is watched: then it counts as
// not sent ("Limits" in delivery.md).
func (j *sinkJudge) uncommitted(last *Event) bool {
	if last == nil {
		return false
	}
	processes := j.Timeline.Processes
	for n := range processes {
		if !j.forgot(&processes[n], last) {
			continue
		}
		if n+1 < len(processes) && j.changing(n+1) {
			return true
		}
		unread := func(m int) bool { return j.abrupt(&processes[m]) || m > n && !j.caughtUp(&processes[m]) }
		for m := n + 1; m < len(processes) && unread(m-1); m++ {
			if !reflect.DeepEqual(processes[n].Config, processes[m].Config) {
				return true
			}
		}
	}
	return false
}
