package event

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is read back of either content mode is what was sent, and has one JSON form.
func TestReceived(t *testing.T) {
	o := podAt(t, "4")
	o.Manager = "caf\u00e9 \"x\""
	m := encode(
		t,
		&Encoder{Cluster: "c", Content: ContentStructured},
		Event{Type: Updated, Resource: deployments, Object: o, InitialList: true},
	)
	structured, err := ParseStructured(m.Body())
	if err != nil {
		t.Fatal(err)
	}
	binary := Received{Attributes: maps.Collect(m.Attributes), Data: m.Data}
	if diff := cmp.Diff(binary, structured); diff != "" {
		t.Errorf("(-binary +structured):\n%s", diff)
	}
	if binary.Type() != Updated || binary.Resource() != "deployments.apps" {
		t.Errorf("%v of %s", binary.Type(), binary.Resource())
	}
	var want, got any
	if err := json.Unmarshal(m.Body(), &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(binary.AppendStructured(nil), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-sent +written):\n%s", diff)
	}
	foreign := Received{Attributes: map[string]string{"type": "other"}, Data: []byte("no JSON")}
	if text := string(foreign.AppendStructured(nil)); foreign.Type() != 0 || text != `{"type":"other","data":null}` {
		t.Errorf("%v, %s", foreign.Type(), text)
	}
	for _, bad := range []string{"", "[]", `{"id":"\ud8"}`} {
		if _, err := ParseStructured([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
