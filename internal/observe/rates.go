package observe

import (
	"sync"
	"time"
)

const (
	// sampleInterval is the time between two samples of the counters.
	sampleInterval = 10 * time.Second
	// rateWindow is the time over which rates are computed.
	rateWindow = time.Minute
	// shortWindow is the shortest time over which rates.highest computes a rate.
	shortWindow = 5 * time.Second
)

// rates has samples of counters, from which it computes rates. It is safe for concurrent use.
type rates struct {
	mu      sync.Mutex
	samples []sample // the oldest first
}

// sample contains the values of counters at one moment.
type sample struct {
	at     time.Time
	values map[string]int64
}

// due reports whether it is time for another sample.
func (r *rates) due(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.samples) == 0 || now.Sub(r.samples[len(r.samples)-1].at) >= sampleInterval
}

// add adds a sample, and drops those that are no longer required. The caller must not change the values afterwards.
func (r *rates) add(now time.Time, values map[string]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.samples) > 1 && now.Sub(r.samples[1].at) >= rateWindow {
		r.samples = r.samples[1:]
	}
	r.samples = append(r.samples, sample{now, values})
}

// of returns by how much a counter has grown per second in the last minute, or since the first sample. value is its
// value now. A counter that the oldest sample does not have was 0.
func (r *rates) of(name string, now time.Time, value int64) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.samples) == 0 {
		return 0
	}
	return r.samples[0].rate(name, now, value)
}

// highest returns the higher one of two rates: that of the last minute, and that of the last seconds. Unlike the first
// one, the second one counts in full what has begun a moment ago.
func (r *rates) highest(name string, now time.Time, value int64) (highest float64) {
	highest = r.of(name, now, value)
	r.mu.Lock()
	defer r.mu.Unlock()
	for n := len(r.samples) - 1; n >= 0; n-- {
		if now.Sub(r.samples[n].at) >= shortWindow {
			return max(highest, r.samples[n].rate(name, now, value))
		}
	}
	return highest
}

func (s *sample) rate(name string, now time.Time, value int64) float64 {
	passed := now.Sub(s.at)
	if passed < time.Second {
		return 0
	}
	return float64(value-s.values[name]) / passed.Seconds()
}
