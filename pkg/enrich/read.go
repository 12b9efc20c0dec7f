package enrich

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

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
func controller(references []metav1.OwnerReference) (owner metav1.OwnerReference) {
	for n, r := range references {
		if r.Controller != nil && *r.Controller {
			return r
		}
		if n == 0 {
			owner = r
		}
	}
	return owner
}

func ownerOf(r metav1.OwnerReference) event.Owner {
	return event.Owner{APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name, UID: string(r.UID)}
}

// labelText renders labels as a=b,c=d, sorted by key.
func labelText(labels map[string]string) string {
	pairs := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	return strings.Join(pairs, ",")
}
