package object

import (
	"sync/atomic"
	"unique"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Identity says which object a state belongs to, and which state it is.
type Identity struct {
	Namespace string // empty for cluster-scoped objects
	Name      string
	UID       types.UID
	// ResourceVersion of this state. Compare two only within one resource (KEP-5504).
	ResourceVersion string
	// Manager is the manager of the newest managedFields entry: who changed the object last, best effort.
	// Empty if the API server sent no managedFields.
	Manager string

	gvk unique.Handle[schema.GroupVersionKind]
	key string // of Key; empty where the identity was put together from parts
}

// Object is one state of an API object: the JSON that the API server sent, less metadata.managedFields,
// and what the bridge needs of its metadata.
//
// An Object is a value: it does not change once whoever decoded it has passed it on, and its methods may be called from
// any goroutine. Raw is shared by the informer's index, the queues and the sinks: nobody writes to it.
type Object struct {
	Identity

	// Raw is the object's JSON, compact as the API server sends it. It is nil in an object that was released: Bytes is
	// for all who may meet one.
	Raw []byte
	// Owners are the uids in metadata.ownerReferences, in their order; nil if there are none.
	Owners []types.UID
	// FinalStateUnknown marks the last known state of an object whose deletion itself was not seen
	// (client-go's DeletedFinalStateUnknown as data).
	FinalStateUnknown bool
	// Hidden says that Raw, wherever it is kept, has no secret values any more: they were replaced when the object was
	// read.
	Hidden bool
	// LongestKey is the length in bytes of the longest key in Raw, wherever it is, escapes counted as they are written;
	// 0 where that is not known.
	LongestKey int32

	keeper         Keeper  // of Raw; nil: the object itself
	managed        *[]byte // of ManagedFieldsJSON; a pointer, since nearly all objects have none
	known, belongs uint64  // of Decision, one bit for each slot; read and written atomically
}

var (
	_ runtime.Object = (*Object)(nil)
	_ metav1.Object  = (*Object)(nil)
)

// New parses the JSON of one object. The result holds a copy of raw, without white space around it and without
// metadata.managedFields. The error wraps ErrMalformed, and means that raw is not one JSON object.
func New(raw []byte) (*Object, error) {
	var p parser
	start := jsonscan.Space(raw, 0)
	if start == len(raw) || raw[start] != '{' {
		return nil, malformed("not a JSON object", len(raw))
	}
	end := p.parse(raw, start)
	if end < 0 {
		return nil, malformed("JSON object without an end", len(raw))
	}
	if jsonscan.Space(raw, end) != len(raw) {
		return nil, malformed("more than one JSON value", len(raw))
	}
	return p.object(raw, start, end, ""), nil
}

// Slots is the number of decisions that an object can remember.
const Slots = 64

// Decision returns what SetDecision noted in a slot, 0 to Slots-1: whether the object belongs to what the slot stands
// for. The decision is not known if none was noted, or if the slot is out of range.
func (o *Object) Decision(slot int) (belongs, known bool) {
	bit := uint64(1) << uint(slot) //nolint:gosec // a slot that is out of range has no bit
	known = atomic.LoadUint64(&o.known)&bit != 0
	return known && atomic.LoadUint64(&o.belongs)&bit != 0, known
}

// SetDecision notes a decision for Decision. The decision about a state never changes, and costs more than to remember
// it. One for a slot out of range is not noted.
func (o *Object) SetDecision(slot int, belongs bool) {
	bit := uint64(1) << uint(slot) //nolint:gosec // as in Decision
	if belongs {
		atomic.OrUint64(&o.belongs, bit)
	} else {
		atomic.AndUint64(&o.belongs, ^bit)
	}
	atomic.OrUint64(&o.known, bit)
}

// InheritDecisions replaces what is decided of o by what was decided of another state: the last state of a deleted
// object may be one that no update showed, and the deletion must follow what was sent before.
func (o *Object) InheritDecisions(from *Object) {
	atomic.StoreUint64(&o.belongs, atomic.LoadUint64(&from.belongs))
	atomic.StoreUint64(&o.known, atomic.LoadUint64(&from.known))
}

// GVK of the object; zero if the document names none.
func (o *Object) GVK() schema.GroupVersionKind { return o.GroupVersionKind() }

// GetObjectKind implements runtime.Object.
func (o *Object) GetObjectKind() schema.ObjectKind { return o }

// SetGroupVersionKind implements schema.ObjectKind. It does nothing: an Object is immutable.
func (o *Object) SetGroupVersionKind(schema.GroupVersionKind) {}

// DeepCopyObject implements runtime.Object. It returns o, because an Object is immutable.
func (o *Object) DeepCopyObject() runtime.Object { return o }
