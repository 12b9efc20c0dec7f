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

// member returns the value of a member of a JSON object. It returns nil if the object does not have the member.
func member(object []byte, name string) []byte {
	c := jsonscan.NewCursor(object)
	for key, value, ok := c.Member(); ok; key, value, ok = c.Member() {
		if string(key[1:len(key)-1]) == name {
			return value
		}
	}
	return nil
}

// decode decodes a member of a JSON object. It returns the zero value if the object does not have the member.
func decode[T any](object []byte, name string) (value T) {
	if raw := member(object, name); raw != nil {
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
