package object

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unique"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
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
// An Object is immutable once it was decoded, apart from what the doc comments of its methods name. Raw is
// shared by the informer's index, the queues and the sinks: nobody writes to it.
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
	// Unselected marks an object of a list that the informer does not select, and has no bytes of.
	Unselected bool
	// Hidden says that Raw, wherever it is kept, has no secret values any more: they were replaced when the object was read.
	// Set it before anybody else has the object.
	Hidden bool
	// ShortKeys says that no key in Raw, wherever it stands, has as many as LongKey bytes, escapes counted as they are written.
	// It is false where that is not known.
	ShortKeys bool

	keeper         Keeper         // of Raw; nil: the object itself
	managed        *[]byte        // of ManagedFieldsJSON; a pointer, since nearly all objects have none
	view           map[string]any // of Map
	known, belongs uint64         // of Decision, one bit for each slot
}

// LongKey is the length in bytes from which on a key is a long one: that of the annotation of kubectl apply, which nearly no
// other key reaches.
const LongKey = len("kubectl.kubernetes.io/last-applied-configuration")

var (
	_ runtime.Object = (*Object)(nil)
	_ metav1.Object  = (*Object)(nil)
)

// New parses the JSON of one object. The result holds a copy of raw, without white space around it and without
// metadata.managedFields. The error wraps ErrMalformed and means that raw is not one JSON object.
func New(raw []byte) (*Object, error) {
	var p parser
	return p.whole(raw)
}

// whole parses b, which is one JSON object and nothing else but white space.
func (p *parser) whole(b []byte) (*Object, error) {
	start := jsonscan.Space(b, 0)
	if start == len(b) || b[start] != '{' {
		return nil, malformed("not a JSON object", len(b))
	}
	end := p.parse(b, start)
	if end < 0 {
		return nil, malformed("JSON object without an end", len(b))
	}
	if jsonscan.Space(b, end) != len(b) {
		return nil, malformed("more than one JSON value", len(b))
	}
	return p.object(b, start, end, ""), nil
}

// bookmarkObject is what NewBookmark renders.
type bookmarkObject struct {
	Metadata struct {
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// NewBookmark makes the object of the bookmark event that ends the initial events of a watch-list (KEP-3157).
func NewBookmark(resourceVersion string) *Object {
	var b bookmarkObject
	b.Metadata.ResourceVersion = resourceVersion
	b.Metadata.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	raw, err := json.Marshal(b)
	if err != nil {
		raw = nil // strings always marshal
	}
	return &Object{Identity: Identity{ResourceVersion: resourceVersion}, Raw: raw}
}

// Map is the object as encoding/json decodes it, with int64 for numbers that are integers and fit, and float64 for the
// others, as in unstructured.Unstructured. The result is kept until Forget and shared by all callers: nobody writes to
// it. An error means that Raw is not valid JSON, or nested deeper than encoding/json allows, or that it can't be fetched.
//
// Map, Bytes, ManagedFieldsJSON, Release, Forget, Decision and SetDecision change the object and take no lock: only the goroutine of the informer that
// owns the object may call them.
func (o *Object) Map() (map[string]any, error) {
	if o.view == nil {
		raw, err := o.Bytes()
		if err != nil {
			return nil, err
		}
		var view map[string]any
		if utiljson.Unmarshal(raw, &view) != nil { // the cause could quote the document, which may be a Secret
			return nil, fmt.Errorf("decode %s %s/%s: %w", o.Kind(), o.Namespace, o.Name, ErrMalformed)
		}
		o.view = view
	}
	return o.view, nil
}

// Forget drops what Map keeps, what Bytes has fetched, and the managedFields. The informer calls it when a change was handed to all
// handlers, so that its index stays small. See Map for who may call it.
func (o *Object) Forget() {
	o.view, o.managed = nil, nil
	if o.keeper != nil {
		o.Raw = nil
	}
}

// Slots is the number of decisions that an object can remember.
const Slots = 64

// Decision returns what SetDecision noted in a slot, 0 to Slots-1: whether the object belongs to what the slot stands
// for. It is not known if nothing was noted, or the slot is out of range. See Map for who may call it.
func (o *Object) Decision(slot int) (belongs, known bool) {
	if slot < 0 || slot >= Slots {
		return false, false
	}
	bit := uint64(1) << slot
	return o.belongs&bit != 0, o.known&bit != 0
}

// SetDecision notes a decision for Decision. One for a slot out of range is not noted. See Map for who may call it.
func (o *Object) SetDecision(slot int, belongs bool) {
	if slot < 0 || slot >= Slots {
		return
	}
	bit := uint64(1) << slot
	o.known |= bit
	o.belongs &^= bit
	if belongs {
		o.belongs |= bit
	}
}

// InheritDecisions replaces what is decided of o by what was decided of an earlier state: the last state of a deleted
// object may be one that no update showed, and the deletion must follow what was told before. See Map for who may call
// it.
func (o *Object) InheritDecisions(from *Object) { o.known, o.belongs = from.known, from.belongs }

// GVK of the object; zero if the document names none.
func (o *Object) GVK() schema.GroupVersionKind { return o.GroupVersionKind() }

// GetObjectKind implements runtime.Object.
func (o *Object) GetObjectKind() schema.ObjectKind { return o }

// SetGroupVersionKind implements schema.ObjectKind. It does nothing: an Object is immutable.
func (o *Object) SetGroupVersionKind(schema.GroupVersionKind) {}

// DeepCopyObject implements runtime.Object. The copy has its own Raw and nothing that Map keeps.
func (o *Object) DeepCopyObject() runtime.Object {
	if o == nil {
		return nil
	}
	c := *o
	c.Raw = bytes.Clone(o.Raw)
	c.Owners = slices.Clone(o.Owners)
	c.view = nil
	if o.managed != nil {
		c.managed = new(bytes.Clone(*o.managed))
	}
	return &c
}
