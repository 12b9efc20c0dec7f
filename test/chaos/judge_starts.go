package chaos

import (
	"math"
	"slices"
	"time"
)

// handlers are the processes that may have handled a revision: it ended after that, not all was settled before it, and
// it is not certain that one before has delivered it, or left it on disk.
func (j *sinkJudge) handlers(r *Rev) (handlers []*Process) {
	certain := false
	for n := range j.Timeline.Processes {
		p := &j.Timeline.Processes[n]
		settled := int64(0)
		for _, s := range j.Timeline.Settled {
			if !s.At.After(p.Start) {
				settled = max(settled, s.Rev)
			}
		}
		if n > 0 && !certain {
			before := &j.Timeline.Processes[n-1]
			certain = j.caughtUp(before) && r.At.Before(j.committed(before))
		}
		if certain && !j.moves(n) {
			continue
		}
		if p.EndRev >= r.RV && r.RV > settled {
			handlers = append(handlers, p)
		}
	}
	return handlers
}

// starts reports whether a process sends the destination an initial list because it does not know what that has: the
// checkpoint was lost, or another sink wrote there before, or none.
func (j *sinkJudge) starts(n int) bool {
	sink := j.Timeline.Processes[n].Config.At(j.dest)
	if n == 0 || sink == nil {
		return false
	}
	before := j.Timeline.Processes[n-1].Config.At(j.dest)
	return before == nil || before.Name != sink.Name || j.lostCheckpoint(n)
}

func (j *sinkJudge) lostCheckpoint(n int) bool {
	before, now := j.Timeline.Processes[n-1], j.Timeline.Processes[n]
	return slices.ContainsFunc(j.Timeline.Faults, func(f Fault) bool {
		return f.Action == Lose && f.From.After(before.Start) && f.From.Before(now.Start)
	})
}

// moves reports whether the sink of a process had another destination in the process before.
func (j *sinkJudge) moves(n int) bool {
	sink := j.Timeline.Processes[n].Config.At(j.dest)
	return n > 0 && sink != nil && slices.ContainsFunc(j.Timeline.Processes[n-1].Config.Sinks, func(s Sink) bool {
		return s.Name == sink.Name && s.Dest() != j.dest
	})
}

// movedWith reports whether a state passed the filter that p had for another destination of the sink, and an event
// about it may have waited until the sink moved to this one.
func (j *sinkJudge) movedWith(e *Event, p *Process, r *Rev) bool {
	for n := range j.Timeline.Processes {
		now := &j.Timeline.Processes[n]
		if j.moves(n) && p.Start.Before(now.Start) && e.made().Before(now.Start) {
			name := now.Config.At(j.dest).Name
			return slices.ContainsFunc(p.Config.Sinks, func(s Sink) bool {
				return s.Name == name && p.Config.passes(s.Dest(), r)
			})
		}
	}
	return false
}

// restarted reports whether an event is of an initial list to a destination that may have it already, in part or as a
// whole. A sink that moved also sends what waited for the destination that it had, in front of the list or behind it.
func (j *sinkJudge) restarted(e *Event) bool {
	for n, p := range j.Timeline.Processes {
		starts := j.starts(n) && j.moves(n) || (j.starts(n) || j.unfinished(n)) && e.Initial && e.RV <= j.listed(n)
		if starts && !e.At.Before(p.Start) {
			return true
		}
	}
	return false
}

// unfinished reports whether the process before may not have finished its initial lists, or those of a changed watch.
func (j *sinkJudge) unfinished(n int) bool {
	if n == 0 {
		return false
	}
	before := &j.Timeline.Processes[n-1]
	return before.ReadyRev == 0 || j.changing(n) ||
		(n == 1 || j.starts(n-1) || j.unfinished(n-1)) && j.abrupt(before) && !j.caughtUp(before)
}

// listed is the revision up to which the lists of a process can be; if it ended before it was ready, those of the next.
func (j *sinkJudge) listed(n int) int64 {
	for _, p := range j.Timeline.Processes[n:] {
		if p.ReadyRev > 0 {
			return p.ReadyRev
		}
	}
	return math.MaxInt64
}

// watchChanges reports whether a process watches something else than the one before.
func (j *sinkJudge) watchChanges(n int) bool {
	return n > 0 && !sameWatch(j.Timeline.Processes[n].Config, j.Timeline.Processes[n-1].Config)
}

// changing reports whether what is watched changed in a process before, and not all sinks may have had the difference
// when the process began: then each is sent an initial list.
func (j *sinkJudge) changing(n int) bool {
	for m := n - 1; m > 0; m-- {
		p := &j.Timeline.Processes[m]
		if j.Timeline.settledBy(p) {
			return false
		}
		if j.watchChanges(m) {
			return true
		}
	}
	return false
}

// listedAgain reports whether an event brings what a process sent and forgot, under the id of a changed watch that was
// not finished.
func (j *sinkJudge) listedAgain(before, again *Event) bool {
	processes := j.Timeline.Processes
	for n := range processes {
		if j.changing(n) && !again.At.Before(processes[n].Start) && j.forgot(&processes[n-1], before) {
			return true
		}
	}
	return false
}

// leftUnseen reports whether an object left between two events, and the bridge did not know that it was there.
func (j *sinkJudge) leftUnseen(last, e *Event) bool {
	return last != nil && slices.ContainsFunc(j.History.uids[e.UID], func(r *Rev) bool {
		return last.RV < r.RV && r.RV < e.RV && j.unseen(r) &&
			slices.ContainsFunc(j.later(r.RV), func(p *Process) bool { return !p.Config.passes(j.dest, r) })
	})
}

// letIn reports whether an event is the leave of an object that a filter may have let in before the filter changed
// again: it leaves whether it was sent or not ("Filters that change" in events.md).
func (j *sinkJudge) letIn(e *Event) bool {
	r := j.History.byRV[e.RV]
	for n := 2; e.Left && n < len(j.Timeline.Processes); n++ {
		first, middle, last := &j.Timeline.Processes[n-2], &j.Timeline.Processes[n-1], &j.Timeline.Processes[n]
		if !j.Timeline.settledBy(middle) && !e.made().Before(last.Start) && middle.Config.passes(j.dest, r) &&
			!first.Config.passes(j.dest, r) && !last.Config.passes(j.dest, r) {
			return true
		}
	}
	return j.listedInPart(e) || j.letInByBoth(e)
}

// letInByBoth reports whether an event is the leave of an object that only the filter of a process and the watch of one
// before let in, while both changed ("Filters that change" in events.md).
func (j *sinkJudge) letInByBoth(e *Event) bool {
	r, processes := j.History.byRV[e.RV], j.Timeline.Processes
	for n := 1; e.Left && n < len(processes); n++ {
		now := &processes[n]
		if e.made().Before(now.Start) || now.Config.passes(j.dest, r) {
			continue
		}
		for m := n - 1; m >= 0; m-- {
			before := &processes[m]
			both := Config{Watch: before.Config.Watch, Sinks: now.Config.Sinks}
			if both.passes(j.dest, r) && !before.Config.passes(j.dest, r) {
				return true
			}
			if j.Timeline.settledBy(before) {
				break
			}
		}
	}
	return false
}

// listedInPart reports whether an event is the end of an object that can be of lists which no process could finish: how
// much of them was sent is not known, and all of it can end.
func (j *sinkJudge) listedInPart(e *Event) bool {
	r, processes := j.History.byRV[e.RV], j.Timeline.Processes
	for n := range processes {
		if e.made().Before(processes[n].Start) || !e.Unknown && !(e.Left && !processes[n].Config.passes(j.dest, r)) {
			continue
		}
		for m := n - 1; m >= 0 && j.unfinished(m+1); m-- {
			if processes[m].Config.passes(j.dest, r) || j.passedOnce(&processes[m], r) {
				return true
			}
		}
	}
	return false
}

// passedOnce reports whether an object had a state before r that a process can have listed for the destination: it
// existed while the process ran.
func (j *sinkJudge) passedOnce(p *Process, r *Rev) bool {
	return r != nil && slices.ContainsFunc(j.History.uids[r.UID], func(s *Rev) bool {
		return s.RV < r.RV && s.RV <= p.EndRev && s.next != nil && s.next.RV > p.StartRev && p.Config.passes(j.dest, s)
	})
}

// unseen reports whether an object ended for the destination while the bridge did not know that it is there: between
// the last process that did, and the initial list of one that begins anew. Or its sink's filter has changed meanwhile.
func (j *sinkJudge) unseen(r *Rev) bool {
	for n := range j.Timeline.Processes {
		if !j.starts(n) {
			continue
		}
		last := n - 1
		for last >= 0 && j.Timeline.Processes[last].Config.At(j.dest) == nil {
			last--
		}
		if last < 0 {
			continue
		}
		p := &j.Timeline.Processes[last]
		filtered := p.Config.passes(j.dest, r) && !j.Timeline.Processes[n].Config.passes(j.dest, r)
		if filtered || r.At.After(j.knownUntil(last)) && r.RV <= j.listed(n) {
			return true
		}
	}
	return false
}

// excludedAtStart reports whether the object of an event is excluded by the configuration of a process that later sent
// the destination an initial list: that process does not know that the destination shows the object.
func (j *sinkJudge) excludedAtStart(last *Event, revs []*Rev) bool {
	for n := range j.Timeline.Processes {
		p := &j.Timeline.Processes[n]
		if j.starts(n) && last.made().Before(p.Start) && !slices.ContainsFunc(revs, func(r *Rev) bool {
			return r.RV >= last.RV && p.Config.passes(j.dest, r)
		}) {
			return true
		}
	}
	return false
}

// knownUntil is the time up to which the bridge certainly knew the objects when a process had ended. A process that
// ended soon may not have heard of what happened before it.
func (j *sinkJudge) knownUntil(n int) time.Time {
	for ; n >= 0 && j.Timeline.Processes[n].Config.At(j.dest) != nil; n-- {
		if p := &j.Timeline.Processes[n]; j.caughtUp(p) {
			return j.committed(p)
		}
	}
	return time.Time{}
}

// lists reports whether a process may have begun with a list of what r belongs to, and when that had ended at the
// latest.
func (j *sinkJudge) lists(p *Process, r *Rev) (lists bool, ready int64) {
	n := slices.IndexFunc(
		j.Timeline.Processes,
		func(q Process) bool { return q.StartRev == p.StartRev && q.Start.Equal(p.Start) },
	)
	for ; ; n-- {
		if n == 0 {
			lists = true
			break
		}
		now, before := j.Timeline.Processes[n], j.Timeline.Processes[n-1]
		if j.starts(n) || before.Config.At(j.dest) == nil || !before.Config.covers(r.Resource, r.Namespace) ||
			!sameWatch(now.Config, before.Config) {
			lists = true
			break
		}
		if before.ReadyRev > 0 {
			return false, 0
		}
	}
	return lists, j.listed(n)
}

func sameWatch(a, b Config) bool {
	return slices.EqualFunc(a.Watch, b.Watch, func(x, y Watch) bool {
		return x.Team == y.Team && slices.Equal(x.Resources, y.Resources) && slices.Equal(x.Namespaces, y.Namespaces)
	})
}
