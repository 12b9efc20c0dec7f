package chaos

import (
	"fmt"
	"math"
	"slices"
)

// Input is what Judge looks at.
type Input struct {
	History  *History
	Timeline Timeline
	// Events are what each sink's destination holds: in its order, partitions one behind the other.
	Events map[string][]*Event
}

// Class is the class of a violation.
type Class string

// The classes of violations.
const (
	Missing    Class = "missing"     // a state did not arrive
	StillThere Class = "still there" // a deletion or a leave did not arrive: the destination shows what is gone
	Foreign    Class = "foreign"     // an event that etcd does not know, or that is not for the sink
	Order      Class = "order"       // an older state behind a newer one
	Operation  Class = "operation"   // an update of what was not added, an addition of what is there
	Repeated   Class = "repeated"    // a repetition without a cause
	GapCause   Class = "gap: cause"  // a gap event without a cause
	GapWidth   Class = "gap: width"  // a gap event that is wider than its cause
	Tombstones Class = "tombstones"
	Ended      Class = "process" // the bridge ended by itself, or not as it should
)

// Violation is a broken promise.
type Violation struct {
	Class Class
	Sink  string
	Text  string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s: %s", v.Sink, v.Class, v.Text) }

// incomplete reports whether waiting may help.
func (v Violation) incomplete() bool {
	return v.Class == Missing || v.Class == StillThere || v.Class == Tombstones
}

// Judge gives the violations of all sinks.
func Judge(in Input) (all []Violation) {
	names := map[string]Sink{}
	for _, p := range in.Timeline.Processes {
		for _, s := range p.Config.Sinks {
			names[s.Name] = s
		}
	}
	for _, name := range sortedKeys(names) {
		j := &sinkJudge{Input: in, sink: names[name], told: map[string]*Event{}, subjects: map[string]*Event{}}
		j.judge()
		all = append(all, j.violations...)
	}
	return all
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// sinkJudge judges one sink.
type sinkJudge struct {
	Input

	sink       Sink // as last configured
	kept       []*Event
	gaps       []*Event
	told       map[string]*Event // the last kept event, by uid
	subjects   map[string]*Event // the last kept event, by subject
	violations []Violation
}

func (j *sinkJudge) report(class Class, format string, args ...any) {
	j.violations = append(j.violations, Violation{class, j.sink.Name, fmt.Sprintf(format, args...)})
}

func (j *sinkJudge) judge() {
	events := j.Events[j.sink.Name]
	for _, e := range events {
		if e.Operation == "gap" && !slices.ContainsFunc(j.gaps, func(g *Event) bool { return g.ID == e.ID }) {
			j.gaps = append(j.gaps, e)
		}
	}
	if j.sink.Kind.LastOnly() {
		for _, e := range events {
			if e.object() && j.valid(e) {
				j.told[e.UID], j.subjects[e.subject()] = e, e
			}
		}
	} else {
		j.read(events)
		j.complete()
	}
	j.final()
	j.judgeGaps()
	if j.sink.Kind == TopicMirror {
		j.tombstones(events)
	}
}

// handlers are the processes that may have handled a revision: it ended after that, and not all was settled before it.
func (j *sinkJudge) handlers(rv int64) (handlers []*Process) {
	for n := range j.Timeline.Processes {
		p := &j.Timeline.Processes[n]
		settled := int64(0)
		for _, s := range j.Timeline.Settled {
			if s <= p.StartRev {
				settled = max(settled, s)
			}
		}
		if p.EndRev >= rv && rv > settled {
			handlers = append(handlers, p)
		}
	}
	return handlers
}

// later are the processes that can have heard of a state: it may be the present one long after its revision.
func (j *sinkJudge) later(rv int64) (later []*Process) {
	for n := range j.Timeline.Processes {
		if p := &j.Timeline.Processes[n]; p.EndRev >= rv {
			later = append(later, p)
		}
	}
	return later
}

func (j *sinkJudge) everHad(overflow string) bool {
	return slices.ContainsFunc(j.Timeline.Processes, func(p Process) bool {
		s := p.Config.Sink(j.sink.Name)
		return s != nil && s.Overflow == overflow
	})
}

// valid reports whether an event is about a revision that etcd has and that is for the sink.
func (j *sinkJudge) valid(e *Event) bool {
	passes := func(r *Rev) bool {
		return slices.ContainsFunc(j.later(e.RV), func(p *Process) bool { return p.Config.passes(j.sink.Name, r) })
	}
	blocks := func(r *Rev) bool {
		return slices.ContainsFunc(j.later(e.RV), func(p *Process) bool { return !p.Config.passes(j.sink.Name, r) })
	}
	r := j.History.byRV[e.RV]
	switch {
	case r == nil || r.subject() != e.subject() || r.UID != e.UID:
		j.report(Foreign, "%s is not in etcd", e)
		return false
	case e.Operation != "deleted" && r.Deleted:
		j.report(Foreign, "%s is a deletion in etcd", e)
	case e.Operation != "deleted" && e.Stamp != "" && e.Stamp != r.Stamp:
		j.report(Foreign, "%s has the content of another state: %s, want %s", e, e.Stamp, r.Stamp)
	case e.Operation != "deleted" && !passes(r):
		j.report(Foreign, "%s is not for this sink", e)
	case e.Operation == "deleted" && !e.Unknown && !r.Deleted && !blocks(r):
		j.report(Foreign, "%s is a state in etcd, and is for this sink", e)
	case e.Operation == "deleted" && e.Left && r.Deleted:
		j.report(Foreign, "%s is a deletion in etcd, and no leave", e)
	}
	return true
}

func (e *Event) String() string {
	text := fmt.Sprintf("%s %s@%d (%s, place %d)", e.Operation, e.subject(), e.RV, e.At.Format("05.000"), e.Place)
	if e.Left {
		text += " leftfilter"
	}
	if e.Unknown {
		text += " finalstateunknown"
	}
	return text
}

// complete looks for required revisions that did not arrive.
func (j *sinkJudge) complete() {
	states, removals := map[int64]bool{}, map[int64]bool{}
	for _, e := range j.kept {
		if e.Operation == "deleted" {
			removals[e.RV] = true
		} else {
			states[e.RV] = true
		}
	}
	dropped := map[string][]*Rev{}
	for _, r := range j.History.Revs {
		if r.Deleted {
			continue // what was not removed is found in the end
		}
		isState, isLeave := j.required(r)
		if isState && states[r.RV] || isLeave && removals[r.RV] || !isState && !isLeave || j.excused(r) {
			continue
		}
		if j.hasGap(r.Resource, "overflow") {
			dropped[r.Resource] = append(dropped[r.Resource], r)
			continue
		}
		if isState {
			j.report(Missing, "%s@%d (%s)", r.subject(), r.RV, r.At.Format("05.000"))
		} else if j.shows(r) {
			j.report(StillThere, "the leave of %s@%d (%s)", r.subject(), r.RV, r.At.Format("05.000"))
		}
	}
	for resource, revs := range dropped {
		announced := 0
		for _, g := range j.gaps {
			if g.Gap.Resource == resource && g.Gap.Reason == "overflow" {
				announced += g.Gap.Events
			}
		}
		if len(revs) > announced {
			j.report(Missing, "%d states of %s, and gap events speak of %d; the first is %s@%d", len(revs), resource, announced, revs[0].subject(), revs[0].RV)
		}
	}
}

// shows reports whether the destination shows an object before a leave: what was never sent need not leave, and is reported as
// missing if it had to be sent.
func (j *sinkJudge) shows(leave *Rev) bool {
	var last *Event
	for _, e := range j.kept {
		if e.UID == leave.UID && e.RV < leave.RV {
			last = e
		}
	}
	return last != nil && last.Operation != "deleted" && !j.unknown(last)
}

func (j *sinkJudge) hasGap(resource, reason string) bool {
	return slices.ContainsFunc(j.gaps, func(g *Event) bool { return g.Gap.Resource == resource && g.Gap.Reason == reason })
}

// required reports whether each process that may have handled a revision had to send it: as a state, or as a leave.
func (j *sinkJudge) required(r *Rev) (state, leave bool) {
	handlers := j.handlers(r.RV)
	state, leave = len(handlers) > 0, len(handlers) > 0
	for _, p := range handlers {
		now := p.Config.passes(j.sink.Name, r)
		state = state && now
		leave = leave && !now && p.Config.passes(j.sink.Name, r.prev)
	}
	return state, leave
}

// excused reports whether a required revision may be missing.
func (j *sinkJudge) excused(r *Rev) bool {
	handlers := j.handlers(r.RV)
	if slices.ContainsFunc(handlers, func(p *Process) bool { s := p.Config.Sink(j.sink.Name); return s != nil && s.Overflow == "compact" }) {
		if last := j.told[r.UID]; last != nil && last.RV > r.RV {
			return true
		}
	}
	end := int64(math.MaxInt64) // of the state
	if r.next != nil {
		end = r.next.RV
	}
	for _, g := range j.gaps {
		if g.Gap.Resource == r.Resource && g.Gap.Reason == "relist" && g.Gap.From < r.RV && end <= g.Gap.To {
			return true
		}
	}
	return slices.ContainsFunc(handlers, func(p *Process) bool { listed, ready := j.lists(p, r); return listed && end <= ready })
}

// lists reports whether a process may have begun with a list of what r belongs to, and when that had ended at the latest.
func (j *sinkJudge) lists(p *Process, r *Rev) (lists bool, ready int64) {
	n := slices.IndexFunc(j.Timeline.Processes, func(q Process) bool { return q.StartRev == p.StartRev && q.Start.Equal(p.Start) })
	for ; ; n-- {
		if n == 0 {
			lists = true
			break
		}
		now, before := j.Timeline.Processes[n], j.Timeline.Processes[n-1]
		if before.Config.Sink(j.sink.Name) == nil || !before.Config.covers(r.Resource, r.Namespace) || !sameWatch(now.Config, before.Config) {
			lists = true
			break
		}
		if before.ReadyRev > 0 {
			return false, 0
		}
	}
	for _, q := range j.Timeline.Processes[n:] {
		if q.ReadyRev > 0 {
			return lists, q.ReadyRev
		}
	}
	return lists, math.MaxInt64
}

func sameWatch(a, b Config) bool {
	return slices.EqualFunc(a.Watch, b.Watch, func(x, y Watch) bool {
		return x.Team == y.Team && slices.Equal(x.Resources, y.Resources) && slices.Equal(x.Namespaces, y.Namespaces)
	})
}

// final compares what a consumer of the destination takes for the present state with the cluster.
func (j *sinkJudge) final() {
	config := j.Timeline.Processes[len(j.Timeline.Processes)-1].Config
	if config.Sink(j.sink.Name) == nil {
		return
	}
	reported := map[string]bool{}
	for _, v := range j.violations {
		reported[v.Text] = true
	}
	for uid, revs := range j.History.uids {
		r, last := revs[len(revs)-1], j.told[uid]
		if j.hasGap(r.Resource, "overflow") {
			continue // counted as missing
		}
		is := last != nil && last.Operation != "deleted"
		switch should := config.passes(j.sink.Name, r); {
		case should && (!is || last.RV != r.RV):
			text := fmt.Sprintf("%s@%d (%s)", r.subject(), r.RV, r.At.Format("05.000"))
			if !reported[text] {
				j.report(Missing, "the last state %s; the destination has %v", text, last)
			}
		case !should && is && !j.unknown(last):
			j.report(StillThere, "%s, which ended at %d (%s, deleted: %t); the destination has %s", r.subject(), r.RV, r.At.Format("05.000"), r.Deleted, last)
		}
	}
}
