package event

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/object"
)

func TestStoredMessagesComeBack(t *testing.T) {
	key, err := ParseTemplate("{resource}/{name}", EscapeNone)
	if err != nil {
		t.Fatal(err)
	}
	e := &Encoder{Cluster: "prod", Content: ContentStructured, Payload: PayloadChange, PartitionKey: key}
	for _, ev := range []Event{
		{Type: Added, Resource: pods, Object: podAt(t, "17"), InitialList: true},
		{Type: Deleted, Resource: pods, Object: podAt(t, "17"), LeftAt: "18"},
		{Type: Restated, Resource: pods, Object: podAt(t, "17")},
		{Type: Updated, Resource: pods, Object: podAt(t, "17"), Context: &testContext},
		{Type: Gap, Resource: deployments, GapInfo: &GapInfo{Resource: "deployments.apps", From: "3", To: "9", Reason: ReasonRelist}},
	} {
		m := encode(t, e, ev)
		m.Epoch, m.History, m.Origin = "e1", "9", Origin{Source: "pods", Position: "16", Seq: 7}
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
		gap := RefusalGap(back, ReasonRefused, "", "")
		if back.Epoch != "e1" || back.History != "9" || gap.Epoch != "e1" || gap.History != "9" {
			t.Errorf("epoch %q, history %q, and %q, %q of a gap event in its place", back.Epoch, back.History, gap.Epoch,
				gap.History)
		}
		if want := (Origin{Source: "pods", Position: "16", Left: true}); back.Origin != want {
			t.Errorf("origin %+v", back.Origin)
		}
	}
}

// A gap in the place of a deletion that could not be sent names the object, so that a tombstone can follow it. It still
// does so when it was on disk.
func TestAStoredGapKeepsItsDeletion(t *testing.T) {
	key, err := ParseTemplate("{resource}/{name}", EscapeNone)
	if err != nil {
		t.Fatal(err)
	}
	deleted := encode(
		t,
		&Encoder{Cluster: "prod", PartitionKey: key},
		Event{Type: Deleted, Resource: pods, Object: podAt(t, "17")},
	)
	gap := RefusalGap(deleted, ReasonRefused, "no", "")
	data, err := gap.AppendStored(nil)
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseStored(data)
	if err != nil {
		t.Fatal(err)
	}
	got := back.GapInfo.Deletion
	if got == nil {
		t.Fatal("the gap does not name the deleted object any more")
	}
	if got.Type != Deleted || got.Key() != deleted.Key() || got.ID != deleted.ID || got.Resource != pods ||
		got.Subject() != deleted.Subject() {
		t.Errorf("the deletion came back as %s %s, key %s", got.Type, got.Subject(), got.Key())
	}
	if string(back.Body()) != string(gap.Body()) {
		t.Errorf("%s came back as %s", gap.Body(), back.Body())
	}
}

func FuzzParseStored(f *testing.F) {
	for _, m := range []*Message{{Type: Updated, ID: "u1.4", Data: []byte(`{}`)}, fullMessage()} {
		data, err := m.AppendStored(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(data[:7])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseStored(data)
		if err != nil {
			return
		}
		written, err := m.AppendStored(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseStored(written)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(m, again) {
			t.Errorf("%+v is read again as %+v", m, again)
		}
	})
}

// fullMessage is a message with a value in each field that is stored.
func fullMessage() *Message {
	at := time.Date(2026, 3, 4, 5, 6, 7, 89, time.UTC)
	id := object.Identity{Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "1", Manager: "kubectl"}
	m := &Message{
		Type: Deleted, Time: at, Read: at.Add(time.Second), Resource: deployments, Cluster: "prod", ClusterUID: "c-1",
		Identity: id.WithKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}), InitialList: true,
		FinalStateUnknown: true, LeftFilter: true, Epoch: "e", History: "9", Delivery: "again", IfFound: true, Final: true,
		Context: &testContext, ID: `u."1"`, PartitionKey: "key", Payload: PayloadChange, Data: []byte("{}"), Structured: true,
		GapInfo: &GapInfo{Resource: "deployments.apps", From: "1", To: "2", Reason: ReasonRefused},
		Origin:  Origin{Source: "deployments", Position: "9", Left: true},
	}
	d := &Message{Type: Deleted, ID: "u.deleted", Resource: pods, Data: []byte{}, Origin: Origin{Left: true}}
	d.Identity = d.Identity.WithKind(schema.GroupVersionKind{})
	m.GapInfo.Deletion = d
	return m
}

// TestAllFieldsAreStored: a field that is added to Message is stored, or it is one of the exceptions here.
func TestAllFieldsAreStored(t *testing.T) {
	m := fullMessage()
	for field, value := range reflect.ValueOf(*m).Fields() {
		if value.IsZero() && !slices.Contains([]string{"Marks", "ProgressInfo"}, field.Name) {
			t.Errorf("the field %s has no value", field.Name)
		}
	}
	data, err := m.AppendStored(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseStored(data)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(m, got) {
		t.Errorf("%+v, want %+v", got, m)
	}
	for length := range len(data) - len(m.Data) {
		if _, err := ParseStored(data[:length]); err == nil {
			t.Errorf("%d bytes of it are read", length)
		}
	}
}

// BenchmarkStored writes an event in its stored form and reads it back.
func BenchmarkStored(b *testing.B) {
	key, err := ParseTemplate("{resource}/{name}", EscapeNone)
	if err != nil {
		b.Fatal(err)
	}
	e := &Encoder{Cluster: "prod", PartitionKey: key}
	m := encode(b, e, Event{Type: Updated, Resource: pods, Object: podAt(b, "17"), Old: podAt(b, "16")})
	m.Origin = Origin{Source: "pods", Position: "16"}
	b.ReportAllocs()
	var data []byte
	for b.Loop() {
		if data, err = m.AppendStored(data[:0]); err != nil {
			b.Fatal(err)
		}
		if _, err := ParseStored(data); err != nil {
			b.Fatal(err)
		}
	}
}

// An event of a type that only a newer version knows can't be read, because it would be sent as something else.
func TestAStoredEventOfAnUnknownType(t *testing.T) {
	for _, name := range []string{"plain", `an escaped "name"`} {
		m := &Message{Type: lastType + 1, ID: "a.1"}
		m.Identity.Name = name
		stored, err := m.AppendStored(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseStored(stored); err == nil {
			t.Errorf("it is read as %s", got.Type.CloudEventsType())
		}
	}
}
