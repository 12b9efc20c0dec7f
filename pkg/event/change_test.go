package event

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/jsonpatch"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/redact"
)

// withManagers is an object that keeps its managedFields.
func withManagers(t testing.TB, raw string) *object.Object {
	t.Helper()
	list := &object.List{ManagedFields: true}
	_, _, err := object.NegotiatedSerializer().SupportedMediaTypes()[0].Serializer.Decode(
		[]byte(`{"kind":"List","items":[`+raw+`]}`),
		nil,
		list,
	)
	if err != nil || len(list.Items) != 1 {
		t.Fatal(err)
	}
	return list.Items[0]
}

const (
	deploymentBefore = `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web","namespace":"shop","uid":"u1","resourceVersion":"17","generation":1,"labels":{"tier":"front"}},` +
		`"spec":{"replicas":2,"template":{"spec":{"containers":[{"name":"web","image":"web:1","args":["-v"]},{"name":"log","image":"log:1"}]}}}}`
	deploymentAfter = `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web","namespace":"shop","uid":"u1","resourceVersion":"18","generation":2,` +
		`"finalizers":["example.com/hold"],"managedFields":[` +
		`{"manager":"ci","operation":"Apply","apiVersion":"apps/v1","time":"2026-11-20T10:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:template":{"f:spec":{"f:containers":{` +
		`"k:{\"name\":\"web\"}":{".":{},"f:name":{},"f:image":{},"f:args":{}}}}}}}},` +
		`{"manager":"scaler","operation":"Update","apiVersion":"apps/v1","time":"2026-11-20T10:00:01Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:replicas":{}}},"subresource":"scale"},` +
		`{"manager":"holder","operation":"Update","apiVersion":"apps/v1","time":"2026-11-20T10:00:02Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:finalizers":{".":{},"v:\"example.com/hold\"":{}}}}},` +
		`{"manager":"idle","operation":"Update","apiVersion":"apps/v1","time":"2026-11-20T09:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:template":{"f:spec":{"f:containers":{` +
		`"k:{\"name\":\"log\"}":{".":{},"f:name":{},"f:image":{}}}}}}}}]},` +
		`"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"web","image":"web:2","args":["-q"]},{"name":"log","image":"log:1"}]}}}}`
)

// changeData is the data of the payload as a consumer sees it.
type changeData struct {
	Operation    string
	Object, Old  json.RawMessage
	Patch        json.RawMessage
	ChangedPaths []string
	Managers     []manager
}

func changeOf(t testing.TB, e *Encoder, ev Event) (data changeData) {
	t.Helper()
	e.Payload = PayloadChange
	m := encode(t, e, ev)
	if err := json.Unmarshal(m.Data, &data); err != nil {
		t.Fatalf("%s: %v", m.Data, err)
	}
	return data
}

func TestChange(t *testing.T) {
	before, after := mustObject(t, deploymentBefore), withManagers(t, deploymentAfter)
	got := changeOf(t, &Encoder{}, Event{Type: Updated, Resource: deployments, Object: after, Old: before})
	if got.Operation != "updated" || string(got.Object) != string(after.Raw) || string(got.Old) != string(before.Raw) {
		t.Errorf("%s of %s to %s", got.Operation, got.Old, got.Object)
	}
	const patch = `[{"op":"remove","path":"/metadata/labels"},{"op":"replace","path":"/metadata/resourceVersion","value":"18"},{"op":"replace","path":"/metadata/generation","value":2},` +
		`{"op":"add","path":"/metadata/finalizers","value":["example.com/hold"]},{"op":"replace","path":"/spec/replicas","value":3},` +
		`{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"web:2"},{"op":"replace","path":"/spec/template/spec/containers/0/args/0","value":"-q"}]`
	if diff := cmp.Diff(patch, string(got.Patch)); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
	paths := []string{
		"/metadata/labels",
		"/metadata/generation",
		"/metadata/finalizers",
		"/spec/replicas",
		"/spec/template/spec/containers/0/image",
		"/spec/template/spec/containers/0/args/0",
	}
	if diff := cmp.Diff(paths, got.ChangedPaths); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
	managers := []manager{
		{Name: "ci", Operation: "Apply", Time: "2026-11-20T10:00:00Z", Paths: paths[4:]},
		{Name: "scaler", Operation: "Update", Subresource: "scale", Time: "2026-11-20T10:00:01Z", Paths: paths[3:4]},
		{Name: "holder", Operation: "Update", Time: "2026-11-20T10:00:02Z", Paths: paths[2:3]},
	}
	if diff := cmp.Diff(managers, got.Managers, cmp.AllowUnexported(manager{})); diff != "" {
		t.Errorf("managers (-want +got):\n%s", diff)
	}
}

// Who owns what changed, in each form that FieldsV1 has.
func TestOwners(t *testing.T) {
	const others = `"f:metadata":{"f:labels":{".":{},"f:app":{}}}`
	for _, c := range []struct{ name, fields, before, after, paths string }{
		{"field", `"f:a":{}`, `"a":1`, `"a":2`, "/a"},
		{"another field", `"f:b":{}`, `"a":1,"b":1`, `"a":2,"b":1`, ""},
		{"something below", `"f:a":{"f:b":{"f:c":{}}}`, `"x":1`, `"x":1,"a":{"b":{"c":1}}`, "/a"},
		{"owned as a whole", `"f:a":{}`, `"a":{"b":{"c":1}}`, `"a":{"b":{"c":2}}`, "/a/b/c"},
		{"removed from what is owned as a whole", `"f:a":{}`, `"a":{"b":1,"c":1}`, `"a":{"b":1}`, "/a/c"},
		{"removed", `"f:a":{"f:b":{}}`, `"a":{"b":1,"c":1}`, `"a":{"b":1}`, ""},
		{"list element by two keys", `"f:a":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}}`, `"a":[]`, `"a":[{"port":80,"protocol":"TCP"}]`, "/a/0"},
		{"list element with another key", `"f:a":{"k:{\"port\":80,\"protocol\":\"UDP\"}":{".":{},"f:port":{}}}`, `"a":[]`, `"a":[{"port":80,"protocol":"TCP"}]`, ""},
		{"field of a list element", `"f:a":{"k:{\"name\":\"\u0078\"}":{".":{},"f:v":{}}}`, `"a":[{"name":"w"},{"name":"x","v":1}]`, `"a":[{"name":"x","v":2}]`, "/a/0/v"},
		{"value of a set", `"f:a":{"v:\"y\"":{}}`, `"a":["x"]`, `"a":["x","y"]`, "/a/1"},
		{"another value of a set", `"f:a":{"v:\"x\"":{}}`, `"a":["x"]`, `"a":["x","y"]`, ""},
		{"first of two elements", `"f:a":{"k:{\"name\":\"x\"}":{".":{},"f:v":{}},"k:{\"name\":\"y\"}":{".":{},"f:v":{}}}`, `"a":[{"name":"x","v":1},{"name":"y","v":1}]`, `"a":[{"name":"x","v":2},{"name":"y","v":1}]`, "/a/0/v"},
		{"first of two values", `"f:a":{"v:\"x\"":{},"v:\"y\"":{}}`, `"a":["y"]`, `"a":["x","y"]`, "/a/0"},
		{"index", `"f:a":{"i:1":{}}`, `"a":["x"]`, `"a":["x","y"]`, "/a/1"},
		{"resourceVersion", `"f:metadata":{}`, `"metadata":{"resourceVersion":"1"}`, `"metadata":{"resourceVersion":"2"}`, ""},
	} {
		changes := slices.DeleteFunc(jsonpatch.Diff([]byte("{"+c.before+"}"), []byte("{"+c.after+"}")), isResourceVersion)
		owners := ownersOf(
			[]byte(`[{"manager":"other","fieldsV1":{`+others+`}},{"manager":"me","fieldsV1":{`+c.fields+`}}]`),
			changes,
		)
		var paths []string
		for _, o := range owners {
			if o.Name != "me" {
				t.Errorf("%s: %+v", c.name, o)
			}
			paths = append(paths, o.Paths...)
		}
		if got := strings.Join(paths, " "); got != c.paths {
			t.Errorf("%s: owns %q, want %q", c.name, got, c.paths)
		}
	}
}

// Where there are not two states, there is no patch.
func TestChangeWithoutTwoStates(t *testing.T) {
	o := withManagers(t, deploymentAfter)
	for _, c := range []struct {
		name     string
		ev       Event
		managers int
	}{
		{"addition", Event{Type: Added, Object: o}, 4},
		{"addition with an old state", Event{Type: Added, Object: o, Old: o}, 4},
		{"deletion", Event{Type: Deleted, Object: o}, 0},
		{"leave", Event{Type: Deleted, Object: o, LeftAt: "19"}, 0},
	} {
		c.ev.Resource = deployments
		got := changeOf(t, &Encoder{}, c.ev)
		if got.Operation != c.ev.Type.String() || string(got.Object) != string(o.Raw) || string(got.Old) != "null" ||
			string(got.Patch) != "null" ||
			got.ChangedPaths == nil ||
			len(got.ChangedPaths) > 0 ||
			len(got.Managers) != c.managers {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

type noBytes struct{}

func (noBytes) Fetch(*object.Object) ([]byte, error) { return nil, errors.New("the disk is gone") }

// An update whose old state can't be had is told without it.
func TestChangeWithoutTheOldState(t *testing.T) {
	var told error
	e := &Encoder{OnOldMissing: func(err error) { told = err }}
	got := changeOf(
		t,
		e,
		Event{
			Type:     Updated,
			Resource: deployments,
			Object:   mustObject(t, deploymentAfter),
			Old:      mustObject(t, deploymentBefore).Released(noBytes{}),
		},
	)
	if got.Operation != "updated" || string(got.Old) != "null" || string(got.Patch) != "null" || told == nil {
		t.Errorf("%+v, %v", got, told)
	}
}

// No value of a Secret gets into any part of a change.
func TestChangeOfASecret(t *testing.T) {
	secret := func(rv, value string) *object.Object {
		return withManagers(
			t,
			`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s","namespace":"shop","uid":"u1","resourceVersion":"`+rv+
				`","managedFields":[{"manager":"ci","operation":"Update","fieldsV1":{"f:data":{".":{},"f:token":{}}}}]},"data":{"user":"dXNlcg==","token":"`+value+`"}}`,
		)
	}
	e := &Encoder{Payload: PayloadChange, Redactor: redact.New(make([]byte, 32))}
	before, after := secret("1", "b2xkc2VjcmV0"), secret("2", "bmV3c2VjcmV0")
	change := Event{Type: Updated, Resource: secrets, Object: after, Old: before}
	m := encode(t, e, change)
	for _, value := range []string{"bmV3c2VjcmV0", "b2xkc2VjcmV0", "dXNlcg=="} {
		if strings.Contains(string(m.Data), value) {
			t.Errorf("%s has a secret value", m.Data)
		}
	}
	got := changeOf(t, e, change)
	if diff := cmp.Diff([]string{"/data/token"}, got.ChangedPaths); diff != "" || len(got.Managers) != 1 {
		t.Errorf("%+v", got)
	}
}

// Whatever stands in managedFields, encoding neither fails nor panics, and gives JSON.
func FuzzManagers(f *testing.F) {
	f.Add(
		`[{"manager":"m","operation":"Apply","time":"t","fieldsV1":{"f:a":{"k:{\"n\":\"x\"}":{},"v:1":{},"i:0":{},".":{}}}}]`,
	)
	f.Add(`[{"manager":1,"fieldsV1":{"f:a":{"k:":{},"k:[":{},"v:":{},"x":1,"":2}}},[],null]`)
	f.Fuzz(func(t *testing.T, managedFields string) {
		if !json.Valid([]byte(managedFields)) {
			return
		}
		before := mustObject(t, `{"a":[{"n":"x","b":2}]}`)
		after := withManagers(t, `{"metadata":{"managedFields":`+managedFields+`},"a":[{"n":"x","b":1},1]}`)
		e := &Encoder{Payload: PayloadChange}
		m, err := e.Encode(Event{Type: Updated, Object: after, Old: before})
		if err != nil || !json.Valid(m.Data) {
			t.Fatalf("%s, %v", m.Data, err)
		}
	})
}
