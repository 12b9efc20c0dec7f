package event

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/redact"
)

var (
	pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	secrets     = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	nodes       = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	seen        = time.Date(2026, 11, 20, 12, 0, 0, 123456789, time.UTC)
)

func mustObject(t testing.TB, raw string) *object.Object {
	t.Helper()
	o, err := object.New([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func podAt(t testing.TB, rv string) *object.Object {
	t.Helper()
	return mustObject(
		t,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0","namespace":"shop","uid":"u1","resourceVersion":"`+rv+
			`","managedFields":[{"manager":"kubelet","operation":"Update","time":"2026-11-20T10:00:00Z"}]},"spec":{"nodeName":"n1"}}`,
	)
}

func encode(t testing.TB, e *Encoder, ev Event) *Message {
	t.Helper()
	if ev.Time.IsZero() {
		ev.Time = seen
	}
	m, err := e.Encode(ev)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func attributes(m *Message) map[string]string { return maps.Collect(m.Attributes) }

func TestAttributesOfAChange(t *testing.T) {
	m := encode(
		t,
		&Encoder{Cluster: "prod"},
		Event{Type: Added, Resource: pods, Object: podAt(t, "17"), InitialList: true},
	)
	want := map[string]string{
		"specversion": "1.0", "id": "u1.17", "source": "/clusters/prod", "type": "dev.deltabridge.object.added",
		"subject": "pods/shop/web-0", "time": "2026-11-20T12:00:00.123456789Z", "datacontenttype": "application/json",
		"cluster": "prod", "operation": "added", "apiversion": "v1", "kind": "Pod", "resource": "pods", "namespace": "shop",
		"name": "web-0", "uid": "u1", "resourceversion": "17", "changedby": "kubelet", "initiallist": "true",
	}
	if diff := cmp.Diff(want, attributes(m)); diff != "" {
		t.Error(diff)
	}
	if got, want := string(
		m.Body(),
	), `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0","namespace":"shop","uid":"u1","resourceVersion":"17"},"spec":{"nodeName":"n1"}}`; got != want {
		t.Errorf("body %s", got)
	}
}

// Headers leave out only what the source, the type, the subject and the data repeat, and only of changes.
func TestHeaders(t *testing.T) {
	encoder := &Encoder{Cluster: "prod"}
	m := encode(t, encoder, Event{Type: Updated, Resource: deployments, Object: podAt(t, "17")})
	want := attributes(m)
	for _, name := range []string{
		"cluster", "operation", "apiversion", "kind", "resource", "namespace", "name",
	} {
		if want[name] == "" {
			t.Errorf("there is no %s to leave out", name)
		}
		delete(want, name)
	}
	if diff := cmp.Diff(want, maps.Collect(m.Headers)); diff != "" {
		t.Error(diff)
	}
	r := Received{Attributes: maps.Collect(m.Headers)}
	if namespace, name := r.Object(); namespace != "shop" || name != "web-0" || r.Resource() != "deployments.apps" {
		t.Errorf("%s of %q/%q", r.Resource(), namespace, name)
	}
	gap := encode(t, encoder, Event{Type: Gap, Resource: deployments, GapInfo: &GapInfo{Resource: "deployments.apps"}})
	if diff := cmp.Diff(attributes(gap), maps.Collect(gap.Headers)); diff != "" {
		t.Errorf("a gap event: %s", diff)
	}
}

func TestIDs(t *testing.T) {
	resyncedSince := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	gone := podAt(t, "18")
	unseen := *gone
	unseen.FinalStateUnknown = true
	tests := []struct {
		name string
		ev   Event
		id   string
		set  map[string]string // attributes that matter here
	}{
		{"a state", Event{Type: Updated, Resource: pods, Object: podAt(t, "17")}, "u1.17", nil},
		{
			"a deletion",
			Event{Type: Deleted, Resource: pods, Object: gone},
			"u1.deleted",
			map[string]string{"resourceversion": "18"},
		},
		{
			"a deletion that was not seen",
			Event{Type: Deleted, Resource: pods, Object: &unseen},
			"u1.deleted",
			map[string]string{"finalstateunknown": "true"},
		},
		{
			"a deletion that may be a leave",
			Event{Type: Deleted, Resource: pods, Object: gone, Selected: true},
			"u1.18.deleted",
			nil,
		},
		{
			"a leave",
			Event{Type: Deleted, Resource: pods, Object: podAt(t, "17"), LeftAt: "18"},
			"u1.18.left",
			map[string]string{"leftfilter": "true", "resourceversion": "18", "operation": "deleted"},
		},
		{
			"a gap",
			Event{
				Type:     Gap,
				Resource: deployments,
				GapInfo:  &GapInfo{Resource: "deployments.apps", From: "3", To: "9", Reason: ReasonRelist},
			},
			"gap.prod.deployments.apps.relist.3.9",
			map[string]string{"type": "dev.deltabridge.gap", "subject": "deployments.apps", "apiversion": "apps/v1"},
		},
		{
			"the end of the initial list",
			Event{Type: Synced, Resource: nodes, SyncedInfo: &SyncedInfo{Resource: "nodes", ResourceVersion: "9", Objects: 2}},
			"synced.prod.nodes.9",
			map[string]string{"type": "dev.deltabridge.synced", "resourceversion": "9"},
		},
		{
			"the end of the initial list of a namespace",
			Event{
				Type:       Synced,
				Resource:   pods,
				SyncedInfo: &SyncedInfo{Resource: "pods", Namespace: "shop", ResourceVersion: "9", Objects: 2},
			},
			"synced.prod.pods/shop.9",
			map[string]string{"type": "dev.deltabridge.synced", "subject": "pods", "resourceversion": "9"},
		},
		{
			"a state told again",
			Event{Type: Restated, Resource: pods, Object: podAt(t, "17")},
			"u1.17",
			map[string]string{"type": "dev.deltabridge.object.restated", "operation": "restated"},
		},
		{
			"the end of a resync",
			Event{
				Type:       Synced,
				Resource:   nodes,
				SyncedInfo: &SyncedInfo{Resource: "nodes", ResourceVersion: "9", Objects: 2, Resync: true, Since: &resyncedSince},
			},
			"synced.prod.nodes.9.2026-11-20T12:00:00Z",
			map[string]string{"type": "dev.deltabridge.synced", "resourceversion": "9"},
		},
		{
			"progress",
			Event{
				Type:         Progress,
				Time:         resyncedSince,
				Resource:     deployments,
				ProgressInfo: &ProgressInfo{Resource: "deployments.apps", ResourceVersion: "9", AsOf: resyncedSince},
			},
			"progress.prod.deployments.apps.9.2026-11-20T12:00:00Z",
			map[string]string{"type": "dev.deltabridge.progress", "subject": "deployments.apps", "resourceversion": "9"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := encode(t, &Encoder{Cluster: "prod"}, tt.ev)
			if m.ID != tt.id {
				t.Errorf("id %q, want %q", m.ID, tt.id)
			}
			got := attributes(m)
			for name, want := range tt.set {
				if got[name] != want {
					t.Errorf("%s = %q, want %q", name, got[name], want)
				}
			}
		})
	}
}

func TestStructuredIsTheSameEvent(t *testing.T) {
	o := mustObject(
		t,
		`{"kind":"Role","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"system:\"odd\"\u2028é","uid":"u2","resourceVersion":"5"}}`,
	)
	e := &Encoder{Cluster: "prod", Content: ContentStructured}
	m := encode(t, e, Event{Type: Added, Resource: pods, Object: o, InitialList: true})
	var doc map[string]any
	if err := json.Unmarshal(m.Body(), &doc); err != nil {
		t.Fatalf("%v in %s", err, m.Body())
	}
	for name, value := range attributes(m) {
		want := any(value)
		if name == "initiallist" {
			want = true
		}
		if doc[name] != want {
			t.Errorf("%s = %v, want %v", name, doc[name], want)
		}
	}
	data, _ := json.Marshal(doc["data"])
	var want any
	if err := json.Unmarshal(o.Raw, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, doc["data"]); diff != "" {
		t.Errorf("%s\n%s", data, diff)
	}
	if !strings.HasPrefix(m.ContentType(), "application/cloudevents+json") {
		t.Error(m.ContentType())
	}
}

func TestMetadataPayload(t *testing.T) {
	m := encode(t, &Encoder{Payload: PayloadMetadata}, Event{Type: Updated, Resource: pods, Object: podAt(t, "17")})
	want := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"shop","uid":"u1","resourceVersion":"17"}}`
	if string(m.Data) != want {
		t.Errorf("got %s", m.Data)
	}
}

func TestSecretsStayInside(t *testing.T) {
	const raw = `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"db","namespace":"shop","uid":"u3","resourceVersion":"5","annotations":{` +
		`"kubectl.kubernetes.io/last-applied-configuration":"{\"data\":{\"password\":\"aHVudGVyMg==\"}}","team":"shop"}},` +
		`"data":{"password":"aHVudGVyMg==","user":"YWRtaW4="},"stringData":{"token":"hunter2"},"type":"Opaque"}`
	o := mustObject(t, raw)
	e := &Encoder{Redactor: redact.New([]byte("0123456789abcdef0123456789abcdef"))}
	m := encode(t, e, Event{Type: Added, Resource: secrets, Object: o})
	for _, value := range []string{"aHVudGVyMg==", "YWRtaW4=", "hunter2"} {
		if strings.Contains(string(m.Body()), value) {
			t.Errorf("%q is in %s", value, m.Body())
		}
	}
	var doc struct {
		Metadata struct{ Annotations map[string]string }
		Data     map[string]string
		Type     string
	}
	if err := json.Unmarshal(m.Data, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Type != "Opaque" || doc.Metadata.Annotations["team"] != "shop" ||
		!strings.HasPrefix(doc.Data["password"], "hmac-sha256:") {
		t.Errorf("%s", m.Data)
	}
	if doc.Data["password"] == doc.Data["user"] {
		t.Error("different values have one fingerprint")
	}
	again := encode(t, e, Event{Type: Updated, Resource: secrets, Object: o})
	if string(again.Data) != string(m.Data) {
		t.Error("equal values have different fingerprints")
	}
	other := encode(
		t,
		&Encoder{Redactor: redact.New([]byte("another key of thirty-two bytes!"))},
		Event{Type: Added, Resource: secrets, Object: o},
	)
	if string(other.Data) == string(m.Data) {
		t.Error("another key gives the same fingerprints")
	}
	plain := encode(t, &Encoder{}, Event{Type: Added, Resource: secrets, Object: o})
	if string(plain.Data) != raw {
		t.Errorf("in clear: %s", plain.Data)
	}
}

func TestASecretOfAnyFormStaysInside(t *testing.T) {
	for _, data := range []string{`"hunter2"`, `["hunter2"]`, `{"a":{"b":["hunter2",{"c":"hunter2"}]}}`, `{"a" "hunter2"}`, `hunter2`} {
		o := mustObject(
			t,
			`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"db","uid":"u3","resourceVersion":"5"},"data":`+data+`}`,
		)
		m, err := (&Encoder{Redactor: redact.New(make([]byte, 32))}).Encode(Event{Type: Added, Resource: secrets, Object: o})
		if err != nil || strings.Contains(string(m.Body()), "hunter2") ||
			!strings.Contains(string(m.Body()), "hmac-sha256:") {
			t.Errorf("%s: %s, %v", data, m.Body(), err)
		}
	}
	o := mustObject(
		t,
		`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"db","uid":"u3","resourceVersion":"5"},"data":{}}`,
	)
	o.Raw = []byte(`{"data":{"a":"hunter2"}`)
	_, err := (&Encoder{Redactor: redact.New(make([]byte, 32))}).Encode(Event{Type: Added, Resource: secrets, Object: o})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("err = %v", err)
	}
}

func TestMerge(t *testing.T) {
	e := &Encoder{}
	added := encode(t, e, Event{Type: Added, Resource: pods, Object: podAt(t, "1"), InitialList: true})
	updated := encode(t, e, Event{Type: Updated, Resource: pods, Object: podAt(t, "2")})
	deleted := encode(t, e, Event{Type: Deleted, Resource: pods, Object: podAt(t, "3")})
	left := encode(t, e, Event{Type: Deleted, Resource: pods, Object: podAt(t, "2"), LeftAt: "3"})

	m := Merge(added, updated)
	if m.Type != Added || !m.InitialList || m.ID != "u1.2" || string(m.Data) != string(updated.Data) {
		t.Errorf("added + updated: %+v", m)
	}
	if updated.Type != Updated {
		t.Error("Merge changed its argument")
	}
	for name, pair := range map[string][2]*Message{
		"updated + deleted": {updated, deleted}, "added + deleted": {added, deleted}, "updated + left": {updated, left},
		"left + added": {left, added}, "updated + updated": {updated, updated},
	} {
		if got := Merge(pair[0], pair[1]); got != pair[1] {
			t.Errorf("%s: %+v", name, got)
		}
	}
	ifFound := encode(t, e, Event{Type: Deleted, Resource: pods, Object: podAt(t, "3"), LeftAt: "3", IfFound: true})
	if got := Merge(left, ifFound); got.IfFound || got.ID != ifFound.ID || !ifFound.IfFound {
		t.Errorf("left + left if found: %+v", got)
	}
	if got := Merge(ifFound, ifFound); !got.IfFound {
		t.Errorf("left if found, twice: %+v", got)
	}
	if Mergeable(&Message{Type: Gap}) || !Mergeable(deleted) || !Mergeable(&Message{Type: Restated}) {
		t.Error("Mergeable")
	}
}

// A restatement takes no change away, and no deletion.
func TestMergeRestated(t *testing.T) {
	later := time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC)
	e := &Encoder{Payload: PayloadMetadata}
	before, now := &Context{NamespaceLabels: "at=before"}, &Context{NamespaceLabels: "at=now"}
	states := map[string]*Message{
		"added": encode(t, e,
			Event{Type: Added, Resource: pods, Object: podAt(t, "1"), InitialList: true, Context: before}),
		"updated": encode(t, e,
			Event{Type: Updated, Resource: pods, Object: podAt(t, "2"), Old: podAt(t, "1"), Context: before}),
		"restated": encode(t, e,
			Event{Type: Restated, Resource: pods, Object: podAt(t, "2"), Time: later, Context: now}),
		"restated at3": encode(t, e,
			Event{Type: Restated, Resource: pods, Object: podAt(t, "3"), Time: later, Context: now}),
		"deleted": encode(t, e, Event{Type: Deleted, Resource: pods, Object: podAt(t, "3"), Context: now}),
		"updated at3": encode(t, e,
			Event{Type: Updated, Resource: pods, Object: podAt(t, "3"), Old: podAt(t, "2"), Context: now}),
	}
	for _, tt := range []struct {
		older, newer   string
		want           Type
		id, time, data string
	}{
		{"added", "restated", Added, "u1.2", "restated", "restated"},
		{"added", "restated at3", Added, "u1.3", "restated", "restated at3"},
		{"updated", "restated", Updated, "u1.2", "restated", "updated"}, // the same state: the data of the change stays
		{"updated", "restated at3", Updated, "u1.3", "restated", "restated at3"},
		{"restated", "updated at3", Updated, "u1.3", "updated at3", "updated at3"},
		{"restated", "deleted", Deleted, "u1.deleted", "deleted", "deleted"},
		{"restated", "restated at3", Restated, "u1.3", "restated at3", "restated at3"},
	} {
		got := Merge(states[tt.older], states[tt.newer])
		var data struct {
			Metadata struct{ ResourceVersion string }
		}
		if err := json.Unmarshal(got.Data, &data); err != nil {
			t.Fatal(err)
		}
		if got.Type != tt.want || got.ID != tt.id || string(got.Data) != string(states[tt.data].Data) ||
			attributes(got)["time"] != attributes(states[tt.time])["time"] {
			t.Errorf("%s + %s: %s %s, data %s", tt.older, tt.newer, got.Type, got.ID, got.Data)
		}
		if got.Type != Deleted && data.Metadata.ResourceVersion != got.Identity.ResourceVersion {
			t.Errorf("%s + %s is at %s and tells %s", tt.older, tt.newer, got.Identity.ResourceVersion, got.Data)
		}
	}
}

// foldInto adds a dropped message to the gap event that takes it, or to a new one.
func foldInto(gaps []*Message, dropped *Message) []*Message {
	for i, g := range gaps {
		if folded, ok := FoldGap(g, dropped); ok {
			gaps[i] = folded
			return gaps
		}
	}
	folded, _ := FoldGap(nil, dropped)
	return append(gaps, folded)
}

func TestFoldGap(t *testing.T) {
	e := &Encoder{Cluster: "c"}
	var gaps []*Message
	for _, rv := range []string{"4", "5", "6"} {
		gaps = foldInto(gaps, encode(t, e, Event{Type: Updated, Resource: pods, Object: podAt(t, rv)}))
	}
	gaps = foldInto(
		gaps,
		encode(
			t,
			e,
			Event{
				Type:     Gap,
				Resource: deployments,
				GapInfo:  &GapInfo{Resource: "deployments.apps", From: "1", To: "3", Reason: ReasonRelist},
			},
		),
	)
	if len(gaps) != 2 {
		t.Fatalf("%d gaps", len(gaps))
	}
	want := GapInfo{Resource: "pods", From: "4", To: "6", Reason: ReasonOverflow, Events: 3}
	got := *gaps[0].GapInfo
	got.Message = ""
	if got != want || gaps[0].Type != Gap || gaps[0].ID != "gap.c.pods.overflow.4.6" {
		t.Errorf("%+v %s", got, gaps[0].ID)
	}
	if g := gaps[1].GapInfo; g.From != "1" || g.To != "3" || g.Resource != "deployments.apps" {
		t.Errorf("a dropped gap became %+v", g)
	}
	for _, to := range []string{"7", "9"} { // what a list announces is not counted: it stays a gap of its own
		gaps = foldInto(
			gaps,
			encode(
				t,
				e,
				Event{Type: Gap, Resource: pods, GapInfo: &GapInfo{Resource: "pods", From: "6", To: to, Reason: ReasonRelist}},
			),
		)
	}
	if len(gaps) != 3 || gaps[0].GapInfo.Events != 3 || gaps[0].GapInfo.To != "6" ||
		gaps[2].ID != "gap.c.pods.relist.6.9" {
		t.Errorf("%d gaps, %+v", len(gaps), gaps[len(gaps)-1].GapInfo)
	}
	var data GapInfo
	if err := json.Unmarshal(gaps[0].Data, &data); err != nil || data != *gaps[0].GapInfo {
		t.Errorf("data %s: %v", gaps[0].Data, err)
	}
}

func TestRefusalGap(t *testing.T) {
	m := encode(
		t,
		&Encoder{Cluster: "c", Content: ContentStructured},
		Event{Type: Updated, Resource: pods, Object: podAt(t, "4")},
	)
	m.PartitionKey = "pods/shop/web-0"
	gap := RefusalGap(m, ReasonOversize, "1.2 MB, the stream takes 1 MB", "file x")
	want := GapInfo{
		Resource: "pods", From: "4", To: "4", Reason: ReasonOversize, Message: "1.2 MB, the stream takes 1 MB", Events: 1,
		Event: "u1.4", Subject: "pods/shop/web-0", Operation: "updated", DeadLetter: "file x",
	}
	if diff := cmp.Diff(want, *gap.GapInfo); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if gap.ID != "u1.4.gap" || gap.Type != Gap || !gap.Structured || gap.PartitionKey != "c/pods/_gap" ||
		gap.GapInfo.Reason != ReasonOversize {
		t.Errorf("%+v", gap)
	}
}

// Two clusters, one restored from a copy of the other, write to one destination: nothing of one can be taken for the
// other's.
func TestClustersInOnePlace(t *testing.T) {
	key, err := ParseTemplate("{cluster}/{group}/{resource}/{namespace}/{name}", EscapeNone)
	if err != nil {
		t.Fatal(err)
	}
	made := func(cluster, uid string) (all []*Message) {
		e := &Encoder{Cluster: cluster, PartitionKey: key}
		for _, ev := range []Event{
			{Type: Added, Object: podAt(t, "4")},
			{Type: Restated, Object: podAt(t, "4")},
			{Type: Deleted, Object: podAt(t, "5")},
			{Type: Gap, GapInfo: &GapInfo{Resource: "pods", From: "1", To: "2"}},
			{Type: Synced, SyncedInfo: &SyncedInfo{Resource: "pods", ResourceVersion: "2"}},
		} {
			ev.Resource = pods
			m := encode(t, e, ev)
			m.ClusterUID = uid
			all = append(all, m)
		}
		all = append(all, RefusalGap(all[0], ReasonOversize, "too large", ""))
		return append(all, foldInto(nil, all[0])...)
	}
	one, other := made("prod", "k1"), made("copy", "k2")
	for i, m := range one {
		o := other[i]
		if m.UniqueID() == o.UniqueID() || m.UniqueID() != "prod/"+m.ID {
			t.Errorf("%v: unique ids %q and %q", m.Type, m.UniqueID(), o.UniqueID())
		}
		if m.PartitionKey == o.PartitionKey {
			t.Errorf("%v: both have the key %q", m.Type, m.PartitionKey)
		}
		if m.ClusterUID != "k1" || o.ClusterUID != "k2" {
			t.Errorf("%v: cluster uids %q and %q", m.Type, m.ClusterUID, o.ClusterUID)
		}
		stored, err := m.AppendStored(nil)
		if err != nil {
			t.Fatal(err)
		}
		read, err := ParseStored(stored)
		if err != nil || read.UniqueID() != m.UniqueID() || read.ClusterUID != "k1" {
			t.Errorf("%v from the disk: %q of %q, %v", m.Type, read.UniqueID(), read.ClusterUID, err)
		}
	}
	if id := one[5].UniqueID(); id != "prod/u1.4.gap" {
		t.Errorf("a message that was made of another one has the unique id %q", id)
	}
	for name := range (&Message{Type: Added, Cluster: "prod"}).Attributes {
		if name == "clusteruid" {
			t.Error("an unknown uid has an attribute")
		}
	}
}

func TestKeysFollowTheName(t *testing.T) {
	e := &Encoder{}
	first := encode(t, e, Event{Type: Deleted, Resource: pods, Object: podAt(t, "4")})
	recreated := mustObject(
		t,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0","namespace":"shop","uid":"other","resourceVersion":"5"}}`,
	)
	if second := encode(t, e, Event{Type: Added, Resource: pods, Object: recreated}); first.Key() != second.Key() {
		t.Error("a re-created object could overtake its deletion")
	}
	if first.Size() < int64(len(first.Data)) {
		t.Error("size does not cover the data")
	}
}

func TestTimeIsRFC3339(t *testing.T) {
	for _, at := range []time.Time{
		time.Unix(0, 0), time.Unix(1, 1), time.Unix(1, 999_999_999), time.Unix(1, 100_000_000), time.Unix(1, 120_300), time.Unix(0, 50),
		time.Unix(-1, 5), time.Date(2026, 11, 20, 23, 59, 59, 1e6, time.FixedZone("", 3600)), time.Date(2026, 11, 20, 22, 59, 59, 2e6, time.UTC),
	} {
		m := encode(
			t,
			&Encoder{},
			Event{Type: Added, Time: at, Resource: pods, Object: mustObject(t, `{"kind":"Pod","metadata":{"name":"a"}}`)},
		)
		if got, want := attributes(m)["time"], at.UTC().Format(time.RFC3339Nano); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
