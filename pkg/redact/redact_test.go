package redact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func resource(group, version, plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: plural}
}

func secretsGVR() schema.GroupVersionResource { return resource("", "v1", "secrets") }

func mustObject(t testing.TB, raw string) *object.Object {
	t.Helper()
	o, err := object.New([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func mustPaths(t testing.TB, texts ...string) (paths []Path) {
	t.Helper()
	for _, text := range texts {
		p, err := ParsePath(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		paths = append(paths, p)
	}
	return paths
}

func testKey() []byte { return []byte("0123456789abcdef0123456789abcdef") }

// shape is the result with each fingerprint as #.
func shape(b []byte) string {
	return regexp.MustCompile(`"hmac-sha256:[0-9a-f]{32}"`).ReplaceAllString(string(b), "#")
}

func TestWhatIsHidden(t *testing.T) {
	const head = `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"n","namespace":"s"`
	crd := resource("example.com", "v1", "accounts")
	for name, test := range map[string]struct {
		resource  schema.GroupVersionResource
		paths     []string
		raw, want string
	}{
		"data and stringData":    {secretsGVR(), nil, head + `},"data":{"a":"eA==","b":""},"stringData":{"c":"x"},"type":"Opaque"}`, head + `},"data":{"a":#,"b":#},"stringData":{"c":#},"type":"Opaque"}`},
		"null, numbers, lists":   {secretsGVR(), nil, head + `},"data":{"a":null,"b":12,"c":[true,{"d":-1e3}],"e":{}}}`, head + `},"data":{"a":null,"b":#,"c":[#,{"d":#}],"e":{}}}`},
		"no object":              {secretsGVR(), nil, head + `},"data":"x"}`, head + `},"data":#}`},
		"null data":              {secretsGVR(), nil, head + `},"data":null}`, head + `},"data":null}`},
		"other letter case":      {secretsGVR(), nil, head + `},"Data":{"a":"x"},"STRINGDATA":{"a":"x"}}`, head + `},"Data":{"a":#},"STRINGDATA":{"a":#}}`},
		"escaped keys":           {secretsGVR(), nil, head + `},"d\u0061ta":{"a":"x"}}`, head + `},"d\u0061ta":{"a":#}}`},
		"a key that is none":     {secretsGVR(), nil, head + `},"d\qta":{"a":"x"}}`, head + `},"d\qta":{"a":#}}`},
		"equal keys":             {secretsGVR(), nil, head + `},"data":{"a":"x","a":"y"},"data":{"b":"z"}}`, head + `},"data":{"a":#,"a":#},"data":{"b":#}}`},
		"space stays":            {secretsGVR(), nil, head + "},\n\t\"data\" : { \"a\" : \"x\" }\n}", head + "},\n\t\"data\" : { \"a\" : # }\n}"},
		"a part that is no JSON": {secretsGVR(), nil, head + `},"data":{"a" "x"},"type":"Opaque"}`, head + `},"data":#,"type":"Opaque"}`},
		"not even brackets":      {secretsGVR(), nil, head + `},"data":{"a":["x"}},"type":"Opaque"}`, head + `},"data":{"a":#},"type":"Opaque"}`},
		"tools that repeat it":   {secretsGVR(), nil, head + `,"annotations":{"kapp.k14s.io/original":"x","team":"y"}}}`, head + `,"annotations":{"kapp.k14s.io/original":#,"team":"y"}}}`},
		"by kind alone":          {resource("example.com", "v1", "things"), nil, head + `},"data":{"a":"x"}}`, head + `},"data":{"a":#}}`},
		"by resource alone":      {secretsGVR(), nil, `{"kind":"x","data":{"a":"x"}}`, `{"kind":"x","data":{"a":#}}`},
		"another's kind":         {crd, nil, `{"kind":"Secret","apiVersion":"example.com/v1","data":{"a":"x"}}`, `{"kind":"Secret","apiVersion":"example.com/v1","data":{"a":"x"}}`},
		"last applied anywhere": {
			crd, nil, `{"kind":"Account","metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"x\":1}"}},"spec":{"template":[{"annotations":{"kubectl.kubernetes.io\/last-applied-configuration":"x"}}]}}`,
			`{"kind":"Account","metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":#}},"spec":{"template":[{"annotations":{"kubectl.kubernetes.io\/last-applied-configuration":#}}]}}`,
		},
		"last applied, escaped": {crd, nil, `{"metadata":{"annotations":{"kubectl.kubernetes.io\/last\u002dapplied-configuration":"x"}}}`, `{"metadata":{"annotations":{"kubectl.kubernetes.io\/last\u002dapplied-configuration":#}}}`},
		"a text with its name":  {crd, nil, `{"spec":{"a":"kubectl.kubernetes.io/last-applied-configuration"}}`, `{"spec":{"a":"kubectl.kubernetes.io/last-applied-configuration"}}`},
		"paths": {
			crd,
			[]string{"spec.containers[*].env[*].value", `metadata.annotations["example.com/token"]`, "spec.keys.*", "status[*].token"},
			`{"metadata":{"annotations":{"example.com/token":"x","b":"y"}},"spec":{"containers":[{"env":[{"name":"a","value":"x"},{"name":"b"}]}],"keys":{"a":1,"b":"2"},"value":"y"},"status":{"p":{"token":"x"}}}`,
			`{"metadata":{"annotations":{"example.com/token":#,"b":"y"}},"spec":{"containers":[{"env":[{"name":"a","value":#},{"name":"b"}]}],"keys":{"a":#,"b":#},"value":"y"},"status":{"p":{"token":#}}}`,
		},
		"a path through a list":     {crd, []string{"spec.list.password"}, `{"spec":{"list":[[{"password":"x"}],{"password":"y"}]}}`, `{"spec":{"list":[[{"password":#}],{"password":#}]}}`},
		"a path to a part":          {crd, []string{"spec.auth"}, `{"spec":{"auth":{"user":"u","keys":["x",false]}}}`, `{"spec":{"auth":{"user":#,"keys":[#,#]}}}`},
		"a path that leads nowhere": {crd, []string{"spec.auth.x"}, `{"spec":{"auth":"u"}}`, `{"spec":{"auth":"u"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := New(testKey(), Rule{Paths: mustPaths(t, test.paths...)})
			o := mustObject(t, test.raw)
			before := bytes.Clone(o.Raw)
			got, err := r.Redact(test.resource, o, o.Raw)
			if err != nil || shape(got) != test.want {
				t.Errorf("got %s, %v\nwant %s", got, err, test.want)
			}
			if !bytes.Equal(before, o.Raw) {
				t.Error("the object was written to")
			}
			again, err := r.Redact(test.resource, o, got)
			if diff := cmp.Diff(string(got), string(again)); err != nil || diff != "" || &again[0] != &got[0] {
				t.Errorf("a second time (-once +twice): %v\n%s", err, diff)
			}
		})
	}
}

// Whichever character of lastApplied is escaped, and whatever values precede it, the annotation is hidden.
func TestEscapedLastApplied(t *testing.T) {
	r, gvr := New(testKey()), resource("", "v1", "configmaps")
	for at := range lastApplied {
		key := fmt.Sprintf(`%s\u%04x%s`, lastApplied[:at], lastApplied[at], lastApplied[at+1:])
		for _, before := range []string{"", `"a":"\\",`, `"a":"\"\n\\\"\\",`, `"a":":\n","b":"{\"c\":\"d\"}" , `} {
			const form = `{"metadata":{"annotations":{%s"%s" : %s,"z":"\t"}}}`
			o := mustObject(t, fmt.Sprintf(form, before, key, `"x"`))
			got, err := r.Redact(gvr, o, o.Raw)
			if want := fmt.Sprintf(form, before, key, "#"); err != nil || shape(got) != want {
				t.Errorf("got %s, %v\nwant %s", got, err, want)
			}
		}
	}
}

func TestNothingToHide(t *testing.T) {
	o := mustObject(t, `{"kind":"Pod","metadata":{"name":"p","annotations":{"a":"\u0026\/"}},"spec":{"data":{"a":"x"}}}`)
	for _, r := range []*Redactor{nil, New(testKey()), New(testKey(), Rule{Resources: func(gvr schema.GroupVersionResource) bool { return gvr.Resource != "pods" }, Paths: mustPaths(t, "spec")})} {
		got, err := r.Redact(resource("", "v1", "pods"), o, o.Raw)
		if err != nil || &got[0] != &o.Raw[0] {
			t.Errorf("%s, %v", got, err)
		}
	}
}

// A fingerprint tells that a value changed, and nothing else: not the value, nor that another object or key has it too.
func TestFingerprints(t *testing.T) {
	of := func(r *Redactor, name, data string) map[string]string {
		t.Helper()
		o := mustObject(
			t,
			`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"`+name+`","namespace":"s"},"data":`+data+`}`,
		)
		got, err := r.Redact(secretsGVR(), o, o.Raw)
		if err != nil {
			t.Fatal(err)
		}
		var doc struct{ Data map[string]string }
		if err := json.Unmarshal(got, &doc); err != nil {
			t.Fatal(err)
		}
		return doc.Data
	}
	r := New(testKey())
	first := of(r, "a", `{"x":"aGk=","y":"aGk="}`)
	if again := of(r, "a", `{"y":"aGk=","x":"\u0061Gk="}`); first["x"] != again["x"] || first["y"] != again["y"] {
		t.Errorf("the same values: %v, %v", first, again)
	}
	for what, other := range map[string]string{
		"a key beside it": first["y"],
		"another object":  of(r, "b", `{"x":"aGk="}`)["x"],
		"another value":   of(r, "a", `{"x":"aGkh"}`)["x"],
		"a number":        of(r, "a", `{"x":1}`)["x"],
		"another key":     of(New([]byte(strings.Repeat("k", 32))), "a", `{"x":"aGk="}`)["x"],
	} {
		if other == first["x"] {
			t.Errorf("%s has the same fingerprint", what)
		}
	}
	if one, text := of(r, "a", `{"x":1}`), of(r, "a", `{"x":"1"}`); one["x"] == text["x"] {
		t.Error("a number and its text have one fingerprint")
	}
	// What only looks like a fingerprint is hidden.
	for _, fake := range []string{"hmac-sha256:" + strings.Repeat("0", 32), strings.ToUpper(first["x"]), first["x"] + "0", of(New([]byte(strings.Repeat("k", 32))), "a", `{"x":"aGk="}`)["x"]} {
		if got := of(r, "a", `{"x":"`+fake+`"}`); got["x"] == fake {
			t.Errorf("%q passed", fake)
		}
	}
}

func TestDeepNesting(t *testing.T) {
	deep := strings.Repeat(`{"a":[`, 30_000) + `"hunter2"` + strings.Repeat(`]}`, 30_000)
	o := mustObject(t, `{"kind":"Secret","apiVersion":"v1","data":`+deep+`}`)
	got, err := New(testKey()).Redact(secretsGVR(), o, o.Raw)
	if err != nil || bytes.Contains(got, []byte("hunter2")) {
		t.Errorf("%.100s, %v", got, err)
	}
}

func TestHide(t *testing.T) {
	o := mustObject(
		t,
		`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"n","namespace":"s","uid":"u","resourceVersion":"7"},"data":{"a":"hunter2"}}`,
	)
	got := New(testKey()).Hide(secretsGVR(), o, []byte(`{"data":{"a":"hunter2"`))
	const want = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"n","namespace":"s","resourceVersion":"7","uid":"u"}}`
	if string(got) != want {
		t.Errorf("got %s", got)
	}
}

func TestParsePath(t *testing.T) {
	for text, problem := range map[string]string{
		"": "not a valid path", "*": "everything", "/spec/a": "not a valid path", "[*].a": "everything", "kind": "identifies the object", "ApiVersion": "identifies the object", "metadata": "labels and annotations",
		"metadata.name": "labels and annotations", "metadata.*": "labels and annotations", "metadata[*].x": "labels and annotations", "$.spec": "not a valid path", "spec.a b": "not a valid path",
	} {
		if _, err := ParsePath(text); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"spec", "data.*", "metadata.annotations", `metadata.annotations["a/b.c"]`, `spec["a.b"].c[*]`, "metadata.Labels.x", "spec.containers[*].env[*].value"} {
		if _, err := ParsePath(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}
