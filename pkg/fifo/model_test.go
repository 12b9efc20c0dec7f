package fifo

import "slices"

// model is what a queue should do, said with plain slices and no regard to cost.
type model struct {
	maxItems int
	maxBytes int64
	overflow Overflow
	compact  bool

	gaps, waiting, taken, waiters []item
	settled                       map[int]string // by id of the item: what its Push returned
	closed                        bool
	stats                         Stats // the counters
}

func (m *model) full(extra item) bool {
	items, bytes := 0, int64(0)
	for _, v := range append(slices.Clone(m.taken), m.waiting...) {
		if !v.Gap {
			items++
			bytes += v.Size
		}
	}
	return items > 0 && (items == m.maxItems || m.maxBytes > 0 && bytes+extra.Size > m.maxBytes)
}

func (m *model) push(v item) {
	switch {
	case m.closed:
		m.settled[v.ID] = "closed"
	case m.offer(v, len(m.waiters) > 0):
		m.settled[v.ID] = "ok"
		m.admit()
	default:
		m.stats.Blocked++
		m.waiters = append(m.waiters, v)
	}
}

func (m *model) admit() {
	for len(m.waiters) > 0 && m.offer(m.waiters[0], false) {
		m.settled[m.waiters[0].ID] = "ok"
		m.waiters = m.waiters[1:]
	}
}

func (m *model) offer(v item, behind bool) bool {
	for !behind && m.full(v) && m.compact && m.mergeOne() {
	}
	if m.overflow == DropOldest {
		m.waiting = append(m.waiting, v)
		m.stats.Pushed++
		for m.overfull() {
			m.gaps = foldItem(m.gaps, m.waiting[0])
			m.waiting = m.waiting[1:]
			m.stats.Dropped++
		}
		return true
	}
	if !behind && !m.full(v) {
		m.waiting = append(m.waiting, v)
		m.stats.Pushed++
		return true
	}
	if !m.compact || !mergeableItem(v) {
		return false
	}
	// The item and an earlier one of its key can become one, unless that is too large.
	i := slices.IndexFunc(m.waiting, func(w item) bool { return w.Key == v.Key })
	if i < 0 {
		return false
	}
	older := m.waiting[i]
	merged := mergeItem(older, v)
	rest := slices.Delete(slices.Clone(m.waiting), i, i+1)
	kept := m.waiting
	m.waiting = rest
	if merged.Size > older.Size && m.full(merged) {
		m.waiting = kept
		return false
	}
	m.waiting = append(m.waiting, merged)
	m.stats.Pushed++
	m.stats.Merged++
	return true
}

// overfull: the last waiting item would not have fitted behind the others.
func (m *model) overfull() bool {
	if len(m.waiting) == 0 {
		return false
	}
	last := len(m.waiting) - 1
	all := m.waiting
	m.waiting = all[:last]
	defer func() { m.waiting = all }()
	return m.full(all[last])
}

// mergeOne merges the pair of neighbours in their key whose newer item stands nearest to the front.
func (m *model) mergeOne() bool {
	for j, newer := range m.waiting {
		for i, older := range m.waiting[:j] {
			if older.Key == newer.Key && mergeableItem(older) {
				m.waiting[j] = mergeItem(older, newer)
				m.waiting = slices.Delete(m.waiting, i, i+1)
				m.stats.Merged++
				return true
			}
		}
	}
	return false
}

func (m *model) take(limit int, maxBytes int64) []item {
	got := []item{}
	bytes := int64(0)
	for len(got) < max(1, limit) && len(m.gaps)+len(m.waiting) > 0 {
		from := &m.waiting
		if len(m.gaps) > 0 {
			from = &m.gaps
		}
		v := (*from)[0]
		if bytes += v.Size; len(got) > 0 && bytes > maxBytes {
			break
		}
		got = append(got, v)
		*from = (*from)[1:]
	}
	m.gaps, m.waiting = slices.Clone(m.gaps), slices.Clone(m.waiting) // what was taken is out of reach
	m.taken = append(m.taken, got...)
	return got
}

func (m *model) ack(n int) {
	m.taken = m.taken[n:]
	m.stats.Acked += int64(n)
	m.admit()
}

func (m *model) cancel(i int) {
	m.settled[m.waiters[i].ID] = "canceled"
	m.waiters = slices.Delete(m.waiters, i, i+1)
	m.admit()
}

func (m *model) close() {
	m.closed = true
	for _, v := range m.waiters {
		m.settled[v.ID] = "closed"
	}
	m.waiters = nil
}

// snapshot is the Stats that the queue should report.
func (m *model) snapshot() Stats {
	s := m.stats
	s.Items, s.Taken = len(m.gaps)+len(m.waiting)+len(m.taken), len(m.taken)
	for _, v := range append(slices.Clone(m.waiting), m.taken...) {
		if !v.Gap {
			s.Bytes += v.Size
		}
	}
	return s
}
