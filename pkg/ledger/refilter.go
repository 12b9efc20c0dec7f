package ledger

import "slices"

// BeginRefilter records that a sink's filter is about to change. earlier is the filter until now, and change is the
// name of the change. When the sink was sent the whole difference, FinishRefilter must be called.
func (l *Ledger) BeginRefilter(sink, earlier, change string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, refilter := l.sinks[sink], &Refilter{Change: change}
	noted := s.noted()
	switch {
	case noted == nil:
	case noted.Settled:
		refilter.Former = noted.Filters
	default:
		refilter.Filters, refilter.Former = slices.Clone(noted.Filters), noted.Former
	}
	if !slices.Contains(refilter.Filters, earlier) {
		refilter.Filters = append(refilter.Filters, earlier)
	}
	if s.caught && (noted == nil || noted.Settled) {
		s.knows, s.before = true, s.last
	}
	s.refilter, s.former, s.caught = refilter, nil, false
	l.dirty = true
}

// FinishRefilter records that a sink was sent its whole initial list, or the whole difference between its filters, with
// the filter of a change. It has no effect if the filter has changed again since then, because another difference
// follows.
//
// If more is true, the source may still bring changes that an earlier process has sent with an earlier filter. Updates
// say so until EndRefilter is called and everything that was tracked before is settled.
func (l *Ledger) FinishRefilter(sink, change string, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sinks[sink]
	if s.refilter != nil && s.refilter.Change != change {
		return
	}
	if more && s.refilter != nil && !s.caught {
		s.former = &Refilter{Filters: s.refilter.all(), Change: change, Settled: true}
	}
	l.finish(s)
}

// all returns Filters and Former.
func (r *Refilter) all() []string {
	all := slices.Clone(r.Filters)
	for _, f := range r.Former {
		if !slices.Contains(all, f) {
			all = append(all, f)
		}
	}
	return all
}

// EndRefilter records that the source has brought everything that an earlier process may have sent to a sink.
func (l *Ledger) EndRefilter(sink string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sinks[sink]
	if s.former == nil {
		return
	}
	s.refilter, s.former, s.until = s.noted(), nil, s.last
	l.dirty = true
}

// Refilter returns the earlier filters with which a sink may have been sent the source's events. After FinishRefilter
// without more, and after EndRefilter, it returns the zero Refilter.
func (l *Ledger) Refilter(sink string) Refilter {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch s := l.sinks[sink]; {
	case s == nil:
		return Refilter{}
	case s.refilter != nil && !s.caught:
		return *s.refilter
	case s.former != nil:
		return *s.former
	default:
		return Refilter{}
	}
}

// isRefiltering reports whether the sink has not settled the difference that a changed filter makes.
func (s *sinkLedger) isRefiltering() bool {
	return s.refilter != nil && (!s.caught || s.first <= s.until)
}

// noted returns what updates say about the sink's earlier filters. It is nil if they say nothing.
func (s *sinkLedger) noted() *Refilter {
	if s.isRefiltering() {
		return s.refilter
	}
	return s.former
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
	if noted := s.noted(); noted != nil {
		if u.Refilters == nil {
			u.Refilters = map[string]Refilter{}
		}
		u.Refilters[name] = *noted
	}
}
