package object

import (
	"unique"

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
}

// Object is one state of an API object: the JSON that the API server sent, less metadata.managedFields,
// and what the bridge needs of its metadata.
//
// An Object is immutable once it was decoded, apart from what the doc comments of its methods name. Raw is
// shared by the informer's index, the queues and the sinks: nobody writes to it.
type Object struct {
	Identity

	// Raw is the object's JSON, compact as the API server sends it.
	Raw []byte
	// Owners are the uids in metadata.ownerReferences, in their order; nil if there are none.
	Owners []types.UID
	// FinalStateUnknown marks the last known state of an object whose deletion itself was not seen
	// (client-go's DeletedFinalStateUnknown as data).
	FinalStateUnknown bool
}
