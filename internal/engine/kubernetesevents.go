package engine

import (
	"encoding/json"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/enrich"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// eventCounts is the name by which the tracker knows the eventCounter. It is not a valid name of a sink.
const eventCounts = "(Kubernetes Events)"

// eventCounter counts the occurrences of the Kubernetes Events that informers report. For the tracker, it is a sink
// that settles everything at once, so the checkpoint contains the positions up to which it has counted. Occurrences are
// added to the metric when the positions after them are stored. Therefore no process counts what an earlier one has
// counted. It is safe for concurrent use. A nil *eventCounter is valid, except for attach, and does nothing.
type eventCounter struct {
	total *metrics.KubernetesEvents
	bytes Bytes // Enrichment.FactBytes

	mu sync.Mutex
	// recent contains what was counted since the last commit, and earlier what was counted before and is not in the
	// metric yet.
	recent, earlier occurrences
}

// occurrences are numbers of occurrences of Kubernetes Events.
type occurrences map[metrics.EventLabels]int64

// committed must be called after each commit of the tracker, with its error. The commit covers what was counted before
// the previous call, but not everything that was counted since: that may have been after the commit had begun.
func (c *eventCounter) committed(err error) {
	if c == nil || err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for labels, n := range c.earlier {
		c.total.Add(labels, n)
	}
	c.earlier, c.recent = c.recent, nil
}

// finish is committed for the last commit, after which nothing is counted.
func (c *eventCounter) finish(err error) {
	c.committed(err)
	c.committed(err)
}

// attach adds a handler to an informer of Kubernetes Events. floor is the position up to which earlier processes have
// counted.
func (c *eventCounter) attach(i *informer.Informer, floor string) {
	if !enrich.IsEvent(i.Resource()) {
		return
	}
	h := &eventHandler{eventCounter: c, resource: i.Resource(), inList: i.Relists(), counting: occurrences{}}
	if i.Relists() || floor != i.ResumesAt() {
		h.floor, h.ignoresList = floor, i.Relists() || floor != ""
	}
	i.AddEventHandler(h)
}

// eventHandler is the handler for one informer.
type eventHandler struct {
	*eventCounter

	resource schema.GroupVersionResource
	// floor is the position up to which earlier processes have counted. It is empty once the informer has passed it.
	floor string
	// inList reports whether the informer is passing on a list. ignoresList reports whether its changes are not counted,
	// because it cannot be determined which of their occurrences are new.
	inList, ignoresList bool
	// counting contains the occurrences since the last position.
	counting occurrences
}

var (
	_ cache.ResourceEventHandler = (*eventHandler)(nil)
	_ informer.Observer          = (*eventHandler)(nil)
	_ informer.Positioner        = (*eventHandler)(nil)
)

// OnAdd implements cache.ResourceEventHandler. The Events of the first list occurred before the bridge watched.
func (h *eventHandler) OnAdd(obj any, initial bool) {
	if !initial {
		h.count(nil, obj.(*object.Object))
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (h *eventHandler) OnUpdate(oldObj, newObj any) {
	h.count(oldObj.(*object.Object), newObj.(*object.Object))
}

// OnDelete implements cache.ResourceEventHandler.
func (h *eventHandler) OnDelete(any) {}

// OnSynced implements informer.Observer.
func (h *eventHandler) OnSynced(string, int) {}

// OnGap implements informer.Observer. If etcd was restored, the list can contain Events again that were counted before.
func (h *eventHandler) OnGap(from, to, _ string) {
	h.inList = true
	if tracker.WentBack(from, to) {
		h.floor, h.ignoresList = "", true
	}
}

// OnPosition implements informer.Positioner.
func (h *eventHandler) OnPosition(resourceVersion string) {
	h.inList = false
	if tracker.Past(h.floor, resourceVersion) {
		h.floor, h.ignoresList = "", false
	}
	if len(h.counting) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.recent == nil {
		h.recent = occurrences{}
	}
	for labels, n := range h.counting {
		h.recent[labels] += n
	}
	clear(h.counting)
}

// kubernetesEvent contains the parts of an Event that are counted, in both API groups.
type kubernetesEvent struct {
	Reason, Type           string
	Count, DeprecatedCount int64
	Series                 struct{ Count int64 }
}

func (e *kubernetesEvent) occurrences() int64 {
	return max(1, e.Count, e.DeprecatedCount, e.Series.Count)
}

// count counts how much more often an Event has occurred than in its old state, which is nil for a new Event.
func (h *eventHandler) count(old, now *object.Object) {
	if h.inList && h.ignoresList || h.floor != "" && !past(h.floor, now.ResourceVersion) {
		return
	}
	e, err := h.read(now)
	if err != nil {
		return // the encoder reports the error
	}
	n := e.occurrences()
	if old != nil {
		if before, err := h.read(old); err != nil {
			n = 1
		} else {
			n -= before.occurrences()
		}
	}
	if n > 0 {
		h.counting[metrics.EventLabels{Namespace: now.Namespace, Reason: e.Reason, Type: e.Type}] += n
	}
}

func (h *eventHandler) read(o *object.Object) (e kubernetesEvent, err error) {
	raw, err := o.Bytes()
	if h.bytes != nil {
		raw, err = h.bytes(h.resource, o)
	}
	if err == nil {
		err = json.Unmarshal(raw, &e)
	}
	return e, err
}
