package enrich

import (
	"strings"
	"unique"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
	"github.com/deltabridge/deltabridge/pkg/object"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// Handler adds the objects of one informer to the Index. The informer must call this handler before the handlers that
// request contexts, so that the context of an event already includes the new state. The handler must also receive all
// objects that the informer already knows (AddEventHandlerWithReplay).
type Handler struct {
	// Held reports whether another informer still has an object that this informer reports as deleted. Such an object
	// still exists, but this informer no longer selects it. Held must be set before the first event. If Held is nil, the
	// handler assumes that no other informer has the object.
	Held func(*object.Object) bool

	index    *Index
	resource schema.GroupVersionResource
	// onReady is called when the index contains all objects that the informer knows at its start.
	onReady func()
	labels  bool // whether labels are needed
	owner   bool // whether owners are needed
	listed  bool // OnFirstList was called, so OnAdd skips the initial objects
}

var _ cache.ResourceEventHandler = (*Handler)(nil)

// Handler returns the handler for one informer. onReady is called when the index contains all objects that the informer
// knows at its start. It is called in the informer's goroutine, before any other handler receives a change. It may
// block.
func (x *Index) Handler(resource schema.GroupVersionResource, onReady func()) *Handler {
	needs, namespaces := x.options.Needs, schema.GroupResource{Resource: "namespaces"}
	return &Handler{
		index: x, resource: resource, onReady: onReady,
		owner:  needs.Owner && !isEvent(resource),
		labels: needs.InvolvedObject && !isEvent(resource) || needs.NamespaceLabels && resource.GroupResource() == namespaces,
	}
}

// OnFirstList implements informer.FirstLister. It adds all objects of the first list to the index before other handlers
// receive the first of them.
func (h *Handler) OnFirstList(objects []*object.Object) {
	for _, o := range objects {
		h.learn(o)
	}
	h.listed = true
	h.onReady()
}

// OnAdd implements cache.ResourceEventHandler.
func (h *Handler) OnAdd(obj any, initial bool) {
	if !initial || !h.listed {
		h.learn(obj.(*object.Object))
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (h *Handler) OnUpdate(_, newObj any) { h.learn(newObj.(*object.Object)) }

// OnDelete implements cache.ResourceEventHandler.
func (h *Handler) OnDelete(obj any) {
	o := obj.(*object.Object)
	if h.Held != nil && h.Held(o) {
		return // the other informer reports the object's further changes and its deletion
	}
	if f, exists := h.index.get(string(o.UID)); f != nil && !exists {
		return // another informer has already reported the deletion
	}
	h.learn(o) // the last state can be newer than the last update
	if f, exists := h.index.get(string(o.UID)); exists {
		h.index.markDeleted(f)
	}
}

// learn updates the fact about an object.
func (h *Handler) learn(o *object.Object) {
	uid := string(o.UID)
	if uid == "" || !h.owner && !h.labels {
		return
	}
	known, exists := h.index.get(uid)
	if !h.labels && (known == nil && len(o.Owners) == 0 || exists && h.sameOwner(known, o)) {
		return // nothing has changed, so the bytes are not needed
	}
	raw, err := h.index.options.Bytes(h.resource, o)
	if err != nil {
		return // the encoder reports the error
	}
	metadata := jsonscan.Member(raw, "metadata")
	var now fact
	switch {
	case !h.owner || len(o.Owners) == 0:
	case exists && h.sameOwner(known, o):
		now.owner = known.owner
	default:
		references := decode[[]metav1.OwnerReference](metadata, "ownerReferences")
		now.owner = unique.Make(ownerOf(controller(references)))
	}
	if h.labels {
		now.labels = labelsOf(metadata)
	}
	if exists && now.owner == known.owner && now.labels == known.labels {
		return
	}
	// uid is a substring of a longer string.
	h.index.set(&fact{uid: strings.Clone(uid), name: h.name(o), owner: now.owner, labels: now.labels})
}

// sameOwner reports whether the object has exactly one owner and this owner is already known. Comparing uids is
// sufficient, because the other fields of an owner reference do not change.
func (h *Handler) sameOwner(known *fact, o *object.Object) bool {
	return len(o.Owners) == 1 && known.owner != (fact{}).owner && known.owner.Value().UID == string(o.Owners[0])
}

// name returns the name under which the index also stores the fact, or an empty string.
func (h *Handler) name(o *object.Object) string {
	if h.labels && h.resource.Group == "" && (h.resource.Resource == "namespaces" || h.resource.Resource == "nodes") {
		return h.resource.Resource + "/" + o.Name
	}
	return ""
}
