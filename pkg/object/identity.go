package object

import "k8s.io/apimachinery/pkg/runtime/schema"

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
