package actor

import (
	"slices"
	"time"

	"github.com/deltabridge/deltabridge/pkg/audit"
)

// Options are the limits of a Joiner.
type Options struct {
	// Wait is how long a change waits for its actor. It must be longer than audit events take to arrive.
	Wait time.Duration
	// Keep is how long an audit event waits for its change, at least twice Wait.
	Keep time.Duration
	// MaxSkew is the largest difference between the clocks of two API servers, and of an API server and the bridge.
	MaxSkew time.Duration
	// MaxBytes limits the memory for audit events and changes, approximately.
	MaxBytes int
}

// maxMarks is for how many objects it is remembered at least who requested their deletion; at most twice as many.
const maxMarks = 4096

// Joiner finds the actors of changes. It must not be used by several goroutines at the same time.
type Joiner struct {
	o        Options
	scanned  scanned
	slots    map[key]*slot
	requests []*request // in the order of their arrival
	waiting  []*waiting // in the order of their deadlines
	bytes    int
	// lost: audit events of requests that completed before this time may be missing.
	lost time.Time
	// marks contains who requested the deletion of an object, by uid.
	marks, olderMarks map[string]*mark
}

// slot contains what has the same key.
type slot struct {
	requests []entry
	changes  []*waiting
}

func (s *slot) crowded() bool { return s != nil && len(s.requests) > maxRivals }

// all returns the last requests of a slot, which may be nil.
func (s *slot) all() []entry {
	if s == nil {
		return nil
	}
	return s.requests[max(0, len(s.requests)-maxRivals):]
}

type entry struct {
	*request
	itemVersion uint64 // of the object in the list of a deletecollection
}

type waiting struct {
	Change
	deadline time.Time
	answered bool
	size     int
}

type mark struct {
	by       *Actor
	answered bool
}

// New returns a Joiner. Zero options have these values: Wait 5 s, Keep twice Wait, MaxBytes 32 MiB.
func New(o Options) *Joiner {
	if o.Wait <= 0 {
		o.Wait = 5 * time.Second
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 32 << 20
	}
	o.Keep = max(o.Keep, 2*o.Wait)
	return &Joiner{o: o, slots: map[key]*slot{}, marks: map[string]*mark{}}
}

// Missing says that audit events of requests that completed before this time may be missing. Changes that may have been
// made before get no sole actor.
func (j *Joiner) Missing(until time.Time) {
	if until.After(j.lost) {
		j.lost = until
	}
}

// Event adds an audit event, and returns the answers that it makes possible.
func (j *Joiner) Event(e *audit.Event, now time.Time) (answers []Answer) {
	if e.StageTime.Add(j.o.Wait + j.o.MaxSkew).Before(now) {
		j.Missing(now) // others may be late too
	}
	r := j.scanned.newRequest(e)
	if r == nil {
		return nil
	}
	r.arrived = now
	j.bytes += r.size
	j.requests = append(j.requests, r)
	for i, k := range r.keys {
		in := entry{request: r}
		if r.versions != nil {
			in.itemVersion = r.versions[i]
		}
		s := j.slot(k)
		s.requests = append(s.requests, in)
		for _, w := range slices.Clone(s.changes) {
			if w.grade(in) == Proven {
				answers = j.answerProven(answers, w)
			}
		}
	}
	return j.limit(answers)
}

// Change adds a change, and returns the answers that are known. A change without one gets it from a later call.
func (j *Joiner) Change(c Change) (answers []Answer) {
	if c.Since.IsZero() {
		c.Since = c.Observed.Add(-j.o.Wait)
	}
	w := &waiting{Change: c, deadline: c.Observed.Add(j.o.Wait)}
	if c.Kind == Marked {
		if len(j.marks) == maxMarks {
			j.marks, j.olderMarks = map[string]*mark{}, j.marks
		}
		j.marks[c.UID] = &mark{}
	}
	if answers = j.answerProven(nil, w); w.answered {
		return answers
	}
	w.size = baseSize + keySize + len(c.Namespace) + len(c.Name) + len(c.UID)
	j.bytes += w.size
	j.waiting = append(j.waiting, w)
	s := j.slot(w.proofKey())
	s.changes = append(s.changes, w)
	return j.limit(answers)
}

// Expire returns the answers for the changes that have waited long enough, and drops old audit events.
func (j *Joiner) Expire(now time.Time) (answers []Answer) {
	for len(j.waiting) > 0 && (j.waiting[0].answered || !j.waiting[0].deadline.After(now)) {
		answers = j.answerFirst(answers)
	}
	for len(j.requests) > 0 && !j.requests[0].arrived.Add(j.o.Keep).After(now) {
		j.dropFirst()
	}
	return answers
}

// limit drops the oldest if there is too much. What was dropped counts as missing.
func (j *Joiner) limit(answers []Answer) []Answer {
	for j.bytes > j.o.MaxBytes && len(j.requests)+len(j.waiting) > 0 {
		if len(j.requests) > 0 {
			j.dropFirst()
		} else {
			answers = j.answerFirst(answers)
		}
	}
	return answers
}

func (j *Joiner) dropFirst() {
	r := j.requests[0]
	j.requests[0] = nil
	j.requests = j.requests[1:]
	j.bytes -= r.size
	j.Missing(r.arrived) // it completed before
	for _, k := range r.keys {
		s := j.slots[k]
		s.requests[0] = entry{} // requests of a slot are in the order of their arrival
		s.requests = s.requests[1:]
		j.clean(k, s)
	}
}

// answerFirst removes the change that has waited longest, and answers it if that has not been done.
func (j *Joiner) answerFirst(answers []Answer) []Answer {
	w := j.waiting[0]
	j.waiting[0] = nil
	j.waiting = j.waiting[1:]
	if w.answered {
		return answers
	}
	return append(answers, j.answer(w, j.find(&w.Change, true)))
}

// answerProven appends the answer of a change if its actor is proven, and who requested it is known.
func (j *Joiner) answerProven(answers []Answer, w *waiting) []Answer {
	by := j.find(&w.Change, false)
	if m := j.marked(w.UID); by == nil || w.Kind == Finished && m != nil && !m.answered {
		return answers
	}
	return append(answers, j.answer(w, by))
}

func (j *Joiner) answer(w *waiting, by *Actor) Answer {
	a := Answer{Change: w.Change, By: by}
	m := j.marked(w.UID)
	switch {
	case w.Kind == Deleted:
		a.Requested = by
	case w.Kind == Finished && m != nil:
		a.Requested = m.by
	case w.Kind == Marked && m != nil:
		m.by, m.answered = by, true
	}
	if w.Kind&deletion != 0 {
		delete(j.marks, w.UID)
		delete(j.olderMarks, w.UID)
	}
	w.answered = true
	if k := w.proofKey(); w.size > 0 {
		j.bytes -= w.size
		s := j.slots[k]
		s.changes = slices.DeleteFunc(s.changes, func(other *waiting) bool { return other == w })
		j.clean(k, s)
	}
	w.Change = Change{} // it stays in the list of those that wait, and Ref may be large
	return a
}

func (j *Joiner) marked(uid string) *mark {
	if m := j.marks[uid]; m != nil {
		return m
	}
	return j.olderMarks[uid]
}

func (j *Joiner) slot(k key) *slot {
	s := j.slots[k]
	if s == nil {
		s = &slot{}
		j.slots[k] = s
	}
	return s
}

func (j *Joiner) clean(k key, s *slot) {
	if len(s.requests)+len(s.changes) == 0 {
		delete(j.slots, k)
	}
}
