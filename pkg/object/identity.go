package object

import (
	"unique"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// WithKind returns a copy of the identity with the given kind.
func (i *Identity) WithKind(gvk schema.GroupVersionKind) Identity {
	changed := *i
	changed.gvk = unique.Make(gvk)
	return changed
}

// GroupVersionKind returns the GroupVersionKind of the object, or the zero value if the document contains none.
func (i *Identity) GroupVersionKind() schema.GroupVersionKind {
	if i.gvk == (Identity{}).gvk {
		return schema.GroupVersionKind{}
	}
	return i.gvk.Value()
}

// APIVersion returns the object's "apiVersion", for example "apps/v1".
func (i *Identity) APIVersion() string { return i.GroupVersionKind().GroupVersion().String() }

// Kind returns the object's "kind".
func (i *Identity) Kind() string { return i.GroupVersionKind().Kind }

// Key returns "namespace/name", or "name" if there is no namespace, like client-go's cache.MetaNamespaceKeyFunc.
func (i *Identity) Key() string {
	switch {
	case i.Namespace == "":
		return i.Name
	case i.key != "":
		return i.key
	}
	return i.Namespace + "/" + i.Name
}
