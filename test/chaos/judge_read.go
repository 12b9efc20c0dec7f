package chaos

import (
	"slices"
	"strings"
	"time"
)

// flightSlack is how long a message can have been under way when a fault began.
const flightSlack = 2 * time.Second

// read goes through the events in their order, removes repetitions, and looks at order and operations.
func (j *sinkJudge) read(events []*Event) {
	seen := map[string]map[string]*Event{} // by uid, since such a leave: the last event by id, repetitions too
	places := map[string]int{}             // partition by subject
	merged := j.everHad("compact")         // what is merged can change its operation
	for _, e := range events {
		if !e.object() || !j.valid(e) {
			continue
		}
		if place, ok := places[e.subject()]; ok && place != e.Place {
			j.report(Order, "%s: other events of the object are in partition %d", e, place)
		}
		places[e.subject()] = e.Place
		last := j.newest[e.UID]
		isThere := last != nil && last.Operation != "deleted"
		changes := isThere == (e.Operation == "deleted")
		gone := last != nil && last.Operation == "deleted" &&
			(last.Unknown || j.History.byRV[last.RV].Deleted) // not only for this sink
		before := seen[e.UID][e.ID]
		// An object that comes back after a leave that a changed filter caused has its last states again.
		if seen[e.UID] == nil || e.Left && strings.Contains(e.ID, ".left.filter.") {
			seen[e.UID] = map[string]*Event{}
		}
		if e.Operation != "restated" { // which has the id of the state
			seen[e.UID][e.ID] = e
		}
		if before != nil && e.Operation != "restated" && (gone || e.RV < last.RV || !changes) {
			if !j.repeats(before, e) {
				j.report(Repeated, "%s, after %s", e, before)
			}
			if last != nil && e.RV > last.RV { // an older state came in between
				j.take(e)
			}
			continue
		}
		j.ordered(e, last, changes)
		if !merged && !j.hasGap(e.Resource, "overflow") {
			j.operation(e, last, isThere)
		}
		j.kept = append(j.kept, e)
		j.take(e)
	}
}

// ordered looks at an event that is no repetition. last is the one before of the same uid.
func (j *sinkJudge) ordered(e, last *Event, changes bool) {
	before := j.subjects[e.subject()]
	switch {
	case before == nil:
	case j.uncommitted(before): // and e carries the last state that was known
	case before.UID != e.UID && e.Unknown && j.unknown(before): // the successor is not known; consumers compare the uid
	case before.UID != e.UID && before.RV > e.RV:
		j.report(Order, "%s, after %s of its successor", e, before)
	case e.Operation == "deleted" && e.Unknown: // carries the last state that was known
	case e.RV < before.RV:
		j.report(Order, "%s, after %s", e, before)
	case e.RV == before.RV && last != nil && e.Operation != "restated" && last.Operation != "restated" &&
		!changes && !j.restarted(e) && !j.listedAgain(before, e) && !j.letInByBoth(e):
		j.report(Repeated, "%s, after %s, with another id", e, before)
	}
}

func (j *sinkJudge) operation(e, last *Event, isThere bool) {
	switch {
	case j.unknown(last), j.uncommitted(last), j.restarted(e), j.leftUnseen(last, e), j.letIn(e):
	case e.Operation == "added" && isThere:
		j.report(Operation, "%s, after %s", e, last)
	case e.Operation == "updated" && !isThere, e.Operation == "deleted" && !isThere:
		j.report(Operation, "%s, but the object is not there: %v", e, last)
	}
}

// repeats reports whether an event may be there twice. A process reads back what earlier ones sent, unless it has
// another checkpoint or destination: then it sends an initial list, and what waited on disk.
func (j *sinkJudge) repeats(before, again *Event) bool {
	for n, p := range j.Timeline.Processes {
		if j.starts(n) && !again.At.Before(p.Start) &&
			(j.moves(n) || again.Initial && again.RV <= j.listed(n) || before.made().Before(p.Start)) {
			return true
		}
	}
	return j.listedWhileBehind(before, again)
}

// listedWhileBehind reports whether an event repeats what a list brought that is compared with older states, because
// another sink was behind when the process before ended ("A list, while another sink was behind" in delivery.md).
func (j *sinkJudge) listedWhileBehind(before, again *Event) bool {
	for n := 1; n < len(j.Timeline.Processes); n++ {
		now, ended := &j.Timeline.Processes[n], j.Timeline.Processes[n-1].End
		if before.made().Before(ended.Add(time.Second)) && !again.made().Before(now.Start) && j.othersBehind(ended) &&
			j.relisted(again, now) && (again.Unknown || j.replaces(again, now) || j.watchChanges(n)) {
			return true
		}
	}
	return false
}

// replaces reports whether an event follows the deletion of another object of the same name, which p sent and did not
// see.
func (j *sinkJudge) replaces(e *Event, p *Process) bool {
	return slices.ContainsFunc(j.Events[j.dest], func(d *Event) bool {
		return d.Unknown && d.subject() == e.subject() && d.UID != e.UID && !d.At.Before(p.Start) && !d.At.After(e.At)
	})
}

// othersBehind reports whether another sink may not have settled everything at a time.
func (j *sinkJudge) othersBehind(at time.Time) bool {
	return slices.ContainsFunc(j.Timeline.Faults, func(f Fault) bool {
		return f.Sink != "" && f.Sink != j.dest && f.around(at, waitSlack)
	})
}

// relisted reports whether the resource of an event was listed again before the event, by a process that may be p.
func (j *sinkJudge) relisted(e *Event, p *Process) bool {
	return slices.ContainsFunc(j.gaps, func(g *Event) bool {
		return g.Gap.Resource == e.Resource && g.Gap.Reason == "relist" && !g.At.Before(p.Start) && !g.At.After(e.At)
	})
}

// around reports whether a time is within the fault, or so close to it.
func (f Fault) around(t time.Time, slack time.Duration) bool {
	return t.After(f.From.Add(-slack)) && (f.To.IsZero() || t.Before(f.To.Add(slack)))
}

// tombstones: on a compacted topic each deletion is followed by a record without value, and nothing else is.
func (j *sinkJudge) tombstones(events []*Event) {
	open := map[string]*Event{} // deletions without tombstone, by key
	for _, e := range events {
		deletion := open[e.Key]
		switch {
		case e.Operation == "" && deletion == nil:
			j.report(Tombstones, "a tombstone of %s without a deletion before it", e.Key)
		case e.Operation == "":
			delete(open, e.Key)
		case e.Operation == "deleted":
			open[e.Key] = e
		case deletion != nil && e.object():
			j.report(Tombstones, "%s without a tombstone between it and %s", deletion, e)
			delete(open, e.Key)
		}
	}
	for _, e := range open {
		j.report(Tombstones, "%s without a tombstone", e)
	}
}
