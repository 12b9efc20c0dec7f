package event

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/docs/schemas"
)

const (
	smallConfigMap = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"shop","uid":"u1","resourceVersion":"4"},"data":{"a":"x"}}`
	metadataAlone  = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop","uid":"u1","resourceVersion":"5"}}`
)

// What is left of a message in each payload and content mode: the same event, with less data, that says so.
func TestReduce(t *testing.T) {
	old := mustObject(t, smallConfigMap)
	now := mustObject(
		t,
		strings.Replace(strings.Replace(smallConfigMap, `"4"`, `"5"`, 1), `"x"`, `"`+strings.Repeat("y", 5000)+`"`, 1),
	)
	// A custom resource can have any members.
	odd := mustObject(
		t,
		strings.Replace(
			smallConfigMap,
			`"data":`,
			`"operation":"updated","object":{"metadata":{}},"pad":"`+strings.Repeat("y", 500)+`","data":`,
			1,
		),
	)
	// Of these names none is one of those that are kept.
	named := mustObject(
		t,
		strings.Replace(
			smallConfigMap,
			`"data":`,
			`"Metadata":{"name":"b"},"KIND":"Other","apiversion":"v2","pad":"`+strings.Repeat("y", 500)+`","data":`,
			1,
		),
	)
	tests := map[string]struct {
		payload Payload
		event   Event
		want    string
	}{
		"object":  {PayloadObject, Event{Type: Updated, Object: now, Old: old}, metadataAlone},
		"deleted": {PayloadObject, Event{Type: Deleted, Object: now}, metadataAlone},
		"odd":     {PayloadObject, Event{Type: Added, Object: odd}, strings.Replace(metadataAlone, `"5"`, `"4"`, 1)},
		"change": {
			PayloadChange,
			Event{Type: Updated, Object: now, Old: old},
			`{"operation":"updated","object":` + metadataAlone + `,"old":null,"patch":null,"changedPaths":["/data/a"],"managers":[]}`,
		},
		"change, deleted": {
			PayloadChange,
			Event{Type: Deleted, Object: now},
			`{"operation":"deleted","object":` + metadataAlone + `,"old":null,"patch":null,"changedPaths":[],"managers":[]}`,
		},
		"other names": {
			PayloadObject,
			Event{Type: Added, Object: named},
			strings.Replace(metadataAlone, `"5"`, `"4"`, 1),
		},
		"change of those": {
			PayloadChange,
			Event{Type: Added, Object: named},
			`{"operation":"added","object":` + strings.Replace(
				metadataAlone,
				`"5"`,
				`"4"`,
				1,
			) + `,"old":null,"patch":null,"changedPaths":[],"managers":[]}`,
		},
		"nothing to leave": {PayloadMetadata, Event{Type: Updated, Object: now, Old: old}, ""},
	}
	for name, test := range tests {
		for _, content := range []Content{ContentBinary, ContentStructured} {
			t.Run(name+" "+string(content), func(t *testing.T) {
				test.event.Resource = pods
				m := encode(t, &Encoder{Cluster: "c", Payload: test.payload, Content: content}, test.event)
				before, whole := attributes(m), bytes.Clone(m.Data)
				reduced, err := Reduce(m, Marks{Omitted: ReasonOversize, Size: int64(len(m.Data)), Ref: "r", Digest: "d"})
				if test.want == "" {
					if err == nil {
						t.Errorf("reduced to %s", reduced.Data)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, string(reduced.Data)); diff != "" {
					t.Errorf("data (-want +got):\n%s", diff)
				}
				want := maps.Clone(before)
				want["dataomitted"], want["datasize"], want["dataref"], want["datadigest"] = "oversize", jsonNumber(
					len(whole),
				), "r", "d"
				if test.payload == PayloadObject {
					want["dataschema"] = schemas.BaseURL + "metadata.json"
				}
				if diff := cmp.Diff(want, attributes(reduced)); diff != "" {
					t.Errorf("attributes (-want +got):\n%s", diff)
				}
				if !bytes.Equal(m.Data, whole) || m.Marks != nil || reduced.Key() != m.Key() || reduced.Type != m.Type {
					t.Error("the message itself has changed")
				}
				if content != ContentStructured {
					return
				}
				var body struct {
					Size json.Number     `json:"datasize"`
					Data json.RawMessage `json:"data"`
				}
				if err := json.Unmarshal(
					reduced.Body(),
					&body,
				); err != nil || body.Size.String() != jsonNumber(len(whole)) ||
					string(body.Data) != test.want {
					t.Errorf("%v: %s", err, reduced.Body())
				}
				if bytes.Contains(reduced.Body(), []byte(`"datasize":"`)) {
					t.Error("the size is a text")
				}
				got, err := ParseStructured(reduced.Body())
				if diff := cmp.Diff(want, got.Attributes); err != nil || diff != "" {
					t.Errorf("%v, read back (-want +got):\n%s", err, diff)
				}
				if again, err := ParseStructured(got.AppendStructured(nil)); err != nil || !cmp.Equal(again, got) {
					t.Errorf("%v: %s", err, got.AppendStructured(nil))
				}
			})
		}
	}
	gap := encode(t, &Encoder{}, Event{Type: Gap, Resource: pods, GapInfo: &GapInfo{}})
	if _, err := Reduce(gap, Marks{}); err == nil {
		t.Error("a gap event was reduced")
	}
	broken := *gap
	broken.Type, broken.Data = Updated, []byte(`{"secret`)
	if _, err := Reduce(&broken, Marks{}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

// Names of members are compared as JSON says: to the letter, unescaped, the last of equal ones counts.
func TestMetadataOf(t *testing.T) {
	const want = `{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}}`
	for _, text := range []string{
		` {"kind":"A","Kind":"B","apiVersion":"v1","APIVersion":"v2","metadata":{"name":"a"},"Metadata":{"name":"b"},"METADATA":null}`,
		`{"apiVersion":"v0","apiVersion":"v1","\u006bind":"A", "metadata" : {"name":"a"} }`,
	} {
		if got, err := metadataOf([]byte(text)); err != nil || string(got) != want {
			t.Errorf("%s, %v", got, err)
		}
	}
	for _, text := range []string{``, `null`, `[]`, `{"secret`, `{"kind":"A"`, `{"secret":}`} {
		if got, err := metadataOf([]byte(text)); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

func jsonNumber(n int) string {
	text, _ := json.Marshal(n)
	return string(text)
}
