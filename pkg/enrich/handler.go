package enrich

import (
	"strings"
	"time"
	"unique"

	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// Handler learns from one informer's objects. The informer calls it before the handlers that ask for contexts, and first
// with what it knows already (AddEventHandlerWithReplay): a change is then enriched with what it brought itself.
type Handler struct {
	// Held reports whether another informer has an object of which this one says that it is gone: then it lives, and only ceased
	// to be selected. It may be set before the first call. Nil: no other has.
	Held func(*object.Object) bool

	index    *Index
	resource schema.GroupVersionResource
	// learned is called when all that the informer knows at its start was learned.
	learned func()
	labels  bool // are asked for
	owner   bool
	listed  bool // the first list was learned as a whole
	reader  reader
}

var _ cache.ResourceEventHandler = (*Handler)(nil)

// Handler makes the handler of an informer. learned is called when all was learned that the informer knows at its start,
// in the informer's goroutine and before any other handler has heard of a change; it may wait. It can be called twice.
func (x *Index) Handler(resource schema.GroupVersionResource, learned func()) *Handler {
	needs := x.options.Needs
	return &Handler{
		index: x, resource: resource, learned: learned,
		owner:  needs.Owner && !isEvent(resource),
		labels: needs.InvolvedObject && !isEvent(resource) || needs.NamespaceLabels && isNamespace(resource),
	}
}

func isNamespace(r schema.GroupVersionResource) bool {
	return r.Group == "" && r.Resource == "namespaces"
}

// OnFirstList implements informer.FirstLister: it learns from a first list as a whole, before any of it is handed over. It asks for the objects' bytes.
func (h *Handler) OnFirstList(objects []*object.Object) {
	for _, o := range objects {
		h.learn(o)
	}
	h.listed = true
	h.learned()
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
		return // the other one tells what comes of it, its deletion too
	}
	if f := h.index.get(string(o.UID)); f != nil && !f.deleted.IsZero() {
		return // another informer told so
	}
	h.learn(o) // the last state may be one that no update showed
	if f := h.index.get(string(o.UID)); f != nil {
		h.index.bury(f, time.Now())
	}
}

// OnSynced follows what the informer knew at its start, by a list or from a checkpoint.
func (h *Handler) OnSynced(string, int) { h.learned() }

// OnGap does nothing: the changes that a list brings follow.
func (h *Handler) OnGap(string, string, string) {}

// learn notes what is asked for of an object.
func (h *Handler) learn(o *object.Object) {
	uid := string(o.UID)
	if uid == "" || !h.owner && !h.labels {
		return
	}
	known := h.index.get(uid)
	lives := known != nil && known.deleted.IsZero()
	if !h.labels && (known == nil && len(o.Owners) == 0 || lives && h.sameOwner(known, o)) {
		return // without a look at the bytes
	}
	raw, err := h.index.options.Bytes(h.resource, o)
	if err != nil {
		return // whoever sends the object says so
	}
	metadata := member(raw, "metadata")
	var now fact
	if h.owner && lives && h.sameOwner(known, o) {
		now.owner = known.owner
	} else if h.owner && len(o.Owners) > 0 {
		if by, found := owner(metadata); found {
			now.owner = unique.Make(by)
		}
	}
	if h.labels {
		if labels := h.reader.labels(metadata); len(labels) > 0 {
			now.labels = labelsOf(labels, known)
		}
	}
	if lives && now.owner == known.owner && now.labels == known.labels {
		return
	}
	if known != nil {
		now.uid, now.name = known.uid, known.name
	} else {
		now.uid, now.name = strings.Clone(uid), h.name(o) // uid is a part of a longer string
	}
	h.index.set(&now, known)
}

// sameOwner reports whether an object's one owner is the known one. The reference to a uid does not change.
func (h *Handler) sameOwner(known *fact, o *object.Object) bool {
	return len(o.Owners) == 1 && known.owner != (fact{}).owner && known.owner.Value().UID == string(o.Owners[0])
}

// name is that under which the object is in the index byName, if it is.
func (h *Handler) name(o *object.Object) string {
	if h.labels && h.resource.Group == "" && (h.resource.Resource == "namespaces" || h.resource.Resource == "nodes") {
		return h.resource.Resource + "/" + o.Name
	}
	return ""
}

// labelsOf interns labels, if they are not the known ones.
func labelsOf(text []byte, known *fact) unique.Handle[string] {
	if known != nil && known.labels != (fact{}).labels && known.labels.Value() == string(text) {
		return known.labels
	}
	return unique.Make(string(text))
}
