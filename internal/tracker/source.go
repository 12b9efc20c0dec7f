package tracker

import (
	"maps"
	"strings"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
)

// source is the tracker's state of one source. It implements informer.Record: it records in the ledger how changes
// affect the rows, and which position the informer has reached.
type source struct {
	tracker *Tracker
	state   ledger.State   // state in the store when the source was resumed, or at the start if it is not resumed yet
	ledger  *ledger.Ledger // nil until the source is resumed
	stage   *stage         // the last initial list that was staged; nil if there was none
	leaving bool           // whether the source is removed as soon as all its events are settled
}

// Remembered implements informer.State: it returns the sources that a previous process watched and that this process
// has not resumed.
func (t *Tracker) Remembered() []informer.Source {
	t.mu.Lock()
	defer t.mu.Unlock()
	var sources []informer.Source
	for _, s := range t.sources {
		if s.ledger == nil {
			sources = append(sources, s.state.Source)
		}
	}
	return sources
}

// Resume implements informer.State: it opens the ledger of a source and returns the content of the store about this
// source. If the source was resumed before, it keeps its ledger.
func (t *Tracker) Resume(of informer.Source) informer.Memory {
	t.resuming.Lock()
	defer t.resuming.Unlock()
	if t.keep(of.Name) {
		return informer.Memory{} // the events that were sent before still count
	}
	state, known, err := t.store.Load(of.Name)
	if err != nil {
		t.log.Error("cannot read the rows of a source in the checkpoint; its objects are listed again",
			"source", of.Name, "err", err)
		state, known = ledger.State{}, nil
	}
	if state.ResourceVersion == "" {
		state.Source, state.History = of, t.latestHistory()
	}
	stored := state.Sinks
	state.Sinks = withSpilled(&state, t.queues.Spilled(of.Name, state.History))
	t.rescope(&state, of.Scope)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.opened++
	l := ledger.New(of, state, t.sinks, t.opened<<40)
	l.CountIn(&t.held)
	if !maps.Equal(stored, state.Sinks) { // otherwise the next process would begin before what was spilled
		l.Unwritten()
	}
	t.sources[of.Name] = &source{tracker: t, state: state, ledger: l}
	return informer.Memory{Known: known, At: state.ResourceVersion, Scope: state.Source.Scope}
}

// latestHistory returns the latest history of all sources. A source that begins, or begins again because its resource
// is served again, belongs to it: after etcd was restored, its resourceVersions can be lower than those that were sent.
func (t *Tracker) latestHistory() (latest string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.sources {
		latest = ledger.Later(latest, s.history())
	}
	return latest
}

// history returns the history that the resourceVersions of the source belong to: see ledger.State.
func (s *source) history() string {
	if s.ledger != nil {
		return s.ledger.History()
	}
	return s.state.History
}

// changingTo is the prefix of a source's scope while the scope changes. It stays until all sinks have settled the
// difference. The new scope follows the prefix.
const changingTo = "(changing to) "

// rescope stores that the scope of a source changes, before any part of the difference is sent. If the previous
// process ended while it was sending the difference, the tracker cannot know which part each sink received. All sinks
// are then sent an initial list again.
func (t *Tracker) rescope(state *ledger.State, scope string) {
	if state.ResourceVersion == "" || state.Source.Scope == scope {
		return
	}
	target, interrupted := strings.CutPrefix(state.Source.Scope, changingTo)
	if interrupted {
		t.log.Info(
			"previous process ended before it had sent all effects of a changed `watch`, sending an initial list to all sinks",
			"source", state.Source.Name)
		beginAgain(state.Sinks)
	}
	if target == scope {
		return
	}
	state.Source.Scope = changingTo + scope
	t.retry(func() error { return t.store.Commit([]ledger.Update{{State: *state}}, t.currentFilters(), nil) })
}

// beginAgain clears the watermark of every sink in the map, so each of these sinks is sent the initial list again.
func beginAgain(sinks map[string]string) {
	for sink := range sinks {
		sinks[sink] = ""
	}
}

// withSpilled returns the watermark of each sink. If the sink's spill reaches further than the stored watermark, it
// returns the position of the spill.
func withSpilled(state *ledger.State, spilled map[string]string) map[string]string {
	sinks := maps.Clone(state.Sinks)
	if sinks == nil {
		sinks = map[string]string{}
	}
	for sink, position := range spilled {
		if state.ResourceVersion != "" && sinks[sink] != "" { // a sink without a watermark is sent all objects
			sinks[sink] = ledger.Later(sinks[sink], position)
		}
	}
	return sinks
}

// Knowledge describes how much of a resumed source a sink knows.
type Knowledge struct {
	// Floor is the resourceVersion up to which the sink has settled all events. If it is empty, the sink may not have
	// been sent all objects of the source.
	Floor string
	// Part reports whether the sink may have been sent some objects of the source, but not all.
	Part bool
	// Refilter is set if the sink may have been sent objects of the source through filters other than its current one.
	// The sink is then sent the difference. If Floor is empty too, the sink may have been sent any subset of the
	// objects that these filters pass.
	ledger.Refilter
	// WatchChange is the name of the last change to the watch configuration; empty if it never changed.
	WatchChange string
}

// Knows reports whether the sink was sent all objects of the source that pass its current filter or an earlier one.
func (k Knowledge) Knows() bool { return k.Floor != "" }

// Known returns how much a sink knows of a source. The result has a Refilter until the sink was sent the
// difference and the source has brought everything that an earlier process may have sent: see Ledger.Refilter.
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

// Ledger returns the ledger of a source, or nil if the source was not resumed.
func (t *Tracker) Ledger(name string) *ledger.Ledger {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sources[name]; s != nil {
		return s.ledger
	}
	return nil
}

// Settle records that a sink has settled a message.
func (t *Tracker) Settle(sink string, m *event.Message) {
	if m.Origin.Seq == 0 {
		return
	}
	if l := t.Ledger(m.Origin.Source); l != nil {
		l.Settle(sink, m.Origin.Seq)
	}
}

// keep cancels the removal of a source whose resource was removed and added again. It reports whether the source has a
// ledger.
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

// Forget implements informer.State: it removes a source that is no longer watched or served, as soon as every sink has
// settled all its events.
func (t *Tracker) Forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sources[name]; s != nil {
		s.leaving = true
	}
}

// finishLeaving removes the sources that Forget marked and that have no open events. It does not hold t.mu while the
// store removes a source.
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

// leaving returns the sources that can be removed now.
func (t *Tracker) leaving() map[string]*source {
	t.mu.Lock()
	defer t.mu.Unlock()
	leaving := map[string]*source{}
	for name, s := range t.sources {
		if s.leaving && (s.ledger == nil || s.ledger.Open() == 0) {
			leaving[name] = s
		}
	}
	return leaving
}

// ledgers returns the ledgers of all resumed sources, by source name.
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

// Unsettled returns the number of events of all sources that a sink has not settled. whole reports whether the sink was
// sent either the whole initial list or nothing of each source.
func (t *Tracker) Unsettled(sink string) (events int, whole bool) {
	whole = true
	for _, l := range t.ledgers() {
		n, all := l.Unsettled(sink)
		events, whole = events+n, whole && all
	}
	return events, whole
}
