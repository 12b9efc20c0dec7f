package object

import (
	"unique"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NewIdentity makes an identity that holds the kind alone; the other fields are the caller's to set.
func NewIdentity(gvk schema.GroupVersionKind) Identity { return Identity{gvk: unique.Make(gvk)} }

// GroupVersionKind of the object; zero if the document names none.
func (i *Identity) GroupVersionKind() schema.GroupVersionKind {
	if i.gvk == (Identity{}).gvk {
		return schema.GroupVersionKind{}
	}
	return i.gvk.Value()
}

// APIVersion is the object's "apiVersion", as in "apps/v1".
func (i *Identity) APIVersion() string { return i.GroupVersionKind().GroupVersion().String() }

// Kind is the object's "kind".
func (i *Identity) Kind() string { return i.GroupVersionKind().Kind }

// Key is "namespace/name", or "name" if there is no namespace: what client-go's cache.MetaNamespaceKeyFunc gives.
func (i *Identity) Key() string {
	switch {
	case i.Namespace == "":
		return i.Name
	case i.key != "":
		return i.key
	}
	return i.Namespace + "/" + i.Name
}
