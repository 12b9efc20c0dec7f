package object

import (
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Identity identifies an object and one of its states.
type Identity struct {
	Namespace string // empty for cluster-scoped objects
	Name      string
	UID       types.UID
	// ResourceVersion is the version of this state. Versions can be compared only within one resource (KEP-5504).
	ResourceVersion string
	// Manager is the manager of the newest managedFields entry, which is usually the client that changed the object last.
	// It is empty if the API server sent no managedFields.
	Manager string

	gvk unique.Handle[schema.GroupVersionKind]
	key string // result of Key; empty if the identity was composed from parts
}

// Object is one state of an API object: the JSON that the API server sent, without metadata.managedFields, and the
// parts of its metadata that the bridge requires.
//
// An Object does not change after the code that decoded it has passed it on. Its methods may be called from any
// goroutine. The informer's index, the queues and the sinks share Raw, so no code may write to it.
type Object struct {
	Identity

	// Raw is the object's JSON in the compact form in which the API server sends it. It is nil if the object was released.
	// Code that may receive released objects must call Bytes instead.
	Raw []byte
	// Owners contains the uids in metadata.ownerReferences, in the same order. It is nil if there are none.
	Owners []types.UID
	// FinalStateUnknown reports whether this is the last known state of an object whose deletion itself was missed. It
	// corresponds to client-go's DeletedFinalStateUnknown.
	FinalStateUnknown bool
	// Hidden reports whether the secret values in Raw were replaced when the object was read. It also applies to a Raw
	// that is stored elsewhere.
	Hidden bool

	keeper  Keeper  // keeper of Raw; nil if the object itself contains Raw
	managed *[]byte // result of ManagedFieldsJSON; a pointer, because nearly all objects have none
	decisions
}

var (
	_ runtime.Object = (*Object)(nil)
	_ metav1.Object  = (*Object)(nil)
)

// New parses the JSON of one object. The result contains a copy of raw without the surrounding white space and without
// metadata.managedFields. If raw is not one JSON object, the error wraps ErrMalformed.
func New(raw []byte) (*Object, error) {
	var p parser
	return p.document(raw)
}

// Parser parses stored objects. The zero value is ready to use, and faster if it is used for many objects.
type Parser struct{ parser }

// Parse is like New, but Raw may share memory with raw instead of being a copy.
func (p *Parser) Parse(raw []byte) (*Object, error) {
	p.share = true
	return p.document(raw)
}

// GetObjectKind implements runtime.Object.
func (o *Object) GetObjectKind() schema.ObjectKind { return o }

// SetGroupVersionKind implements schema.ObjectKind. It does nothing, because an Object is immutable.
func (o *Object) SetGroupVersionKind(schema.GroupVersionKind) {}

// DeepCopyObject implements runtime.Object. It returns o, because an Object is immutable.
func (o *Object) DeepCopyObject() runtime.Object { return o }
