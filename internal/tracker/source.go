package tracker

import (
	"maps"
	"strings"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
)

// source is what the tracker holds of one source.
type source struct {
	state   ledger.State   // what the store held when it was resumed, or before that at the start
	ledger  *ledger.Ledger // nil until it is resumed
	stage   *stage         // of a first list that is being read
	leaving bool           // to be forgotten when everything is settled
}

// Remembered implements informer.State: it returns the sources that an earlier process watched, and that this one has
// not resumed.
func (t *Tracker) Remembered() []informer.Source {
	t.mu.Lock()
	defer t.mu.Unlock()
	var sources []informer.Source
	for _, s := range t.sources {
		if s.ledger == nil {
			sources = append(sources, informer.Source(s.state.Source))
		}
	}
	return sources
}

// Resume implements informer.State: it opens the ledger of a source and returns what the store holds of it. A source
// that was resumed before keeps its ledger.
func (t *Tracker) Resume(of informer.Source) informer.Memory {
	if t.keep(of.Name) {
		return informer.Memory{GoesOn: true} // what was sent of it before still counts
	}
	state, known, err := t.store.Load(of.Name)
	if err != nil {
		t.log.Error("checkpoint of a resource cannot be read, listing", "source", of.Name, "err", err)
		state, known = ledger.State{}, nil
	}
	if state.ResourceVersion == "" {
		state.Source = ledger.Source(of)
	}
	state.Sinks = withSpilled(&state, t.queues.Spilled(of.Name))
	t.rescope(&state, of.Scope)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.opened++
	l := ledger.New(ledger.Source(of), state, t.sinks, t.opened<<40)
	l.CountIn(&t.held)
	t.sources[of.Name] = &source{state: state, ledger: l}
	return informer.Memory{Known: known, At: state.ResourceVersion, Scope: state.Source.Scope}
}

// changingTo is the prefix of a source's scope while the scope changes, until all sinks have settled the difference.
// The new scope follows.
const changingTo = "(changing to) "

// rescope notes, before any of the difference is sent, that the scope of a source changes. If a previous process ended
// while it sent such a difference, it is not known what each sink was sent: each is sent an initial list again.
func (t *Tracker) rescope(state *ledger.State, scope string) {
	if state.ResourceVersion == "" || state.Source.Scope == scope {
		return
	}
	target, interrupted := strings.CutPrefix(state.Source.Scope, changingTo)
	if interrupted {
		t.log.Info("previous process ended while a change of watch was being sent, all sinks are sent an initial list",
			"source", state.Source.Name)
		beginAgain(state.Sinks)
	}
	if target == scope {
		return
	}
	state.Source.Scope = changingTo + scope
	if err := t.store.Commit([]ledger.Update{{State: *state}}, t.filters); err != nil {
		t.report(err) // the next commit has it
	}
}

// beginAgain makes all sinks that were sent a part of a source begin with its initial list again.
func beginAgain(sinks map[string]string) {
	for sink := range sinks {
		sinks[sink] = ""
	}
}

// withSpilled returns the watermark of each sink, including what is in its spill.
func withSpilled(state *ledger.State, spilled map[string]string) map[string]string {
	sinks := maps.Clone(state.Sinks)
	if sinks == nil {
		sinks = map[string]string{}
	}
	for sink, position := range spilled {
		if state.ResourceVersion != "" && sinks[sink] != "" { // a sink without a watermark is sent everything
			sinks[sink] = later(sinks[sink], position)
		}
	}
	return sinks
}

// Knowledge is what a sink knows of a source that was resumed.
type Knowledge struct {
	// Floor is the resourceVersion up to which the sink has settled everything; empty: it does not know the source.
	Floor string
	// Part: the sink may have been sent a part of the source.
	Part bool
	// Refilter is set if the sink may know the source by other filters than its present one, and is to be sent the
	// difference. Without Floor it may know any part of what these filters let pass.
	ledger.Refilter
	// WatchChange names the last change of what is watched; empty: it never changed.
	WatchChange string
}

// Knows reports whether the sink knows everything of the source, by one filter or another.
func (k Knowledge) Knows() bool { return k.Floor != "" }

// Known returns what a sink knows of a source. It has a Refilter until FinishList was called for the sink.
func (t *Tracker) Known(name, sink string) Knowledge {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sources[name]
	if s == nil || s.ledger == nil {
		return Knowledge{}
	}
	floor, part := s.state.Sinks[sink]
	return Knowledge{Floor: floor, Part: part && floor == "", Refilter: s.ledger.Refilter(sink), WatchChange: t.change}
}

// Ledger returns the ledger of a source; nil if the source was not resumed.
func (t *Tracker) Ledger(name string) *ledger.Ledger {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sources[name]; s != nil {
		return s.ledger
	}
	return nil
}

// Settle notes that a sink has settled a message.
func (t *Tracker) Settle(sink string, m *event.Message) {
	if m.Origin.Seq == 0 {
		return
	}
	if l := t.Ledger(m.Origin.Source); l != nil {
		l.Settle(sink, m.Origin.Seq)
	}
}

// keep keeps a source from being forgotten, because its resource was removed and came back, and reports whether it has
// a ledger.
func (t *Tracker) keep(name string) bool {
	t.forgetting.Lock()
	defer t.forgetting.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sources[name]
	if s == nil {
		return false
	}
	s.leaving = false
	return s.ledger != nil
}

// Forget implements informer.State: it removes a source that is no longer watched, as soon as every sink has settled
// all its events.
func (t *Tracker) Forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sources[name]; s != nil {
		s.leaving = true
	}
}

// Removed implements informer.State: it forgets a source whose resource is gone. If objects of it may still exist, the
// source stays.
func (t *Tracker) Removed(i *informer.Informer) {
	if len(i.Objects()) == 0 {
		t.Forget(i.Source().Name)
	}
}

// finishLeaving removes the sources that are to be forgotten and have nothing open. t.mu is not held while the store
// forgets one.
func (t *Tracker) finishLeaving() {
	t.forgetting.Lock()
	defer t.forgetting.Unlock()
	for name, s := range t.leaving() {
		if err := t.store.Forget(name); err != nil {
			t.report(err)
			continue
		}
		t.mu.Lock()
		if s.ledger != nil {
			s.ledger.Discard()
		}
		delete(t.sources, name)
		t.mu.Unlock()
	}
}

// leaving returns the sources that can be forgotten now.
func (t *Tracker) leaving() map[string]*source {
	t.mu.Lock()
	defer t.mu.Unlock()
	leaving := maps.Clone(t.sources)
	maps.DeleteFunc(leaving, func(_ string, s *source) bool {
		return !s.leaving || s.ledger != nil && s.ledger.Open() > 0
	})
	return leaving
}

// ledgers returns the ledgers of all sources that were resumed, by name.
func (t *Tracker) ledgers() map[string]*ledger.Ledger {
	t.mu.Lock()
	defer t.mu.Unlock()
	ledgers := make(map[string]*ledger.Ledger, len(t.sources))
	for name, s := range t.sources {
		if s.ledger != nil {
			ledgers[name] = s.ledger
		}
	}
	return ledgers
}

// Lags returns what each sink has not settled, by source and sink.
func (t *Tracker) Lags() map[string]map[string]ledger.Lag {
	lags := map[string]map[string]ledger.Lag{}
	for name, l := range t.ledgers() {
		lags[name] = l.Lags()
	}
	return lags
}
