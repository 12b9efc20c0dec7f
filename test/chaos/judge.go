package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
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
	Ahead      Class = "progress: ahead" // a change behind a progress event that covers it
	Misplaced  Class = "control events"  // a control event where none belongs
	Ended      Class = "process"         // the bridge ended by itself, or not as it should
)

// Violation is a broken promise.
type Violation struct {
	Class Class
	Sink  string // its destination
	Text  string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s: %s", v.Sink, v.Class, v.Text) }

// incomplete reports whether waiting may help.
func (v Violation) incomplete() bool {
	return v.Class == Missing || v.Class == StillThere || v.Class == Tombstones
}

// Judge gives the violations at all destinations.
func Judge(in Input) (all []Violation) {
	dests := map[string]Sink{}
	for _, p := range in.Timeline.Processes {
		for _, s := range p.Config.Sinks {
			dests[s.Dest()] = s
		}
	}
	for _, dest := range slices.Sorted(maps.Keys(dests)) {
		j := &sinkJudge{
			Input:    in,
			sink:     dests[dest],
			dest:     dest,
			newest:   map[string]*Event{},
			entered:  map[string]*Event{},
			subjects: map[string]*Event{},
			dropped:  map[string]map[*Rev]bool{},
		}
		j.judge()
		all = append(all, j.violations...)
	}
	return all
}

// sinkJudge judges one destination.
type sinkJudge struct {
	Input

	dest       string
	sink       Sink // that writes there, as last configured
	kept       []*Event
	gaps       []*Event
	entered    map[string]*Event        // the event since which the destination shows an object, by uid
	newest     map[string]*Event        // the last kept event, by uid
	subjects   map[string]*Event        // the last kept event, by subject
	dropped    map[string]map[*Rev]bool // what did not arrive of resources with overflow gaps
	violations []Violation
}

func (j *sinkJudge) report(class Class, format string, args ...any) {
	j.violations = append(j.violations, Violation{class, j.dest, fmt.Sprintf(format, args...)})
}

func (j *sinkJudge) judge() {
	events := j.Events[j.dest]
	for _, e := range events {
		if e.Operation == "gap" && !slices.ContainsFunc(j.gaps, func(g *Event) bool { return g.ID == e.ID }) {
			j.gaps = append(j.gaps, e)
		}
	}
	if j.sink.Kind.LastOnly() {
		for _, e := range events {
			if e.object() && j.valid(e) {
				j.take(e)
			}
		}
	} else {
		j.read(events)
		j.complete()
	}
	j.progress()
	j.misplaced()
	j.final()
	j.drops()
	j.judgeGaps()
	if j.sink.Kind == CompactedTopic {
		j.tombstones(events)
	}
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
		s := p.Config.At(j.dest)
		return s != nil && s.Overflow == overflow
	})
}

// valid reports whether an event is about a revision that etcd has and that is for the sink.
func (j *sinkJudge) valid(e *Event) bool {
	passes := func(r *Rev) bool {
		return slices.ContainsFunc(j.later(e.RV), func(p *Process) bool {
			return p.Config.passes(j.dest, r) || j.movedWith(e, p, r)
		})
	}
	blocks := func(r *Rev) bool {
		return slices.ContainsFunc(j.later(e.RV), func(p *Process) bool { return !p.Config.passes(j.dest, r) })
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
	for _, r := range j.History.Revs {
		if r.Deleted {
			continue // what was not removed is found in the end
		}
		isState, isLeave := j.required(r)
		switch {
		case isState && states[r.RV] || isLeave && removals[r.RV] || !isState && !isLeave || j.excused(r):
		case isState:
			j.lost(r, Missing, "%s@%d (%s)", r.subject(), r.RV, r.At.Format("05.000"))
		case j.shows(r) && !j.unseen(r) && !j.endedUnseen(j.before(r), j.History.uids[r.UID]):
			j.lost(r, StillThere, "the leave of %s@%d (%s)", r.subject(), r.RV, r.At.Format("05.000"))
		}
	}
}

// lost reports that something did not arrive, unless gap events speak of events of that resource that were dropped:
// they say how many.
func (j *sinkJudge) lost(r *Rev, class Class, format string, args ...any) {
	if !j.hasGap(r.Resource, "overflow") {
		j.report(class, format, args...)
		return
	}
	if j.dropped[r.Resource] == nil {
		j.dropped[r.Resource] = map[*Rev]bool{}
	}
	j.dropped[r.Resource][r] = true
}

// drops compares what was dropped with what gap events say. A state that a later one replaced was not dropped: that one
// was, or has arrived.
func (j *sinkJudge) drops() {
	for resource, revs := range j.dropped {
		last := map[string]int64{}
		for r := range revs {
			last[r.UID] = max(last[r.UID], r.RV)
		}
		maps.DeleteFunc(revs, func(r *Rev, _ bool) bool { return r.RV < last[r.UID] && j.replaceable(r) })
		announced := 0
		for _, g := range j.gaps {
			if g.Gap.Resource == resource && g.Gap.Reason == "overflow" {
				announced += g.Gap.Events
			}
		}
		if len(revs) > announced {
			var texts []string
			for _, r := range slices.SortedFunc(maps.Keys(revs), func(a, b *Rev) int { return int(a.RV - b.RV) }) {
				texts = append(texts, fmt.Sprintf("%s/%s@%d", r.Namespace, r.Name, r.RV))
			}
			j.report(
				Missing,
				"%d events of %s, and gap events speak of %d: %s",
				len(revs),
				resource,
				announced,
				strings.Join(texts, " "),
			)
		}
	}
}

// shows reports whether the destination shows an object before a leave: what was never sent need not leave, and is
// reported as missing if it had to be sent.
func (j *sinkJudge) shows(leave *Rev) bool {
	last := j.before(leave)
	return last != nil && last.Operation != "deleted" && !j.unknown(last) && !j.uncommitted(j.entered[leave.UID])
}

// before returns the last event about an object before a revision; nil if there is none.
func (j *sinkJudge) before(r *Rev) (last *Event) {
	for _, e := range j.kept {
		if e.UID == r.UID && e.RV < r.RV {
			last = e
		}
	}
	return last
}

// take keeps an event: it is what the destination says of the object now.
func (j *sinkJudge) take(e *Event) {
	if last := j.newest[e.UID]; last == nil || last.Operation == "deleted" {
		j.entered[e.UID] = e
	}
	j.newest[e.UID], j.subjects[e.subject()] = e, e
}

func (j *sinkJudge) hasGap(resource, reason string) bool {
	return slices.ContainsFunc(j.gaps, func(g *Event) bool { return g.Gap.Resource == resource && g.Gap.Reason == reason })
}

// required reports whether each process that may have handled a revision had to send it: as a state, or as a leave.
func (j *sinkJudge) required(r *Rev) (state, leave bool) {
	handlers := j.handlers(r)
	state, leave = len(handlers) > 0, len(handlers) > 0
	for _, p := range handlers {
		now := p.Config.passes(j.dest, r)
		state = state && now
		leave = leave && !now && p.Config.passes(j.dest, r.prev)
	}
	return state, leave
}

// excused reports whether a required revision may be missing.
func (j *sinkJudge) excused(r *Rev) bool {
	if last := j.newest[r.UID]; last != nil && last.RV > r.RV && j.replaceable(r) {
		return true
	}
	if j.inGap(r) {
		return true
	}
	return slices.ContainsFunc(
		j.handlers(r),
		func(p *Process) bool { listed, ready := j.lists(p, r); return listed && r.end() <= ready },
	)
}

// replaceable reports whether a later state of the object may be sent in place of a revision.
func (j *sinkJudge) replaceable(r *Rev) bool {
	return slices.ContainsFunc(j.handlers(r), func(p *Process) bool {
		s := p.Config.At(j.dest)
		// An object that has left counts as known if the bridge did not see that, or forgot that it sent the leave.
		known := p.Config.passes(j.dest, r.prev) || r.prev != nil && j.inGap(r.prev) || j.unknown(j.before(r))
		return s != nil && (s.Overflow == "compact" || s.Filter.Debounce > 0 && known)
	})
}

// inGap reports whether a state existed only between the resourceVersions of a gap event.
func (j *sinkJudge) inGap(r *Rev) bool {
	return slices.ContainsFunc(j.gaps, func(g *Event) bool {
		return g.Gap.Resource == r.Resource && g.Gap.Reason == "relist" && g.Gap.From < r.RV && r.end() <= g.Gap.To
	})
}

// endedUnseen reports whether an object ended for the destination after an event, while the bridge did not know that it
// was there.
func (j *sinkJudge) endedUnseen(last *Event, revs []*Rev) bool {
	n := slices.IndexFunc(revs, func(r *Rev) bool {
		return r.RV > last.RV &&
			slices.ContainsFunc(j.later(r.RV), func(p *Process) bool { return !p.Config.passes(j.dest, r) })
	})
	return n >= 0 && j.unseen(revs[n]) || j.excludedAtStart(last, revs)
}

// final compares what a consumer of the destination takes for the current state with the cluster.
func (j *sinkJudge) final() {
	config := j.Timeline.Processes[len(j.Timeline.Processes)-1].Config
	if config.At(j.dest) == nil {
		return
	}
	reported := map[string]bool{}
	for _, v := range j.violations {
		reported[v.Text] = true
	}
	for uid, revs := range j.History.uids {
		r, last := revs[len(revs)-1], j.newest[uid]
		is := last != nil && last.Operation != "deleted"
		switch should := config.passes(j.dest, r); {
		case should && (!is || last.RV != r.RV):
			text := fmt.Sprintf("%s@%d (%s)", r.subject(), r.RV, r.At.Format("05.000"))
			if !reported[text] {
				j.lost(r, Missing, "the last state %s; the destination has %v", text, last)
			}
		case !should && is && !j.unknown(last) && !j.uncommitted(j.entered[uid]):
			end := r // what ended it for the sink
			for end.prev != nil && !config.passes(j.dest, end.prev) {
				end = end.prev
			}
			if j.unseen(end) || j.endedUnseen(last, revs) {
				continue
			}
			j.lost(
				end,
				StillThere,
				"%s, which ended at %d (%s, deleted: %t); the destination has %s",
				r.subject(),
				r.RV,
				r.At.Format("05.000"),
				r.Deleted,
				last,
			)
		}
	}
}
