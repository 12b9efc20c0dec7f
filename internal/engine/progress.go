package engine

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/informer"
)

const (
	// maxCuts is the maximum number of cuts that wait. If there are more, every second one is dropped.
	maxCuts = 16
	// cutRetry is the time until the next attempt if no cut could be taken.
	cutRetry = time.Second
)

// progress determines up to which resourceVersion a sink's destination has everything of each resource, and when the
// sink is sent progress events about it. It is safe for concurrent use. It never waits for a handler or a destination.
//
// At every interval, it takes a cut: first the positions of the sink's listeners, and then the number of the newest
// item in the queue. What the listeners pushed up to these positions is in the queue up to this item. When the queue no
// longer has these items, the destination has all of them, except those that are parked.
type progress struct {
	every time.Duration // 0 if the sink is sent no progress events
	// sources returns the names of the sources that are watched now, and the resources of which a source is watched no
	// longer and the events about that are not sent yet. It returns false if it does not know all of them.
	sources func() (names map[string]bool, leaving map[schema.GroupResource]bool, ok bool)

	mu        sync.Mutex
	positions map[string]position // by source
	cuts      []cut               // the oldest first
	due       time.Time           // when the next cut is taken
}

// position is the position of a listener. Its resourceVersion is empty until the listener has pushed everything up to a
// position.
type position struct {
	resource        schema.GroupVersionResource
	resourceVersion string
	at              time.Time // when the informer last received it
}

// cut contains positions that the destination has reached when the queue no longer has the item with the number last.
type cut struct {
	last   uint64
	merged int64      // fifo.Stats.Merged at the time of the cut
	upTo   []position // one for each resource: the lowest of its sources
}

// attach adds a source, which has no position yet.
func (g *progress) attach(s informer.Source) {
	if g.every == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.positions[s.Name] = position{resource: s.Resource}
}

// reached records that a listener has pushed everything up to a resourceVersion.
func (g *progress) reached(s *informer.Source, resourceVersion string) {
	if g.every == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.positions[s.Name] = position{s.Resource, resourceVersion, time.Now()}
}

// startOver forgets the position of a source, and all cuts, because etcd was restored: what is pushed from now on has
// lower resourceVersions.
func (g *progress) startOver(s *informer.Source) {
	if g.every == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.positions[s.Name] = position{resource: s.Resource}
	g.cuts = nil
}

// cut takes a cut if one is due.
func (g *progress) cut(now time.Time, queue *fifo.Queue[*event.Message]) {
	if g.every == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Before(g.due) {
		return
	}
	names, leaving, ok := g.sources()
	if !ok {
		g.due = now.Add(cutRetry)
		return
	}
	g.due = now.Add(g.every)
	c := cut{merged: queue.Stats().Merged, upTo: g.lowest(names, leaving)}
	c.last = queue.Last() // after the positions were read
	if len(c.upTo) == 0 {
		return
	}
	if len(g.cuts) == maxCuts {
		n := 0
		g.cuts = slices.DeleteFunc(g.cuts, func(cut) bool { n++; return n%2 == 0 })
	}
	g.cuts = append(g.cuts, c)
}

// lowest returns the lowest position of each resource. It leaves out a resource if a source of it has no position, or
// if resourceVersions cannot be compared.
func (g *progress) lowest(names map[string]bool, leaving map[schema.GroupResource]bool) (all []position) {
	lowest := map[schema.GroupResource]position{}
	for name, p := range g.positions {
		if !names[name] {
			continue
		}
		resource := p.resource.GroupResource()
		other, known := lowest[resource]
		if !known {
			other = p
		}
		order, err := resourceversion.CompareResourceVersion(p.resourceVersion, other.resourceVersion)
		if err != nil { // one of them is empty
			p.resourceVersion = ""
		} else if order > 0 {
			p.resourceVersion = other.resourceVersion
		}
		if other.at.Before(p.at) {
			p.at = other.at
		}
		lowest[resource] = p
	}
	for resource, p := range lowest {
		if p.resourceVersion != "" && !leaving[resource] {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b position) int { return strings.Compare(a.resource.String(), b.resource.String()) })
	return all
}

// take returns the positions of the last cut whose items the queue no longer has, and how long it takes until the next
// cut is due. It must be called by the consumer of the queue, while no item is taken. A cut does not count if items
// were merged since: the older one can be part of an item behind the cut.
func (g *progress) take(queue *fifo.Queue[*event.Message]) (upTo []position, due time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	stats := queue.Stats()
	for len(g.cuts) > 0 && (stats.Items == 0 || queue.Gone(g.cuts[0].last) || mutant.On("progress-early")) {
		if g.cuts[0].merged == stats.Merged {
			upTo = g.cuts[0].upTo
		}
		g.cuts = g.cuts[1:]
	}
	return upTo, max(time.Until(g.due), time.Millisecond)
}

// progressEvents implements sinks.Hooks.Progress.
func (p *pipeline) progressEvents() (events []*event.Message, again time.Duration) {
	g := &p.progress
	if g.every == 0 {
		return nil, 0
	}
	now := time.Now()
	g.cut(now, p.Queue)
	upTo, again := g.take(p.Queue)
	if len(upTo) == 0 || !p.IsIntroduced() {
		return nil, again
	}
	parked := map[string]bool{}
	for _, q := range p.Drain.Parked.Queues() {
		for _, resource := range q.Resources {
			parked[resource] = true
		}
	}
	for _, at := range upTo {
		if !parked[at.resource.GroupResource().String()] {
			events = append(events, p.progressEvent(now, at))
		}
	}
	return events, again
}

func (p *pipeline) progressEvent(now time.Time, at position) *event.Message {
	m, _ := p.Encoder.Encode(event.Event{ // control events can always be encoded
		Type: event.Progress, Time: now, Resource: at.resource, ProgressInfo: &event.ProgressInfo{
			Resource: event.GroupResource(at.resource), ResourceVersion: at.resourceVersion, AsOf: at.at.UTC(),
		},
	})
	p.label(m, "", "")
	return m
}

// progressSources is progress.sources.
func (e *Engine) progressSources() (names map[string]bool, leaving map[schema.GroupResource]bool, ok bool) {
	if e.reading.Err() != nil { // changes that informers deliver from now on may not reach the queue
		return nil, nil, false
	}
	leaving = map[schema.GroupResource]bool{}
	for _, s := range e.tracker.Remembered() {
		leaving[s.Resource.GroupResource()] = true
	}
	names, ok = e.set.Sources()
	return names, leaving, ok
}
