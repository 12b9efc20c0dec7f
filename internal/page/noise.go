package page

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	noisyObjects = 10 // shown
	sketchSize   = 100
	sketches     = 6
	sketchSpan   = 10 * time.Second
)

// subject is an object that changes.
type subject struct{ group, resource, namespace, name string }

// noise counts the changes of the objects that changed most in the last minute. Its memory is bounded. It is safe for
// concurrent use.
type noise struct {
	mu    sync.Mutex
	since time.Time // when counting began
	spans [sketches]sketch
}

// sketch contains the most frequent subjects of one span of time, found with the space-saving algorithm (Metwally et
// al., 2005): a new subject replaces the one with the lowest count, and inherits this count as its error.
type sketch struct {
	begin  time.Time
	counts map[subject]tally
}

// tally is at most the true count plus err.
type tally struct{ count, err int }

// count counts a change.
func (n *noise) count(now time.Time, s subject) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.since.IsZero() {
		n.since = now
	}
	n.span(now).add(s)
}

// span returns the sketch of the current span of time.
func (n *noise) span(now time.Time) *sketch {
	begin := now.Truncate(sketchSpan)
	s := &n.spans[begin.Unix()/int64(sketchSpan.Seconds())%sketches]
	if !s.begin.Equal(begin) {
		s.begin, s.counts = begin, make(map[subject]tally, sketchSize)
	}
	return s
}

func (s *sketch) add(key subject) {
	t, known := s.counts[key]
	if !known {
		if len(s.counts) >= sketchSize {
			var least subject
			least, t = s.least()
			delete(s.counts, least)
			t.err = t.count
		}
		// The strings may be parts of a whole object.
		key = subject{
			strings.Clone(key.group), strings.Clone(key.resource), strings.Clone(key.namespace), strings.Clone(key.name),
		}
	}
	t.count++
	s.counts[key] = t
}

func (s *sketch) least() (key subject, lowest tally) {
	for k, t := range s.counts {
		if lowest.count == 0 || t.count < lowest.count {
			key, lowest = k, t
		}
	}
	return key, lowest
}

// noisy is an object with a lower bound of the number of its changes in the last minute.
type noisy struct {
	Resource, Namespace, Name string
	Count                     int
	Share                     int // of the count of the noisiest object, in percent
}

// top returns the noisiest objects of the last minute, at most limit, and since when changes are counted: a minute or
// less.
func (n *noise) top(now time.Time, limit int) (all []noisy, since time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	oldest := now.Truncate(sketchSpan).Add(-(sketches - 1) * sketchSpan)
	sums := map[subject]int{}
	for i := range n.spans {
		if n.spans[i].begin.Before(oldest) {
			continue
		}
		for key, t := range n.spans[i].counts {
			sums[key] += t.count - t.err
		}
	}
	for key, count := range sums {
		resource := key.resource
		if key.group != "" {
			resource += "." + key.group
		}
		all = append(all, noisy{Resource: resource, Namespace: key.namespace, Name: key.name, Count: count})
	}
	slices.SortFunc(all, func(a, b noisy) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	all = all[:min(limit, len(all))]
	for i := range all {
		all[i].Share = 100 * all[i].Count / all[0].Count
	}
	if n.since.After(oldest) {
		oldest = n.since
	}
	return all, oldest
}

// reset forgets everything.
func (n *noise) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.since, n.spans = time.Time{}, [sketches]sketch{}
}
