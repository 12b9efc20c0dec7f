package journals

import "time"

// watch finds records that are not renewed any more, by the clock of this process. It is not safe for concurrent use.
type watch struct {
	lapse, pause time.Duration
	seen         map[string]seen // by journal
	observed     time.Time       // when Observe was last called
}

type seen struct {
	text  string
	since time.Time
}

// newWatch returns a watch. A record lapses if it stays the same for lapse. If there is no observation for longer than
// pause, the time before it does not count: if the API server is unavailable, no replica can renew its record.
func newWatch(lapse, pause time.Duration) *watch {
	return &watch{lapse: lapse, pause: pause, seen: map[string]seen{}}
}

// observe is given all records, by journal. It returns those that have lapsed.
func (w *watch) observe(now time.Time, all map[string]string) (lapsed map[string]string) {
	if now.Sub(w.observed) > w.pause {
		clear(w.seen)
	}
	w.observed = now
	for journal := range w.seen {
		if _, exists := all[journal]; !exists {
			delete(w.seen, journal)
		}
	}
	lapsed = map[string]string{}
	for journal, text := range all {
		switch s := w.seen[journal]; {
		case s.text != text || s.since.IsZero():
			w.seen[journal] = seen{text, now}
		case now.Sub(s.since) >= w.lapse:
			lapsed[journal] = text
		}
	}
	return lapsed
}

// mark finds out since when a journal may have undelivered events. It is not safe for concurrent use.
type mark struct {
	since time.Time // everything that was accepted before was delivered
	// Everything that was accepted before the time next is in the journal up to the number last.
	next time.Time
	last uint64
}

// newMark returns a mark for a journal that may have undelivered events since a time.
func newMark(since time.Time) *mark { return &mark{since: since} }

// undeliveredSince returns the time since when accepted events may not be delivered. now is the time, which must
// be taken before the other arguments: last is the number of the last event in the journal, and delivered the number up
// to which everything is delivered, if ok is true.
func (m *mark) undeliveredSince(now time.Time, last, delivered uint64, ok bool) time.Time {
	if ok && !m.next.IsZero() && delivered >= m.last {
		m.since, m.next = m.next, time.Time{}
	}
	if m.next.IsZero() {
		m.next, m.last = now, last
	}
	return m.since
}
