package ledger

import "slices"

// BeginRefilter records that a sink's filter is about to change. earlier is the filter until now, and change is the
// name of the change. When the sink was sent the whole difference, FinishRefilter must be called.
func (l *Ledger) BeginRefilter(sink, earlier, change string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, refilter := l.sinks[sink], &Refilter{Change: change}
	again := s.isRefiltering()
	if again {
		refilter.Filters = slices.Clone(s.refilter.Filters)
	}
	if !slices.Contains(refilter.Filters, earlier) {
		refilter.Filters = append(refilter.Filters, earlier)
	}
	if s.caught && !again {
		s.knows, s.before = true, s.last
	}
	s.refilter, s.caught = refilter, false
	l.dirty = true
}

// FinishRefilter records that a sink was sent its whole initial list, or the whole difference between its filters, with
// the filter of a change. It has no effect if the filter has changed again since then, because another difference
// follows.
func (l *Ledger) FinishRefilter(sink, change string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sinks[sink]; s.refilter == nil || s.refilter.Change == change {
		l.finish(s)
	}
}

// Refilter returns the earlier filters with which a sink may have been sent the source's events. After FinishRefilter,
// it returns the zero Refilter.
func (l *Ledger) Refilter(sink string) Refilter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sinks[sink]; s != nil && !s.caught && s.refilter != nil {
		return *s.refilter
	}
	return Refilter{}
}

// isRefiltering reports whether the sink has not settled the difference that a changed filter makes.
func (s *sinkLedger) isRefiltering() bool {
	return s.refilter != nil && (!s.caught || s.first <= s.until)
}

// addSink adds a sink with its watermark m to the update. If the sink has not settled its initial list, or the
// difference between its filters, a restart sends it the whole initial list or difference again.
func (u *Update) addSink(name string, s *sinkLedger, m mark, fresh bool) {
	switch {
	case !fresh || s.knows && s.isRefiltering() && s.first > s.before:
		u.Sinks[name] = Later(m.resourceVersion, s.floor)
	case s.began:
		u.Sinks[name] = ""
	}
	if !s.isRefiltering() {
		return
	}
	if u.Refilters == nil {
		u.Refilters = map[string]Refilter{}
	}
	u.Refilters[name] = *s.refilter
}
