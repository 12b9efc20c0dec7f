package actor

import "time"

// grade says whether a request can have made a change. It is the table of ADR 43, without the exclusion by time.
func (c *Change) grade(r entry) Grade {
	if r.can&c.Kind == 0 {
		return none
	}
	g := rival
	switch r.role {
	case created:
		g = Proven
	case updated:
		switch {
		case r.base == 0:
			g = Sole
		case c.Before == 0 || c.Before == r.base:
			g = Proven
		}
	case emptied:
		g = Sole
	case removed:
		switch deletes := c.Kind&deletion != 0; {
		case r.version == 0: // answered with a Status
			if g = Sole; c.Kind == Deleted && r.sure {
				g = Proven
			}
		case deletes && r.version == c.After:
			g = Proven
		case deletes, r.version < c.After && !r.gone:
			return none
		case r.version >= c.After:
			g = Sole
		}
	case listed:
		if g = Sole; c.After != 0 && r.itemVersion >= c.After {
			return none
		}
	case evicted:
		if c.Kind != Updated {
			g = Sole
		}
	case bound:
		g = Proven
	case unclear:
		if c.Kind == Added && r.sure {
			g = Sole
		}
	}
	if r.resource != c.Resource {
		return rival // such as a virtual resource of an aggregated API server
	}
	return g
}

// proofKey returns the key of requests that can be a proof for the change.
func (c *Change) proofKey() key {
	if c.Kind == Bound || c.Kind&deletion != 0 {
		return key{uid: c.UID}
	}
	return key{uid: c.UID, version: c.After}
}

// keys returns the keys of all requests that can have made the change.
func (c *Change) keys() [4]key {
	all := key{}
	if c.Kind&(Marked|Remarked|deletion) != 0 {
		all = nameKey(c.Resource, c.Namespace, "")
	}
	return [...]key{{uid: c.UID, version: c.After}, {uid: c.UID}, nameKey(c.Resource, c.Namespace, c.Name), all}
}

// window returns the times between which the change was made. It was made after a request that found or wrote the
// version before it was received, and before one that shows it was completed. Skew is taken into account.
func (j *Joiner) window(c *Change) (first, last time.Time) {
	first, last = c.Since, c.Observed
	for _, k := range [...]key{{uid: c.UID, version: c.Before}, {uid: c.UID, version: c.After}, {uid: c.UID}} {
		for _, r := range j.slots[k].all() {
			if c.Before != 0 && r.version == c.Before && r.received.After(first) {
				first = r.received
			}
			if r.version == c.After && r.completed.Before(last) {
				last = r.completed
			}
		}
	}
	return first.Add(-j.o.MaxSkew), last.Add(j.o.MaxSkew)
}

// maxRivals is how many requests with the same key are looked at. If there are more, only a proof among the last ones
// counts, so that a user who floods one object cannot make the join slow.
const maxRivals = 1000

// find returns the actor of a change, or nil if it is unknown. An actor that is not proven is found only at the end of
// the wait.
func (j *Joiner) find(c *Change, end bool) *Actor {
	var found *request
	grade, several, crowded := none, false, false
	var first, last time.Time // a request that made it was received before the last and completed after the first
	if end {
		first, last = j.window(c)
	}
	for _, k := range c.keys() {
		crowded = crowded || j.slots[k].crowded()
		for _, r := range j.slots[k].all() {
			g := c.grade(r)
			switch {
			case g == none, g != Proven && (!end || grade == Proven):
			case g != Proven && (r.received.After(last) || !r.open && r.completed.Before(first)):
			case g == Proven && grade != Proven:
				found, grade, several = r.request, g, false
			case found == nil || found.actor.same(&r.actor):
				found, grade = r.request, max(grade, g)
			default:
				several = true
			}
		}
	}
	if several || grade < Sole || grade == Sole && (crowded || first.Before(j.lost)) {
		return nil
	}
	a := found.actor
	a.Grade = grade
	return &a
}
