package enrich

import (
	"bytes"
	"encoding/json"
	"slices"
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

// labelsOf returns the labels in an object's metadata as a=b,c=d, sorted by key. known is the earlier fact about the
// object, or nil: nothing is allocated if its labels have not changed.
func labelsOf(metadata []byte, known *fact) (labels unique.Handle[string]) {
	var pairs [16][2][]byte
	sorted := pairs[:0]
	w := jsonscan.Open(jsonscan.Member(metadata, "labels"), 0, '{')
	for w.Next() {
		sorted = append(sorted, [2][]byte{w.Key, w.Text()})
	}
	slices.SortFunc(sorted, func(a, b [2][]byte) int { return bytes.Compare(a[0], b[0]) })
	var buffer [1024]byte
	text := buffer[:0]
	for _, pair := range sorted {
		text = append(append(append(append(text, ','), pair[0]...), '='), pair[1]...)
	}
	switch {
	case len(text) == 0:
		return labels
	case known != nil && known.labelText() == string(text[1:]):
		return known.labels
	}
	return unique.Make(string(text[1:]))
}
