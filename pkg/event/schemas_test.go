package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/docs/schemas"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/redact"
)

func unmarshal(t testing.TB, text []byte) any {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return document
}

// payloadSchema compiles a schema. A closed one also refuses members that it does not name, but those of the object
// itself.
func payloadSchema(t testing.TB, name string, closed bool) *jsonschema.Schema {
	t.Helper()
	text, ok := schemas.Get(name)
	if !ok {
		t.Fatalf("there is no schema %q", name)
	}
	document := unmarshal(t, []byte(text))
	if root := document.(map[string]any); closed && name != "object" && name != "audit" {
		root["additionalProperties"] = false
		defs, _ := root["$defs"].(map[string]any)
		for _, def := range []string{
			"change", "debezium", "debeziumSource", "gap", "synced", "patchOperation", "manager", "metadata",
		} {
			if d, ok := defs[def].(map[string]any); ok {
				d["additionalProperties"] = false
			}
		}
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource(name, document); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile(name)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// structured is the event as one JSON object, whatever its content mode.
func structured(m *Message) []byte { return m.AppendStructured(nil) }

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1beta1", Resource: "widgets"}

// schemaStates are two states of each of several objects.
func schemaStates(t testing.TB) map[schema.GroupVersionResource][2]*object.Object {
	t.Helper()
	secret := func(rv, value string) *object.Object {
		return mustObject(
			t,
			`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"db","namespace":"shop","uid":"u3","resourceVersion":"`+rv+
				`","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}},"data":{"password":"`+value+`"},"type":"Opaque"}`,
		)
	}
	widget := func(rv, rest string) *object.Object {
		return withManagers(
			t,
			`{"apiVersion":"example.com/v1beta1","kind":"Widget","metadata":{"name":"w","namespace":"shop","uid":"u4","resourceVersion":"`+rv+`","generation":3,`+
				`"creationTimestamp":"2026-11-20T12:25:53Z","deletionTimestamp":"2026-11-20T12:26:53Z","deletionGracePeriodSeconds":0,"finalizers":["example.com/hold"],`+
				`"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n1","uid":"u5","controller":true}],"labels":{"a.io/b~c":"","\u00e9":"\u65e5"},`+
				`"managedFields":[{"manager":"ci","operation":"Update","subresource":"status","time":"2026-11-20T10:00:00Z","fieldsV1":{"f:spec":{"f:list":{}}}}]},`+rest+`}`,
		)
	}
	return map[schema.GroupVersionResource][2]*object.Object{
		deployments: {withManagers(t, deploymentBefore), withManagers(t, deploymentAfter)},
		secrets:     {secret("4", "b2xk"), secret("5", "bmV3")},
		nodes: {
			mustObject(t, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u","resourceVersion":"1"}}`),
			mustObject(t, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u","resourceVersion":"2"}}`),
		},
		widgets: {
			widget("8", `"spec":{"list":[null,1e400,{"x":"\u2028<&>"}],"a~/b":{}},"":null`),
			widget("9", `"spec":{"list":[{"x":"y"},9007199254740993,[]],"A/~":[]}`),
		},
	}
}

// schemaEvents are events of each type with all that they can have.
func schemaEvents(t testing.TB) (all []Event) {
	t.Helper()
	for resource, state := range schemaStates(t) {
		old, o := state[0], state[1]
		unseen := *o
		unseen.FinalStateUnknown = true
		for _, ev := range []Event{
			{Type: Added, Object: o},
			{Type: Added, Object: o, InitialList: true},
			{Type: Updated, Object: o, Old: old},
			{Type: Updated, Object: o, Old: old.Released(noBytes{})},
			{Type: Updated, Object: o},
			{Type: Restated, Object: o},
			{Type: Updated, Object: o, Old: old, Context: &testContext},
			{Type: Deleted, Object: o, Context: &Context{}},
			{Type: Deleted, Object: o},
			{Type: Deleted, Object: &unseen},
			{Type: Deleted, Object: o, Selected: true},
			{Type: Deleted, Object: o, LeftAt: "99"},
			{Type: Gap, GapInfo: &GapInfo{Resource: GroupResource(resource), From: "7", To: "19", Reason: ReasonRelist, Message: "too old"}},
			{Type: Gap, GapInfo: &GapInfo{Resource: GroupResource(resource), From: "7", To: "9", Reason: ReasonOverflow, Events: 12}},
			{Type: Gap, GapInfo: &GapInfo{Resource: GroupResource(resource), Reason: ReasonRefused}},
			{Type: Synced, SyncedInfo: &SyncedInfo{Resource: GroupResource(resource), ResourceVersion: "100"}},
			{Type: Synced, SyncedInfo: &SyncedInfo{Resource: GroupResource(resource), ResourceVersion: "100", Objects: 3}},
			{Type: Synced, SyncedInfo: &SyncedInfo{Resource: GroupResource(resource), Namespace: "shop", ResourceVersion: "100", Objects: 3}},
			{Type: Synced, SyncedInfo: &SyncedInfo{Resource: GroupResource(resource), ResourceVersion: "100", Objects: 3, Resync: true, Since: &seen}},
			{Type: Progress, ProgressInfo: &ProgressInfo{Resource: GroupResource(resource), ResourceVersion: "100", AsOf: seen}},
		} {
			ev.Resource = resource
			all = append(all, ev)
		}
	}
	for _, info := range testAuditInfos() {
		all = append(all, Event{Type: Audit, Audit: &info})
	}
	return all
}

// dataSchema is the name of the schema of a message's data.
func dataSchema(typ Type, payload Payload) string {
	if typ.IsControl() || typ == Audit {
		return typ.String()
	}
	return string(payload)
}

// checkDataSchema: the attribute dataschema names the schema, except that of the object, which Kubernetes defines.
func checkDataSchema(t *testing.T, m *Message, name string) {
	t.Helper()
	want := ""
	if name != "object" {
		text, _ := schemas.Get(name)
		want = unmarshal(t, []byte(text)).(map[string]any)["$id"].(string)
	}
	if got := attributes(m)["dataschema"]; got != want {
		t.Errorf("%s with the schema %q has the dataschema %q", m.ID, name, got)
	}
}

// Whatever is encoded is valid, and has no member that its schema does not name.
func TestWhatIsEncodedIsValid(t *testing.T) {
	compiled := map[string]*jsonschema.Schema{}
	for _, name := range schemas.Names() {
		compiled[name] = payloadSchema(t, name, true)
	}
	checked := map[string]bool{} // many documents are the same
	check := func(name string, document []byte) {
		t.Helper()
		known := name + string(document)
		if checked[known] {
			return
		}
		checked[known] = true
		if err := compiled[name].Validate(unmarshal(t, document)); err != nil {
			t.Errorf("%s: %v\n%s", name, err, document)
		}
	}
	key, err := ParseTemplate("{resource}/{namespace}/{name}", EscapeNone)
	if err != nil {
		t.Fatal(err)
	}
	attributesSeen, gaps := map[string]bool{"data": true}, 0
	for _, payload := range []Payload{PayloadObject, PayloadChange, PayloadMetadata, PayloadDebezium} {
		for _, content := range []Content{ContentBinary, ContentStructured} {
			for _, template := range []*Template{nil, key} {
				e := &Encoder{
					Cluster:      "prod",
					Payload:      payload,
					Content:      content,
					PartitionKey: template,
					Redactor:     redact.New(make([]byte, 32)),
				}
				for _, ev := range schemaEvents(t) {
					m := encode(t, e, ev)
					m.ClusterUID = "k1"
					check(dataSchema(ev.Type, payload), m.Data)
					checkDataSchema(t, m, dataSchema(ev.Type, payload))
					check("cloudevent", structured(m))
					if content == ContentStructured && !bytes.Equal(m.Body(), structured(m)) {
						t.Errorf("the body is %s", m.Body())
					}
					m.Attributes(func(name, _ string) bool { attributesSeen[name] = true; return true })
					if ev.Type == Progress {
						for _, p := range []*Position{{Topic: "t", Offsets: map[int]int64{0: 0, 11: 7}}, {Stream: "S", Sequence: 1}} {
							check("progress", Apart(m, p).Data)
							check("cloudevent", structured(Apart(m, p)))
						}
					}
					if ev.Type.IsControl() {
						continue
					}
					// What queues and sinks make of it.
					marks := Marks{
						Omitted: ReasonOversize,
						Size:    int64(len(m.Data)),
						Ref:     "nats-object://claims/u.1",
						Digest:  "sha256:" + strings.Repeat("0a", 32),
						Refused: ReasonRefused,
						Cause:   "c",
					}
					if reduced, err := Reduce(m, marks); err == nil {
						name := dataSchema(ev.Type, payload)
						if payload == PayloadObject && ev.Type != Audit {
							name = "metadata"
						}
						check(name, reduced.Data)
						checkDataSchema(t, reduced, name)
						check("cloudevent", structured(reduced))
						reduced.Attributes(func(name, _ string) bool { attributesSeen[name] = true; return true })
					}
					for _, gap := range append(foldInto(nil, m), RefusalGap(m, ReasonOversize, "too large", "a file")) {
						for _, gap := range []*Message{
							gap, Apart(gap, nil), Apart(gap, &Position{Topic: "t", Offsets: map[int]int64{0: 0, 11: 7}}),
							Apart(gap, &Position{Stream: "S", Sequence: 1}),
						} {
							check("gap", gap.Data)
							check("cloudevent", structured(gap))
							gaps++
						}
					}
				}
			}
		}
	}
	var root struct{ Properties map[string]any }
	text, _ := schemas.Get("cloudevent")
	if err := json.Unmarshal([]byte(text), &root); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(
		slices.Sorted(maps.Keys(attributesSeen)),
		slices.Sorted(maps.Keys(root.Properties)),
	); diff != "" ||
		gaps == 0 {
		t.Errorf("attributes (-code +schema):\n%s", diff)
	}
}

// The schemas know the reasons of gaps that the code has.
func TestSchemaReasons(t *testing.T) {
	compiled := payloadSchema(t, "gap", false)
	for _, reason := range []string{ReasonRelist, ReasonOverflow, ReasonOversize, ReasonRefused, ReasonDamaged} {
		info, err := json.Marshal(GapInfo{Resource: "pods", Reason: reason})
		if err != nil {
			t.Fatal(err)
		}
		if err := compiled.Validate(unmarshal(t, info)); err != nil {
			t.Error(err)
		}
	}
}

// Documents that are not what the bridge sends are refused.
func TestSchemasRefuse(t *testing.T) {
	e := &Encoder{Cluster: "prod", Payload: PayloadChange}
	states := schemaStates(t)[deployments]
	update := encode(t, e, Event{Type: Updated, Resource: deployments, Object: states[1], Old: states[0]})
	gap := encode(
		t,
		e,
		Event{
			Type:     Gap,
			Resource: deployments,
			GapInfo: &GapInfo{
				Resource: "deployments.apps",
				From:     "7",
				To:       "9",
				Reason:   ReasonOverflow,
				Events:   2,
				Message:  "full",
			},
		},
	)
	synced := encode(
		t,
		e,
		Event{
			Type:       Synced,
			Resource:   deployments,
			SyncedInfo: &SyncedInfo{Resource: "deployments.apps", ResourceVersion: "9", Objects: 1},
		},
	)
	metadata := encode(
		t,
		&Encoder{Cluster: "prod", Payload: PayloadMetadata},
		Event{Type: Added, Resource: deployments, Object: states[1]},
	)
	unseen := *states[1]
	unseen.FinalStateUnknown = true
	deleted := encode(t, e, Event{Type: Deleted, Resource: deployments, Object: &unseen})

	progress := encode(t, e, Event{Type: Progress, Resource: deployments, ProgressInfo: &ProgressInfo{
		Resource: "deployments.apps", ResourceVersion: "9", AsOf: seen,
	}})

	debezium := &Encoder{Cluster: "prod", Payload: PayloadDebezium}
	row := encode(t, debezium, Event{Type: Updated, Resource: deployments, Object: states[1], Old: states[0]})
	gone := encode(t, debezium, Event{Type: Deleted, Resource: deployments, Object: states[1]})

	// Edits as JSON Patches: "remove /x" or "set /x value".
	for _, c := range []struct {
		schema   string
		document []byte
		edits    []string
	}{
		{"object", states[1].Raw, []string{
			"remove /apiVersion", "remove /kind", "remove /metadata", "remove /metadata/name", "remove /metadata/uid", "remove /metadata/resourceVersion",
			`set /metadata/resourceVersion 18`, `set /metadata/resourceVersion "x"`, `set /metadata/labels {"a":1}`, `set /metadata/finalizers "x"`, `set /metadata/managedFields []`,
			`set /metadata/creationTimestamp "yesterday"`, `set /metadata/ownerReferences [{"name":"x"}]`, `set /metadata/generation "2"`, `set /kind ""`, `set /metadata/namespace ""`,
		}},
		{"metadata", metadata.Data, []string{"remove /metadata", `set /spec {}`, `set /kind 1`, `set /metadata/annotations []`}},
		{"change", update.Data, []string{
			"remove /operation", "remove /object", "remove /old", "remove /patch", "remove /changedPaths", "remove /managers", `set /operation "patched"`, `set /operation "added"`,
			`set /object null`, `set /old null`, `set /old "x"`, `set /patch null`, `set /patch "x"`, `set /patch/0/op "test"`, `set /patch/0/path "spec"`, "remove /patch/0/op", "remove /patch/0/path",
			`set /patch/0 {"op":"add","path":"/a"}`, `set /patch/0 {"op":"remove","path":"/a","value":1}`, `set /changedPaths ["spec"]`, `set /changedPaths ["/a~2"]`, `set /changedPaths null`,
			`set /managers/0/operation "Patch"`, "remove /managers/0/manager", "remove /managers/0/paths", `set /managers/0/time 5`, "remove /object/metadata/uid", "remove /old/kind",
		}},
		{"change", deleted.Data, []string{`set /old {}`, `set /patch []`, `set /changedPaths ["/a"]`, `set /object {}`}},
		{"debezium", row.Data, []string{
			"remove /before", "remove /after", "remove /source", "remove /op", "remove /ts_ms", `set /before null`, `set /after null`, `set /op "c"`, `set /op "x"`,
			`set /ts_ms "1"`, "remove /source/uid", `set /source/snapshot true`, `set /source/connector "x"`, "remove /after/kind", "remove /before/metadata/uid",
		}},
		{"debezium", gone.Data, []string{`set /before null`, `set /after {}`, `set /op "u"`}},
		{"gap", gap.Data, []string{"remove /resource", "remove /from", "remove /to", "remove /reason", `set /reason "bored"`, `set /events 0`, `set /events "2"`, `set /from 7`, `set /to "x"`, `set /message 1`, `set /resource ""`, `set /position {"sequence":0}`, `set /position {"offsets":{"x":1}}`, `set /position {"offsets":{"1":-1}}`, `set /position ""`}},
		{"synced", synced.Data, []string{"remove /resource", "remove /resourceVersion", "remove /objects", `set /objects -1`, `set /objects 1.5`, `set /resourceVersion ""`}},
		{"progress", progress.Data, []string{"remove /resource", "remove /resourceVersion", "remove /asOf", `set /resourceVersion 7`, `set /asOf "now"`, `set /position {"sequence":0}`}},
		{"cloudevent", structured(progress), []string{`set /data/asOf 1`, `set /uid "u"`, `set /type "dev.deltabridge.synced"`}},
		{"cloudevent", structured(update), []string{
			"remove /specversion", "remove /id", "remove /source", "remove /type", "remove /subject", "remove /time", "remove /datacontenttype", "remove /cluster", "remove /operation",
			"remove /apiversion", "remove /kind", "remove /resource", "remove /name", "remove /uid", "remove /resourceversion", "remove /data",
			`set /specversion "0.3"`, `set /type "dev.deltabridge.object.patched"`, `set /type "dev.deltabridge.gap"`, `set /type "dev.deltabridge.object.added"`, `set /operation "deleted"`,
			`set /time "noon"`, `set /subject "deployments.apps"`, `set /initiallist "true"`, `set /finalstateunknown true`, `set /leftfilter true`, `set /Extension "x"`, `set /extension {}`,
			`set /data null`, `set /data []`, `set /data {"resource":"pods"}`, "remove /data/object/metadata", `set /id ""`, `set /source "a b"`,
		}},
		{"cloudevent", structured(deleted), []string{`set /finalstateunknown false`, `set /operation "updated"`, `set /data/operation 7`, "remove /data/object/kind"}},
		{"cloudevent", structured(gap), []string{`set /data {}`, `set /name "x"`, `set /operation "added"`, `set /subject "pods/a/b"`, `set /type "dev.deltabridge.synced"`, `set /type "dev.deltabridge.object.added"`, "remove /data/reason"}},
		{"cloudevent", structured(synced), []string{`set /data/objects "1"`, `set /uid "u"`, `set /type "dev.deltabridge.gap"`}},
	} {
		compiled := payloadSchema(t, c.schema, false)
		for _, edit := range c.edits {
			edited := edited(t, c.document, edit)
			if err := compiled.Validate(unmarshal(t, edited)); err == nil {
				t.Errorf("%s: after %s it is still valid: %s", c.schema, edit, edited)
			}
		}
		// What is not known is allowed where something may be added later.
		if c.schema != "metadata" {
			if err := compiled.Validate(unmarshal(t, edited(t, c.document, `set /later "x"`))); err != nil {
				t.Errorf("%s: an unknown member: %v", c.schema, err)
			}
		}
	}
}

var isElement = regexp.MustCompile(`/[0-9]+$`)

// edited is a document after "remove PATH" or "set PATH VALUE".
func edited(t *testing.T, document []byte, edit string) []byte {
	t.Helper()
	parts := strings.SplitN(edit, " ", 3)
	patch := fmt.Sprintf(`[{"op":"remove","path":%q}]`, parts[1])
	if parts[0] == "set" {
		patch = fmt.Sprintf(`[{"op":"add","path":%q,"value":%s}]`, parts[1], parts[2])
		if isElement.MatchString(parts[1]) { // or it would be inserted
			patch = strings.Replace(patch, `"add"`, `"replace"`, 1)
		}
	}
	p, err := jsonpatch.DecodePatch([]byte(patch))
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.Apply(document)
	if err != nil {
		t.Fatalf("%s: %v", edit, err)
	}
	return out
}
