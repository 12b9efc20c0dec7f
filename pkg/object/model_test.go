package object

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// The model says with encoding/json what package object must find by its own means. It decodes level by level into
// map[string]json.RawMessage: keys match exactly, the last of equal keys counts.

type modelObject struct {
	APIVersion, Kind         string
	HasAPIVersion, HasKind   bool
	Namespace, Name          string
	UID                      types.UID
	ResourceVersion, Manager string
	Owners                   []types.UID
	Raw                      string
}

// trim cuts the white space of JSON, which is less than that of Unicode.
func trim(b []byte) []byte { return bytes.Trim(b, " \t\r\n") }

type members map[string]json.RawMessage

// modelMembers is nil if b is no JSON object.
func modelMembers(b []byte) members {
	b = trim(b)
	if len(b) == 0 || b[0] != '{' || !json.Valid(b) {
		return nil
	}
	m := members{}
	if err := json.Unmarshal(b, &m); err != nil {
		panic(err)
	}
	return m
}

func (m members) text(key string) string {
	var s string
	if json.Unmarshal(m[key], &s) != nil {
		return ""
	}
	return s
}

func (m members) array(key string) []json.RawMessage {
	var a []json.RawMessage
	if json.Unmarshal(m[key], &a) != nil {
		return nil
	}
	return a
}

// model is what New must make of b; nil if b is no JSON object.
func model(b []byte) *modelObject {
	top := modelMembers(b)
	if top == nil {
		return nil
	}
	metadata := modelMembers(top["metadata"])
	o := &modelObject{
		APIVersion: top.text("apiVersion"), Kind: top.text("kind"),
		Namespace: metadata.text("namespace"), Name: metadata.text("name"), UID: types.UID(metadata.text("uid")),
		ResourceVersion: metadata.text("resourceVersion"),
		Raw:             string(modelCut(b)),
	}
	_, o.HasAPIVersion = top["apiVersion"]
	_, o.HasKind = top["kind"]
	for _, reference := range metadata.array("ownerReferences") {
		if uid := modelMembers(reference).text("uid"); uid != "" {
			o.Owners = append(o.Owners, types.UID(uid))
		}
	}
	newest := ""
	for _, entry := range metadata.array("managedFields") {
		m := modelMembers(entry)
		if m == nil {
			continue
		}
		at := m.text("time")
		if len(at) != len("2006-01-02T15:04:05Z") {
			at = ""
		}
		if at >= newest {
			newest, o.Manager = at, m.text("manager")
		}
	}
	return o
}

// found is what an Object says, in the model's form.
func found(o *Object) *modelObject {
	gv := o.APIVersion()
	return &modelObject{
		APIVersion: gv, Kind: o.Kind(), Namespace: o.Namespace, Name: o.Name, UID: o.UID,
		ResourceVersion: o.ResourceVersion, Manager: o.Manager, Owners: o.Owners, Raw: string(o.Raw),
	}
}

// modelCut removes managedFields from every top-level metadata of a valid document: the comma before it goes with it,
// or if no member stays before it, what is up to the next member.
func modelCut(b []byte) []byte {
	b = trim(b)
	out, copied := []byte{}, 0
	for _, m := range modelSpans(b, 0) {
		if m.key != "metadata" || b[m.value] != '{' {
			continue
		}
		kept, lastEnd := false, 0
		inner := modelSpans(b[:m.end], m.value)
		for i, member := range inner {
			if member.key != "managedFields" {
				kept, lastEnd = true, member.end
				continue
			}
			from, to := member.start, member.end
			switch {
			case kept:
				// The comma before it: between the member before, kept or cut, and this one.
				if i > 0 {
					lastEnd = inner[i-1].end
				}
				from = lastEnd + bytes.IndexByte(b[lastEnd:], ',')
			case i+1 < len(inner):
				to = inner[i+1].start
			}
			out = append(out, b[copied:from]...)
			copied = to
		}
	}
	return append(out, b[copied:]...)
}

type modelSpan struct {
	key               string
	start, value, end int
}

// modelSpans gives the members of the object at b[at], with the tokenizer of encoding/json.
func modelSpans(b []byte, at int) []modelSpan {
	skip := func(i int, set string) int {
		for strings.IndexByte(set, b[i]) >= 0 {
			i++
		}
		return i
	}
	d := json.NewDecoder(bytes.NewReader(b[at:]))
	must := func(_ any, err error) {
		if err != nil && err != io.EOF {
			panic(err)
		}
	}
	d.UseNumber()
	must(d.Token())
	var spans []modelSpan
	for d.More() {
		start := skip(at+int(d.InputOffset()), " \t\r\n,")
		key, err := d.Token()
		must(key, err)
		value := skip(at+int(d.InputOffset()), " \t\r\n:")
		var raw json.RawMessage
		must(nil, d.Decode(&raw))
		spans = append(spans, modelSpan{key.(string), start, value, at + int(d.InputOffset())})
	}
	return spans
}

// modelEvent is what a watch must make of one document.
type modelEvent struct {
	Type   string
	Object *modelObject // nil for an ERROR
	Status string       // the message of an ERROR
}

// modelWatch gives the events of a stream, up to the first line that is not one: then it ended is false. With valid
// false that line is not JSON, of which the scan sees only as much as it needs.
func modelWatch(stream []byte, versioned bool) (events []modelEvent, ended, valid bool) {
	for line := range bytes.Lines(stream) {
		if len(trim(line)) == 0 {
			continue
		}
		envelope := modelMembers(line)
		if envelope == nil {
			return events, false, false
		}
		eventType := envelope.text("type")
		object := model(envelope["object"])
		if object == nil || !strings.Contains(" ADDED MODIFIED DELETED BOOKMARK ERROR ", " "+eventType+" ") ||
			eventType == "" {
			return events, false, true
		}
		object.HasAPIVersion, object.HasKind = false, false
		event := modelEvent{Type: eventType, Object: object}
		if eventType == "ERROR" {
			event.Object, event.Status = nil, modelMembers(envelope["object"]).text("message")
		} else if object.ResourceVersion != "" {
			versioned = true
		} else if versioned {
			return events, false, true
		}
		events = append(events, event)
	}
	return events, true, true
}
