package event

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/deltabridge/deltabridge/internal/jsonpatch"
)

// Received is an event that was read from a destination.
type Received struct {
	// Attributes contains the CloudEvents context attributes, without a prefix. Boolean attributes have the value "true".
	Attributes map[string]string
	// Data is the payload, a JSON document. It is empty if the event has no payload.
	Data []byte
}

// ParseStructured parses an event in structured content mode.
func ParseStructured(body []byte) (Received, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return Received{}, fmt.Errorf("read structured event: %w", err)
	}
	r := Received{Attributes: make(map[string]string, len(members)), Data: members["data"]}
	delete(members, "data")
	for name, value := range members {
		text := string(value)
		if len(value) > 0 && value[0] == '"' {
			if err := json.Unmarshal(value, &text); err != nil {
				return Received{}, fmt.Errorf("read structured event, attribute %s: %w", name, err)
			}
		}
		r.Attributes[name] = text
	}
	return r, nil
}

// Type returns the event's type, or 0 if it is not a type that the bridge sends.
func (r *Received) Type() Type {
	for t := Added; t <= lastType; t++ {
		if r.Attributes["type"] == t.CloudEventsType() {
			return t
		}
	}
	return 0
}

// Resource returns the resource and group, as in "deployments.apps".
func (r *Received) Resource() string {
	resource, _, _ := strings.Cut(r.Attributes["subject"], "/")
	return resource
}

// Object returns the namespace and the name of the object, which the attribute "subject" contains. A cluster-scoped
// object has no namespace, and a control event neither.
func (r *Received) Object() (namespace, name string) {
	_, object, _ := strings.Cut(r.Attributes["subject"], "/")
	namespace, name, _ = strings.Cut(object, "/")
	return namespace, name
}

// AppendStructured appends the event as a JSON object to dst. The result is like that of Message.AppendStructured, but
// the attributes are sorted by name.
func (r *Received) AppendStructured(dst []byte) []byte {
	dst = append(dst, '{')
	for _, name := range slices.Sorted(maps.Keys(r.Attributes)) {
		dst = appendAttribute(dst, name, r.Attributes[name])
	}
	data := r.Data
	if !json.Valid(data) {
		data = []byte("null")
	}
	return append(append(jsonpatch.AppendKey(dst, "data"), data...), '}')
}
