package fifo

import "slices"

// model describes the expected behavior of a queue while the disk has no room, with plain slices and without regard to
// cost.
type model struct {
	maxItems int
	maxBytes int64
	policy   string

	waiting, taken, waiters []item         // gap items are among those that wait
	settled                 map[int]string // by id of the item: what its Push returned
	closed                  bool
	stats                   Stats // the counters
}

// fits reports whether one more item fits behind others into these bounds.
func fits(maxItems int, maxBytes int64, others []item, extra item) bool {
	items, bytes := 0, int64(0)
	for _, v := range others {
		if !v.Gap {
			items++
			bytes += v.Size
		}
	}
	return items == 0 || items < maxItems && (maxBytes == 0 || bytes+extra.Size <= maxBytes)
}

// full: neither is room in all that is bounded, nor in the half that is for what waits.
func (m *model) full(extra item) bool {
	return !fits(m.maxItems, m.maxBytes, slices.Concat(m.taken, m.waiting), extra) &&
		!fits(m.maxItems/2, m.maxBytes/2, m.waiting, extra)
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
	switch m.policy {
	case dropOldest:
		m.stats.Pushed++
		for m.full(v) {
			if !m.dropOne() {
				m.drop(v, len(m.waiting))
				return true
			}
		}
		m.waiting = append(m.waiting, v)
		return true
	case compact:
		for !behind && m.full(v) && m.mergeOne() {
		}
	}
	if !behind && !m.full(v) {
		m.waiting = append(m.waiting, v)
		m.stats.Pushed++
		return true
	}
	return m.policy == compact && m.replace(v)
}

// replace makes the item and an earlier one of its key one, unless that is too large.
func (m *model) replace(v item) bool {
	if v.Key == control || len(m.waiting) == 0 {
		return false
	}
	i := 1 + slices.IndexFunc(m.waiting[1:], func(w item) bool { return w.Key == v.Key })
	if i == 0 {
		return false
	}
	merged, before := mergeItem(m.waiting[i], v), m.waiting
	m.waiting = slices.Delete(slices.Clone(m.waiting), i, i+1)
	if m.full(merged) {
		m.waiting = before
		return false
	}
	m.waiting = append(m.waiting, merged)
	m.stats.Pushed++
	m.stats.Merged++
	return true
}

// dropOne drops the oldest item behind the first, which may be on its way to disk.
func (m *model) dropOne() bool {
	for i, v := range m.waiting {
		if i > 0 && !v.Gap {
			m.waiting = slices.Delete(slices.Clone(m.waiting), i, i+1)
			m.drop(v, i)
			return true
		}
	}
	return false
}

// drop puts v into a gap item between the first item and the one with the index end.
func (m *model) drop(v item, end int) {
	m.stats.Dropped++
	for i := 1; i < end; i++ {
		if gap, ok := foldItem(m.waiting[i], v); ok {
			m.waiting[i] = gap
			return
		}
	}
	gap, _ := foldItem(item{}, v)
	m.waiting = slices.Insert(m.waiting, end, gap)
}

// mergeOne merges the pair of neighbours in their key whose newer item stands nearest to the front.
func (m *model) mergeOne() bool {
	for j := 2; j < len(m.waiting); j++ {
		for i := 1; i < j; i++ {
			if older, newer := m.waiting[i], m.waiting[j]; older.Key == newer.Key && older.Key != control {
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
	for len(got) < max(1, limit) && len(m.waiting) > 0 {
		v := m.waiting[0]
		if len(m.taken) > 0 && !takes(m, v) {
			break
		}
		if bytes += v.Size; len(got) > 0 && bytes > maxBytes {
			break
		}
		got = append(got, v)
		m.taken = append(m.taken, v)
		m.waiting = slices.Clone(m.waiting[1:]) // what was taken is out of reach
	}
	if len(got) > 0 {
		m.admit()
	}
	return got
}

// takes: what is taken may use half of the bounds.
func takes(m *model, v item) bool {
	items, bytes := 0, int64(0)
	for _, v := range m.taken {
		if !v.Gap {
			items++
			bytes += v.Size
		}
	}
	half := m.maxBytes - m.maxBytes/2
	return items < m.maxItems-m.maxItems/2 && (m.maxBytes == 0 || v.Size <= half-bytes)
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
	s.Items, s.Taken = len(m.waiting)+len(m.taken), len(m.taken)
	for _, v := range slices.Concat(m.waiting, m.taken) {
		if !v.Gap {
			s.Bytes += v.Size
		}
	}
	return s
}
