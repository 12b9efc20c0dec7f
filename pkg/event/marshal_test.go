package event

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	m := &Message{Type: Updated, ID: "u1.4", Data: []byte(`{}`)}
	data, err := m.AppendStored(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:7])
	for _, head := range []string{
		`{"t":2,"at":"2026-03-04T05:06:07.089Z","rd":"2026-03-04T05:06:08Z","c":"prod","cu":"c-1","i":true,"f":true,"l":true,` +
			`"ep":"e","h":"9","d":"again","if":true,"fi":true,"id":"u.1","pk":"key","pl":"change","s":true,"g":"apps","v":"v1",` +
			`"r":"deployments","av":"apps/v1","k":"Deployment","ns":"shop","n":"web","u":"u","rv":"1","m":"kubectl","src":"x","pos":"9"}`,
		`{"t":1,"at":"2026-03-04T05:06:07Z","id":"u.\u003c","r":"pods","x":{"n":"a=b"}}`,
	} {
		f.Add(append(binary.BigEndian.AppendUint32(nil, uint32(len(head))), head+"{}"...))
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
		head := written[4 : len(written)-len(m.Data)]
		byJSON, err := json.Marshal(m.stored())
		if err != nil {
			t.Fatal(err)
		}
		var want, read, found stored
		if err := errors.Join(json.Unmarshal(byJSON, &want), json.Unmarshal(head, &read)); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(read, want) {
			t.Errorf("written as %s, expected %s", head, byJSON)
		}
		if found.parse(head) && !reflect.DeepEqual(found, want) {
			t.Errorf("%s is read as\n%+v, expected\n%+v", head, found, want)
		}
	})
}

// TestAllFieldsAreStored: what is stored without encoding/json has all fields. A field that is added to Message must be
// added there, or to the exceptions here.
func TestAllFieldsAreStored(t *testing.T) {
	exceptions := []string{"x", "by", "gap", "del", "-"}
	var names func(reflect.Type)
	names = func(of reflect.Type) {
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case field.Anonymous:
				names(field.Type)
			case !field.IsExported() || slices.Contains(exceptions, name):
			case new(stored).field(name) == nil || !slices.Contains(storedNames[:], name):
				t.Errorf("the field %s is not stored", name)
			}
		}
	}
	names(reflect.TypeFor[stored]())
}

// TestStoredForm: what one version of the bridge leaves on disk is read by another one.
func TestStoredForm(t *testing.T) {
	const head = `{"t":3,"at":"2026-03-04T05:06:07Z","c":"prod","cu":"c-1","i":true,"f":true,"l":true,"x":{"n":"a=b"},` +
		`"id":"u.1","pk":"key","s":true,"gap":{"resource":"deployments.apps","from":"1","to":"2","reason":"refused"},` +
		`"g":"apps","v":"v1","r":"deployments","av":"apps/v1","k":"Deployment","ns":"shop","n":"web","u":"u","rv":"1","m":"kubectl",` +
		`"src":"deployments","pos":"9","del":{"t":3,"at":"0001-01-01T00:00:00Z","id":"u.deleted","r":"deployments"}}`
	m, err := ParseStored(append(binary.BigEndian.AppendUint32(nil, uint32(len(head))), head+"{}"...))
	if err != nil {
		t.Fatal(err)
	}
	if id := m.Identity; m.Type != Deleted || m.Cluster != "prod" || m.ClusterUID != "c-1" || !m.InitialList ||
		!m.FinalStateUnknown ||
		!m.LeftFilter ||
		!m.Structured ||
		m.ID != "u.1" ||
		m.PartitionKey != "key" ||
		m.Context.NamespaceLabels != "a=b" ||
		m.Resource.Group != "apps" ||
		m.Resource.Version != "v1" ||
		m.Resource.Resource != "deployments" ||
		id.APIVersion() != "apps/v1" ||
		id.Kind() != "Deployment" ||
		id.Namespace != "shop" ||
		id.Name != "web" ||
		id.UID != "u" ||
		id.ResourceVersion != "1" ||
		id.Manager != "kubectl" ||
		m.GapInfo.Deletion.ID != "u.deleted" ||
		string(m.Data) != "{}" {
		t.Errorf("%+v", m)
	}
	stored, err := m.AppendStored(nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(head+"{}", string(stored[4:])); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
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
