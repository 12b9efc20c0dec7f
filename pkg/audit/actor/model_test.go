package actor

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/scale"
)

// model is an API server that knows who made each change. Requests overlap: each has an effect, or several, at some time
// between its arrival and its response.
type model struct {
	*rand.Rand
	t       testing.TB
	o       modelOptions
	now     int // milliseconds
	agenda  []step
	version int
	uids    int
	objects map[string]*thing
	inputs  []input
	truth   map[string]truth // by uid and version of a change
	changed int              // when the last change was read
}

type modelOptions struct {
	seed     uint64
	requests int
	// lose is the share of audit events that are lost, in percent. If it is not known, no actor is sole in truth.
	lose  int
	known bool
	skew  int // milliseconds
}

type step struct {
	at int
	do func()
}

// thing is an object. Its name begins with pod if it is a Pod.
type thing struct {
	name, uid                          string
	version                            int
	deleted, bound, finalizer, noGrace bool
	requestedBy                        string
}

// truth contains the ids of requests.
type truth struct{ by, requestedBy string }

// input is something that the joiner is given at some time.
type input struct {
	at int
	do func(*Joiner, time.Time) []Answer
}

func (m *model) chance(percent int) bool { return m.IntN(100) < percent }

func (m *model) later(ms int, do func()) { m.agenda = append(m.agenda, step{m.now + ms, do}) }

func isPod(name string) bool { return strings.HasPrefix(name, "pod") }

func resourceOf(name string) string {
	if isPod(name) {
		return "pods"
	}
	return "configmaps"
}

// write makes a change from version before to o, and returns o with its new version.
func (m *model) write(id string, kind Kind, changed thing, before int) *thing {
	m.version++
	o := &changed
	o.version = m.version
	if kind == Marked {
		o.requestedBy = id
	}
	by := truth{by: id}
	switch kind {
	case Deleted:
		by.requestedBy = id
	case Finished:
		by.requestedBy = o.requestedBy
	}
	if kind&deletion != 0 {
		delete(m.objects, o.name)
	} else {
		m.objects[o.name] = o
	}
	m.truth[fmt.Sprint(o.uid, m.version)] = by
	c := Change{
		Resource: resourceOf(
			o.name,
		),
		Namespace: "n",
		Name:      o.name,
		UID:       o.uid,
		Kind:      kind,
		Before:    uint64(before),
		After:     uint64(m.version),
	}
	made := m.now
	lag := m.IntN(20)
	if m.chance(2) {
		lag = m.IntN(30_000)
		c.Since = at(made) // such as the time when a watch was interrupted
	}
	m.changed = max(m.changed, m.now+lag)
	if m.changed-made > 2000 {
		c.Since = at(made)
	}
	c.Observed = at(m.changed)
	m.inputs = append(m.inputs, input{m.changed, func(j *Joiner, _ time.Time) []Answer { return j.Change(c) }})
	return o
}

func (o *thing) json() string {
	more := ""
	if o.deleted {
		more += terminating
		if o.noGrace {
			more += noGrace
		} else {
			more += `,"deletionGracePeriodSeconds":30`
		}
	}
	if o.finalizer {
		more += finalizer
	}
	return object(o.uid, o.version, more)
}

// update writes a part of an object, or deletes it if its last finalizer is gone. It returns the response.
func (m *model) update(c *call, noEffect, finalize bool, answer func()) {
	o := m.objects[c.name]
	switch {
	case o == nil:
		c.code = 404
	case c.request != "" && c.request != naming(fmt.Sprint(o.version)) && c.request != naming("0"):
		c.code = 409
	case c.query != "":
		c.response = o.json()
	case o.deleted && (o.noGrace || !isPod(o.name)) && (!o.finalizer || finalize):
		gone := *o
		gone.finalizer = false
		c.response = gone.json()
		m.later(m.IntN(5), func() {
			if now := m.objects[c.name]; now != nil && now.uid == o.uid {
				m.write(c.id, Finished, *now, now.version)
			}
			answer()
		})
		return
	case noEffect:
		c.response = o.json()
	default:
		next, kind := *o, Updated
		if next.finalizer && finalize {
			if next.finalizer = false; next.deleted {
				kind = Remarked
			}
		}
		c.response = m.write(c.id, kind, next, o.version).json()
	}
	answer()
}

// remove is one DELETE, of which a deletecollection has several. It returns the response.
func (m *model) remove(id string, o *thing, force bool, answer func(response, deleted string)) {
	graceful := isPod(o.name)
	kind := Marked
	if o.deleted {
		kind = Remarked
	}
	next := *o
	next.deleted = true
	switch {
	case !graceful && o.finalizer:
		if o.deleted {
			answer(o.json(), "")
			return
		}
		next.noGrace = true
		answer(m.write(id, kind, next, o.version).json(), "")
	case !graceful:
		kind = Deleted
		if o.deleted {
			kind = Finished
		}
		m.write(id, kind, next, o.version)
		answer("", o.uid)
	case o.deleted && !o.noGrace && !force: // it is pending
		answer(o.json(), "")
	default:
		last := next
		if next.noGrace = force || !o.bound; !o.deleted || next.noGrace != o.noGrace {
			next = *m.write(id, kind, next, o.version)
		}
		if !next.noGrace || next.finalizer {
			answer(next.json(), "")
			return
		}
		last.noGrace = true
		m.later(m.IntN(10), func() {
			now := m.objects[o.name]
			if now == nil || now.uid != o.uid {
				answer(last.json(), "") // it is gone, which counts as success
				return
			}
			answer(m.write(id, Finished, *now, now.version).json(), "")
		})
	}
}

// request draws a request, and adds its effects to the agenda.
func (m *model) request(n int) {
	names := []string{"a", "b", "pod1", "pod2"}
	c := &call{id: fmt.Sprint("id", n), user: fmt.Sprint("u", m.IntN(5)), name: names[m.IntN(len(names))], from: m.now}
	c.resource = resourceOf(c.name)
	level := ""
	if m.chance(5) {
		level = "Metadata"
	}
	o := m.objects[c.name]
	noEffect, finalize, force := m.chance(40), m.chance(40), m.chance(30)
	done := func() { m.answer(c, level) }
	var effect func()
	switch kind := m.IntN(100); {
	case o == nil || kind < 5:
		c.verb, c.code = []string{"create", "patch"}[m.IntN(2)], 201
		effect = func() { m.create(c, done) }
	case kind < 60:
		c.verb = []string{"update", "patch"}[m.IntN(2)]
		if m.chance(60) {
			c.request = naming(fmt.Sprint(o.version))
		} else if m.chance(10) {
			c.request = naming("0")
		}
		if m.chance(8) {
			c.query = "dryRun=All"
		}
		effect = func() { m.update(c, noEffect, finalize, done) }
	case kind < 80:
		c.verb = "delete"
		if m.chance(10) {
			c.request = `{"dryRun":["All"]}`
		}
		effect = func() {
			now := m.objects[c.name]
			switch {
			case now == nil:
				c.code = 404
				done()
			case c.request != "":
				if c.response, c.deleted = now.json(), ""; !isPod(c.name) && !now.finalizer {
					c.response, c.deleted = "", now.uid
				}
				done()
			default:
				m.remove(c.id, now, force, func(response, deleted string) {
					c.response, c.deleted = response, deleted
					done()
				})
			}
		}
	case kind < 85:
		c.verb = "deletecollection"
		effect = func() { m.removeAll(c, done) }
	case isPod(c.name):
		c.verb, c.code, c.sub = "create", 201, "eviction"
		if m.chance(50) {
			c.sub = "binding"
		}
		effect = func() { m.bindOrEvict(c, o.uid, done) }
	default:
		return
	}
	m.later(1+m.IntN(20), effect)
}

func (m *model) create(c *call, done func()) {
	if m.objects[c.name] != nil {
		c.code = 409
	} else {
		m.uids++
		o := thing{
			name:      c.name,
			uid:       fmt.Sprint("uid", m.uids),
			finalizer: m.chance(50),
			bound:     isPod(c.name) && m.chance(50),
		}
		c.response = m.write(c.id, Added, o, 0).json()
	}
	done()
}

func (m *model) bindOrEvict(c *call, uid string, done func()) {
	o := m.objects[c.name]
	known := m.chance(60)
	switch {
	case o == nil:
		c.code = 404
	case known && o.uid != uid:
		c.code = 409
	case c.sub == "binding" && (o.bound || o.deleted):
		c.code = 409
	case c.sub == "binding":
		if known {
			c.refUID = uid
		}
		next := *o
		next.bound = true
		m.write(c.id, Bound, next, o.version)
	default:
		c.request = `{}`
		if known {
			c.request = `{"deleteOptions":{"preconditions":{"uid":"` + uid + `"}}}`
		}
		next := *o
		m.write(c.id, Updated, next, o.version)
		m.later(m.IntN(5), func() {
			if now := m.objects[c.name]; now != nil && now.uid == o.uid {
				m.remove(c.id, now, false, func(string, string) { done() })
				return
			}
			c.code = 404
			done()
		})
		return
	}
	done()
}

func (m *model) removeAll(c *call, done func()) {
	var items []string
	var rest []*thing
	for _, name := range slices.Sorted(maps.Keys(m.objects)) {
		if resourceOf(name) == c.resource {
			items = append(items, m.objects[name].json())
			rest = append(rest, m.objects[name])
		}
	}
	c.response = `{"items":[` + strings.Join(items, ",") + `]}`
	var next func()
	next = func() {
		if len(rest) == 0 {
			done()
			return
		}
		now := m.objects[rest[0].name] // it deletes by name
		rest = rest[1:]
		m.later(m.IntN(10), func() {
			if now == nil || m.objects[now.name] != now {
				next()
				return
			}
			m.remove(c.id, now, false, func(string, string) { next() })
		})
	}
	next()
}

// answer completes a request, and sends its audit event.
func (m *model) answer(c *call, level string) {
	c.to = m.now + m.IntN(10)
	written := c.code == 0 || c.code == 201
	switch {
	case level != "":
		c.level, c.request, c.response = level, "", ""
	case written && m.chance(2):
		c.code, c.response, c.deleted = 400, "", "" // such as a wrong includeObject
	case written && m.chance(2):
		c.code, c.response, c.deleted, c.to = 504, "", "", c.from+1 // before its effect
	case written && m.chance(2) && c.response != "" && c.verb != "deletecollection":
		c.response = `{"kind":"Table","metadata":{"resourceVersion":"1"},"rows":[]}`
	}
	shift := 0
	if m.o.skew > 0 { // the clock of one of several API servers
		shift = m.IntN(m.o.skew+1) - m.o.skew/2
	}
	c.from, c.to = c.from+shift, c.to+shift
	e := c.event(m.t)
	arrival := c.to - shift + m.IntN(1000)
	send := func(j *Joiner, now time.Time) []Answer { return j.Event(e, now) }
	if m.chance(m.o.lose) {
		send = func(j *Joiner, now time.Time) []Answer {
			if m.o.known {
				j.Missing(now)
			}
			return nil
		}
	} else if m.chance(3) {
		m.inputs = append(m.inputs, input{arrival + m.IntN(20_000), send}) // a batch is sent again
	}
	m.inputs = append(m.inputs, input{arrival, send})
}

// shares counts changes by what was found.
type shares struct{ changes, proven, sole, deletions, requested int }

// run plays a history, and checks that no answer is wrong.
func (o modelOptions) run(t testing.TB, s *shares) {
	m := &model{
		Rand: rand.New(rand.NewPCG(o.seed, 0)), t: t, o: o, objects: map[string]*thing{}, truth: map[string]truth{},
	}
	when := 0
	for n := range o.requests {
		if when += m.IntN(30); m.chance(5) {
			when += 2000
		}
		m.agenda = append(m.agenda, step{when, func() { m.request(n) }})
	}
	for len(m.agenda) > 0 {
		slices.SortStableFunc(m.agenda, func(a, b step) int { return cmp.Compare(a.at, b.at) })
		next := m.agenda[0]
		m.agenda = m.agenda[1:]
		m.now = next.at
		next.do()
	}
	slices.SortStableFunc(m.inputs, func(a, b input) int { return cmp.Compare(a.at, b.at) })
	j := New(Options{MaxSkew: time.Duration(o.skew) * time.Millisecond})
	for _, in := range m.inputs {
		now := at(in.at)
		m.check(j.Expire(now.Add(-1)), s)
		m.check(in.do(j, now), s)
	}
	m.check(j.Expire(at(1_000_000_000)), s)
	if len(m.truth) > 0 {
		t.Errorf("seed %d: %d changes have no answer", o.seed, len(m.truth))
	}
	if len(j.slots)+j.bytes > 0 {
		t.Errorf("seed %d: %d slots and %d bytes remain", o.seed, len(j.slots), j.bytes)
	}
}

func (m *model) check(answers []Answer, s *shares) {
	for _, a := range answers {
		id := fmt.Sprint(a.Change.UID, a.Change.After)
		want, ok := m.truth[id]
		if !ok {
			m.t.Errorf("seed %d: %v has a second answer", m.o.seed, a.Change)
		}
		delete(m.truth, id)
		wrong := func(got *Actor, want string) bool {
			return got != nil && got.AuditID != want && (m.o.lose == 0 || m.o.known || got.Grade == Proven)
		}
		if wrong(a.By, want.by) || wrong(a.Requested, want.requestedBy) {
			m.t.Errorf("seed %d: %+v: by %v (%s), requested by %v, want %+v",
				m.o.seed, a.Change, a.By, a.By.AuditID, a.Requested, want)
		}
		s.count(a)
	}
}

func (s *shares) count(a Answer) {
	s.changes++
	switch {
	case a.By == nil:
	case a.By.Grade == Proven:
		s.proven++
	default:
		s.sole++
	}
	if a.Change.Kind&deletion != 0 {
		s.deletions++
		if a.Requested != nil {
			s.requested++
		}
	}
}

func (s shares) String() string {
	percent := func(n, of int) float64 { return 100 * float64(n) / float64(max(of, 1)) }
	return fmt.Sprintf("%d changes, proven %.0f %%, sole %.0f %%, unknown %.0f %%; %d deletions, requested by %.0f %%",
		s.changes, percent(s.proven, s.changes), percent(s.sole, s.changes),
		percent(s.changes-s.proven-s.sole, s.changes), s.deletions, percent(s.requested, s.deletions))
}

// No answer is wrong, whatever the history is.
func TestModel(t *testing.T) {
	for name, o := range map[string]modelOptions{
		"complete":        {},
		"skew":            {skew: 100},
		"lost, known":     {lose: 5, known: true},
		"lost, not known": {lose: 5},
	} {
		t.Run(name, func(t *testing.T) {
			var s shares
			for o.seed = range uint64(scale.Of(25, 2000)) {
				o.requests = 200
				o.run(t, &s)
				if t.Failed() {
					break
				}
			}
			t.Log(s)
		})
	}
}

func FuzzModel(f *testing.F) {
	f.Add(uint64(1), uint8(0), uint8(0), true)
	f.Fuzz(func(t *testing.T, seed uint64, lose, skew uint8, known bool) {
		modelOptions{seed: seed, requests: 150, lose: int(lose % 50), known: known, skew: int(skew)}.run(t, &shares{})
	})
}
