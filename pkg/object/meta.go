package object

import (
	"github.com/deltabridge/deltabridge/internal/jsonscan"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// The following methods implement metav1.Object. The getters of namespace, name, uid and resourceVersion return fields
// of Identity. The other getters decode their part of Raw in every call and cache nothing. They return the zero value
// for a part that is absent, has an unexpected type, or cannot be fetched. The setters do nothing, because an Object is
// immutable.

// metadata decodes one member of the object's metadata.
func metadata[T any](o *Object, name string) (part T) {
	raw, err := o.Bytes()
	if err != nil {
		return part
	}
	if value := jsonscan.Member(jsonscan.Member(raw, "metadata"), name); value != nil {
		_ = utiljson.Unmarshal(value, &part) // if an error occurs, the parts with the expected type are decoded anyway
	}
	return part
}

// GetNamespace returns Identity.Namespace.
func (o *Object) GetNamespace() string { return o.Namespace }

// GetName returns Identity.Name.
func (o *Object) GetName() string { return o.Name }

// GetUID returns Identity.UID.
func (o *Object) GetUID() types.UID { return o.UID }

// GetResourceVersion returns Identity.ResourceVersion.
func (o *Object) GetResourceVersion() string { return o.ResourceVersion }

// GetGenerateName decodes metadata.generateName.
func (o *Object) GetGenerateName() string { return metadata[string](o, "generateName") }

// GetGeneration decodes metadata.generation.
func (o *Object) GetGeneration() int64 { return metadata[int64](o, "generation") }

// GetSelfLink decodes metadata.selfLink.
func (o *Object) GetSelfLink() string { return metadata[string](o, "selfLink") }

// GetCreationTimestamp decodes metadata.creationTimestamp.
func (o *Object) GetCreationTimestamp() metav1.Time {
	return metadata[metav1.Time](o, "creationTimestamp")
}

// GetDeletionTimestamp decodes metadata.deletionTimestamp. It returns nil unless the deletion of the object was
// requested.
func (o *Object) GetDeletionTimestamp() *metav1.Time {
	return metadata[*metav1.Time](o, "deletionTimestamp")
}

// GetDeletionGracePeriodSeconds decodes metadata.deletionGracePeriodSeconds.
func (o *Object) GetDeletionGracePeriodSeconds() *int64 {
	return metadata[*int64](o, "deletionGracePeriodSeconds")
}

// GetLabels decodes metadata.labels.
func (o *Object) GetLabels() map[string]string { return metadata[map[string]string](o, "labels") }

// GetAnnotations decodes metadata.annotations.
func (o *Object) GetAnnotations() map[string]string {
	return metadata[map[string]string](o, "annotations")
}

// GetFinalizers decodes metadata.finalizers.
func (o *Object) GetFinalizers() []string { return metadata[[]string](o, "finalizers") }

// GetOwnerReferences decodes metadata.ownerReferences. The field Owners contains the uids of the owners without further
// decoding.
func (o *Object) GetOwnerReferences() []metav1.OwnerReference {
	return metadata[[]metav1.OwnerReference](o, "ownerReferences")
}

// GetManagedFields returns nil, because Raw does not contain managedFields. See ManagedFieldsJSON.
func (o *Object) GetManagedFields() []metav1.ManagedFieldsEntry { return nil }

// ManagedFieldsJSON returns the value of metadata.managedFields as the API server sent it. It returns nil if there was
// none, if managedFields were not requested (see NewWatchDecoder and List), or if the object comes from an informer's
// index. Callers must not write to the result.
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
