package event

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStoredMessagesComeBack(t *testing.T) {
	key, err := ParseTemplate("{resource}/{name}", EscapeNone)
	if err != nil {
		t.Fatal(err)
	}
	e := &Encoder{Cluster: "prod", Content: ContentStructured, PartitionKey: key}
	for _, ev := range []Event{
		{Type: Added, Resource: pods, Object: podAt(t, "17"), InitialList: true},
		{Type: Deleted, Resource: pods, Object: podAt(t, "17"), LeftAt: "18"},
		{Type: Restated, Resource: pods, Object: podAt(t, "17")},
		{Type: Updated, Resource: pods, Object: podAt(t, "17"), Context: &testContext},
		{Type: Gap, Resource: deployments, GapInfo: &GapInfo{Resource: "deployments.apps", From: "3", To: "9", Reason: ReasonRelist}},
	} {
		m := encode(t, e, ev)
		m.Origin = Origin{Source: "pods", Position: "16", Seq: 7}
		data, err := m.AppendStored([]byte("before"))
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseStored(data[len("before"):])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(maps.Collect(m.Attributes), maps.Collect(back.Attributes)); diff != "" {
			t.Error(diff)
		}
		if string(m.Body()) != string(back.Body()) || m.Key() != back.Key() || back.Structured != m.Structured {
			t.Errorf("%s came back as %s", m.Body(), back.Body())
		}
		if diff := cmp.Diff(m.GapInfo, back.GapInfo); diff != "" {
			t.Error(diff)
		}
		if want := (Origin{Source: "pods", Position: "16"}); back.Origin != want {
			t.Errorf("origin %+v", back.Origin)
		}
	}
}

func FuzzParseStored(f *testing.F) {
	m := &Message{Type: Updated, ID: "u1.4", Data: []byte(`{}`)}
	data, err := m.AppendStored(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:7])
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := ParseStored(data); err == nil {
			if _, err := m.AppendStored(nil); err != nil {
				t.Error(err)
			}
		}
	})
}
