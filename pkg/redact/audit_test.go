package redact

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What is hidden in the objects of audit events. # is a fingerprint.
func TestAudit(t *testing.T) {
	r := New(testKey(), Rule{
		Resources: func(gvr schema.GroupVersionResource) bool { return gvr.Resource == "accounts" },
		Paths:     mustPaths(t, "spec.pin"),
	})
	accounts, maps := resource("example.com", "v1", "accounts"), resource("", "v1", "configmaps")
	const applied = `"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"x"}`
	for _, c := range []struct {
		of        Reference
		raw, want string
	}{
		{Reference{Resource: maps}, `{"responseObject":{"data":{"a":"x"}}}`, ""},
		{Reference{Resource: maps}, `{"responseObject":[{"op":"add","path":"/data/a","value":"x"}]}`, ""},
		{
			Reference{Resource: maps},
			`{"requestObject":{"metadata":{` + applied + `}}}`,
			`{"requestObject":{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":#}}}}`,
		},
		{
			Reference{Resource: maps},
			`{"requestObject":[{"op":"add","path":"/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration","value":"x"}]}`,
			`{"requestObject":[{"op":"add","path":"/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration","value":#}]}`,
		},
		{
			Reference{Resource: maps},
			`{"requestObject":[{"op":"add","path":"/metadata/annotations/kubectl.kubernetes.io~1last\u002dapplied-configuration","value":"x"}]}`,
			`{"requestObject":[{"op":"add","path":"/metadata/annotations/kubectl.kubernetes.io~1last\u002dapplied-configuration","value":#}]}`,
		},
		{ // a list, and the kind without a reference
			Reference{},
			`{"responseObject":{"kind":"SecretList","items":[{"data":{"a":"x"}},{"stringData":{"b":"x"}}],"x":"x"}}`,
			`{"responseObject":{"kind":"SecretList","items":[{"data":{"a":#}},{"stringData":{"b":#}}],"x":"x"}}`,
		},
		{ // a merge patch, and an object
			Reference{Resource: secretsGVR()},
			`{"requestObject":{"data":{"a":"x"}}, "responseObject":{"DATA":{"a":"x"},"type":"x"}}`,
			`{"requestObject":{"data":{"a":#}}, "responseObject":{"DATA":{"a":#},"type":"x"}}`,
		},
		{ // a JSON patch
			Reference{Resource: secretsGVR()},
			`{"requestObject":[{"op":"replace","path":"/data","value":{"a":"x"}},{"op":"remove","path":"/data/b"}]}`,
			`{"requestObject":[{"op":"replace","path":"/data","value":{"a":#}},{"op":"remove","path":"/data/b"}]}`,
		},
		{Reference{Resource: secretsGVR()}, `{"requestObject":"x","responseObject":null}`, `{"requestObject":null,"responseObject":null}`},
		{ // a table
			Reference{Resource: accounts},
			`{"responseObject":{"kind":"Table","rows":[{"cells":["x",1],"object":{"spec":{"pin":1}}}]}}`,
			`{"responseObject":{"kind":"Table","rows":[{"cells":[#,#],"object":{"spec":{"pin":#}}}]}}`,
		},
		{
			Reference{Resource: resource("", "v1", "serviceaccounts"), Subresource: "token"},
			`{"requestObject":{"spec":{"audiences":["x"]}},"responseObject":{"status":{"token":"x","expirationTimestamp":"x"}}}`,
			`{"requestObject":{"spec":{"audiences":["x"]}},"responseObject":{"status":{"token":#,"expirationTimestamp":"x"}}}`,
		},
		{
			Reference{Resource: resource("authentication.k8s.io", "v1", "tokenreviews")},
			`{"requestObject":{"spec":{"token":"x"}}}`,
			`{"requestObject":{"spec":{"token":#}}}`,
		},
		{ // the API server quotes what is not valid
			Reference{Resource: accounts},
			`{"responseStatus":{"message":"x","code":422},"responseObject":{"kind":"Status","message":"x","details":{"name":"n","causes":[{"message":"x"}]},"code":422}}`,
			`{"responseStatus":{"message":#,"code":422},"responseObject":{"kind":"Status","message":#,"details":{"name":"n","causes":[{"message":#}]},"code":422}}`,
		},
		{Reference{Resource: accounts}, `{"responseStatus":{"message":"x","code":404},"responseObject":{"message":"x","code":404}}`, ""},
		{Reference{Resource: maps}, `{"responseStatus":{"message":"x","code":422},"responseObject":{"message":"x","code":422}}`, ""},
		{ // what a mutating webhook has changed
			Reference{Resource: secretsGVR()},
			`{"annotations":{"patch.webhook.admission.k8s.io/round_0_index_0":"x","b":"x"}}`,
			`{"annotations":{"patch.webhook.admission.k8s.io/round_0_index_0":#,"b":"x"}}`,
		},
		{Reference{Resource: maps}, `{"annotations":{"patch.webhook.admission.k8s.io/round_0_index_0":"x","b":"x"}}`, ""},
	} {
		got, err := r.Audit(c.of, []byte(c.raw))
		if c.want == "" {
			c.want = c.raw
		}
		if err != nil || shape(got) != c.want || !json.Valid(got) {
			t.Errorf("%s: %s, %v", c.raw, got, err)
		}
		if again, err := r.Audit(c.of, got); err != nil || !bytes.Equal(again, got) {
			t.Errorf("%s became %s, %v", got, again, err)
		}
		if plain, err := (*Redactor)(nil).Audit(c.of, []byte(c.raw)); err != nil || string(plain) != c.raw {
			t.Errorf("without a redactor: %s, %v", plain, err)
		}
	}
	if got, err := r.Audit(Reference{}, []byte(`{"requestObject":{"a":"x"`)); err == nil || got != nil {
		t.Errorf("not an event: %s, %v", got, err)
	}
}

// An object has the fingerprints that it has in a change, so that consumers can compare them.
func TestAuditFingerprints(t *testing.T) {
	r, raw := New(
		testKey(),
	), `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"n","namespace":"s"},"data":{"a":"x"}}`
	change, err := r.Redact(secretsGVR(), mustObject(t, raw), []byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	of := Reference{Resource: secretsGVR(), Namespace: "s", Name: "n"}
	got, err := r.Audit(of, []byte(`{"responseObject":`+raw+`}`))
	if err != nil || !strings.Contains(string(got), string(change)) {
		t.Errorf("%s, in a change %s (%v)", got, change, err)
	}
}
