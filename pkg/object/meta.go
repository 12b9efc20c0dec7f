package object

import (
	"github.com/deltabridge/deltabridge/internal/jsonscan"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// The methods of metav1.Object. Those on identity read its fields; the others decode their part of Raw at each call and
// keep nothing. A part that is absent, of another type than expected, or can't be fetched reads as its zero value. The setters do nothing:
// an Object is immutable.

// metadata decodes one member of the object's metadata into into, and leaves it alone if there is none.
func (o *Object) metadata(name string, into any) {
	raw, err := o.Bytes()
	if err != nil {
		return
	}
	value := member(member(raw, "metadata"), name)
	if value == nil {
		return
	}
	// An error says that something in the part is of another type. What is not stays decoded.
	_ = utiljson.Unmarshal(value, into)
}

// member returns the value of the last member of that name; nil if b is no object or has none.
func member(b []byte, name string) (value []byte) {
	i := jsonscan.Space(b, 0)
	if i >= len(b) || b[i] != '{' {
		return nil
	}
	w := open(b, i)
	for w.next() {
		start := w.pos
		w.skip()
		if !w.bad && string(w.key) == name {
			value = b[start:w.pos]
		}
	}
	return value
}

// GetNamespace is Identity.Namespace.
func (o *Object) GetNamespace() string { return o.Namespace }

// GetName is Identity.Name.
func (o *Object) GetName() string { return o.Name }

// GetUID is Identity.UID.
func (o *Object) GetUID() types.UID { return o.UID }

// GetResourceVersion is Identity.ResourceVersion.
func (o *Object) GetResourceVersion() string { return o.ResourceVersion }

// GetGenerateName decodes metadata.generateName.
func (o *Object) GetGenerateName() (name string) {
	o.metadata("generateName", &name)
	return name
}

// GetGeneration decodes metadata.generation.
func (o *Object) GetGeneration() (generation int64) {
	o.metadata("generation", &generation)
	return generation
}

// GetSelfLink decodes metadata.selfLink.
func (o *Object) GetSelfLink() (link string) {
	o.metadata("selfLink", &link)
	return link
}

// GetCreationTimestamp decodes metadata.creationTimestamp.
func (o *Object) GetCreationTimestamp() (at metav1.Time) {
	o.metadata("creationTimestamp", &at)
	return at
}

// GetDeletionTimestamp decodes metadata.deletionTimestamp; nil while nobody asked to delete the object.
func (o *Object) GetDeletionTimestamp() (at *metav1.Time) {
	o.metadata("deletionTimestamp", &at)
	return at
}

// GetDeletionGracePeriodSeconds decodes metadata.deletionGracePeriodSeconds.
func (o *Object) GetDeletionGracePeriodSeconds() (seconds *int64) {
	o.metadata("deletionGracePeriodSeconds", &seconds)
	return seconds
}

// GetLabels decodes metadata.labels.
func (o *Object) GetLabels() (labels map[string]string) {
	o.metadata("labels", &labels)
	return labels
}

// GetAnnotations decodes metadata.annotations.
func (o *Object) GetAnnotations() (annotations map[string]string) {
	o.metadata("annotations", &annotations)
	return annotations
}

// GetFinalizers decodes metadata.finalizers.
func (o *Object) GetFinalizers() (finalizers []string) {
	o.metadata("finalizers", &finalizers)
	return finalizers
}

// GetOwnerReferences decodes metadata.ownerReferences; Owners has their uids at no cost.
func (o *Object) GetOwnerReferences() (references []metav1.OwnerReference) {
	o.metadata("ownerReferences", &references)
	return references
}

// GetManagedFields is always nil: they were cut out. See ManagedFieldsJSON.
func (o *Object) GetManagedFields() []metav1.ManagedFieldsEntry { return nil }

// ManagedFieldsJSON is the value of metadata.managedFields as the API server sent it; nil if there was none, if they were
// not asked for (WatchOptions, List), and in what is kept of an object. Nobody writes to it.
func (o *Object) ManagedFieldsJSON() []byte {
	if o.managed == nil {
		return nil
	}
	return *o.managed
}

// SetNamespace does nothing.
func (o *Object) SetNamespace(string) {}

// SetName does nothing.
func (o *Object) SetName(string) {}

// SetGenerateName does nothing.
func (o *Object) SetGenerateName(string) {}

// SetUID does nothing.
func (o *Object) SetUID(types.UID) {}

// SetResourceVersion does nothing.
func (o *Object) SetResourceVersion(string) {}

// SetGeneration does nothing.
func (o *Object) SetGeneration(int64) {}

// SetSelfLink does nothing.
func (o *Object) SetSelfLink(string) {}

// SetCreationTimestamp does nothing.
func (o *Object) SetCreationTimestamp(metav1.Time) {}

// SetDeletionTimestamp does nothing.
func (o *Object) SetDeletionTimestamp(*metav1.Time) {}

// SetDeletionGracePeriodSeconds does nothing.
func (o *Object) SetDeletionGracePeriodSeconds(*int64) {}

// SetLabels does nothing.
func (o *Object) SetLabels(map[string]string) {}

// SetAnnotations does nothing.
func (o *Object) SetAnnotations(map[string]string) {}

// SetFinalizers does nothing.
func (o *Object) SetFinalizers([]string) {}

// SetOwnerReferences does nothing.
func (o *Object) SetOwnerReferences([]metav1.OwnerReference) {}

// SetManagedFields does nothing.
func (o *Object) SetManagedFields([]metav1.ManagedFieldsEntry) {}
