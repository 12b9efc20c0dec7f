package enrich

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unique"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
	"github.com/deltabridge/deltabridge/pkg/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// decode decodes a member of a JSON object. It returns the zero value if the object does not have the member.
func decode[T any](object []byte, name string) (value T) {
	if raw := jsonscan.Member(object, name); raw != nil {
		_ = json.Unmarshal(raw, &value) // the API server has checked the object
	}
	return value
}

// controller returns the owner reference of the controller. If no reference is a controller, it returns the first one.
// It returns the zero value if there are no references.
func controller(references []metav1.OwnerReference) (none metav1.OwnerReference) {
	if owner := metav1.GetControllerOfNoCopy(&metav1.ObjectMeta{OwnerReferences: references}); owner != nil {
		return *owner
	}
	if len(references) > 0 {
		return references[0]
	}
	return none
}

func ownerOf(r metav1.OwnerReference) event.Owner {
	return event.Owner{APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name, UID: string(r.UID)}
}

// labelsOf returns the labels in an object's metadata as a=b,c=d, sorted by key.
func labelsOf(metadata []byte) (text unique.Handle[string]) {
	labels := decode[map[string]string](metadata, "labels")
	if len(labels) == 0 {
		return text
	}
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	return unique.Make(strings.Join(pairs, ","))
}
