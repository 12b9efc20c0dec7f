package event

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Received is an event that was read back from a destination.
type Received struct {
	// Attributes are the CloudEvents context attributes, without prefix. Booleans are "true".
	Attributes map[string]string
	// Data is the payload, one JSON document; empty if there is none.
	Data []byte
}

// ParseStructured reads an event of the structured content mode.
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

// Type returns the event's type, or 0 if the bridge sends no such type.
func (r *Received) Type() Type {
	for t := Added; t <= lastType; t++ {
		if r.Attributes["type"] == t.CloudEventsType() {
			return t
		}
	}
	return 0
}

// Resource returns the resource with its group, as in "deployments.apps".
func (r *Received) Resource() string {
	resource, _, _ := strings.Cut(r.Attributes["subject"], "/")
	return resource
}

// AppendStructured appends the event in its JSON form to dst: as Message.AppendStructured does, with the attributes in
// the order of their names.
func (r *Received) AppendStructured(dst []byte) []byte {
	dst = append(dst, '{')
	for _, name := range slices.Sorted(maps.Keys(r.Attributes)) {
		dst = append(appendAttribute(dst, name, r.Attributes[name]), ',')
	}
	dst = append(dst, `"data":`...)
	if json.Valid(r.Data) {
		dst = append(dst, r.Data...)
	} else {
		dst = append(dst, "null"...)
	}
	return append(dst, '}')
}
