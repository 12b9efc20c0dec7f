package event

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/redact"
)

const auditOfSecret = `{"level":"RequestResponse","auditID":"a1","stage":"ResponseComplete","verb":"create",` +
	`"objectRef":{"resource":"secrets"},"responseObject":{"kind":"Secret","data":{"password":"aHVudGVyMg=="}},"annotations":{"a":"}"}}`

// testAuditInfos are audit events about an object, about nothing, and about what cannot exist.
func testAuditInfos() []AuditInfo {
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	odd := schema.GroupVersionResource{
		Group: strings.Repeat("g", 300), Version: "v\n1", Resource: strings.Repeat("ü", 60),
	}
	return []AuditInfo{
		{
			ID: "a1.ResponseComplete", Raw: []byte(auditOfSecret),
			Object: redact.Reference{Resource: secrets, Namespace: "shop", Name: "db"},
		},
		{ID: "a2.RequestReceived", Raw: []byte(`{"kind":"X","auditID":"a2","stage":"RequestReceived","annotations": { } }`)},
		{
			ID: "a3.Panic", Raw: []byte(`{"auditID":"a3","stage":"Panic"}`),
			Object: redact.Reference{Resource: odd, Namespace: "n\x00\xff", Name: strings.Repeat("x", 5000)},
		},
	}
}

func auditMessages(t *testing.T, e *Encoder) (all []*Message) {
	t.Helper()
	for _, info := range testAuditInfos() {
		all = append(all, encode(t, e, Event{Type: Audit, Audit: &info, Time: seen}))
	}
	return all
}

// Subjects, topics and keys are those of what the request was about, whatever a client has requested.
func TestAuditPlaces(t *testing.T) {
	subject, err := ParseTemplate(
		"{cluster}.{operation}.{group}.{version}.{resource}.{kind}.{namespace}.{name}",
		EscapeSubject,
	)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ParseTemplate("{resource}/{namespace}/{name}", EscapeNone)
	if err != nil {
		t.Fatal(err)
	}
	all := auditMessages(t, &Encoder{Cluster: "prod", PartitionKey: key})
	for n, want := range []string{
		"prod.audit.core.v1.secrets._.shop.db secrets/shop/db secrets/shop/db",
		"prod.audit.audit_k8s_io.v1.events._._._ events.audit.k8s.io// events//",
	} {
		if got := subject.Expand(all[n]) + " " + all[n].Subject() + " " + all[n].PartitionKey; got != want {
			t.Errorf("%s", got)
		}
	}
	for name, text := range map[string]string{"subject": subject.Expand(all[2]), "attribute": all[2].Subject()} {
		if len(text) > 1500 || strings.ContainsAny(text, "\n\x00") {
			t.Errorf("%s of %d bytes: %q", name, len(text), text)
		}
	}
	if got, want := attributes(all[0])["time"], "2026"; !strings.HasPrefix(got, want) || all[0].Since() != seen {
		t.Errorf("time %s, since %v", got, all[0].Since())
	}
}

// The data is a complete Event, without secret values.
func TestAuditData(t *testing.T) {
	all := auditMessages(t, &Encoder{Redactor: redact.New(make([]byte, 32))})
	if strings.Contains(string(all[0].Data), "aHVudGVyMg") ||
		!strings.Contains(string(all[0].Data), `"password":"hmac-sha256:`) {
		t.Errorf("%s", all[0].Data)
	}
	plain := auditMessages(t, &Encoder{})
	for n, want := range []string{
		`{"kind":"Event","apiVersion":"audit.k8s.io/v1",` + auditOfSecret[1:],
		`{"kind":"Event","apiVersion":"audit.k8s.io/v1","auditID":"a2","stage":"RequestReceived","annotations":{ }}`,
	} {
		if got := string(plain[n].Data); got != want {
			t.Errorf("%s", got)
		}
	}
	for _, m := range append(all, plain...) {
		stored, err := m.AppendStored(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseStored(stored)
		if err != nil || cmp.Diff(attributes(m), attributes(again)) != "" || string(m.Data) != string(again.Data) {
			t.Errorf("stored: %v, %v", again, err)
		}
	}
}

// An event that is too large is reduced as API servers do it. Its replacements belong to the stream of audit events.
func TestReducedAudit(t *testing.T) {
	all := auditMessages(t, &Encoder{})
	reduced, err := Reduce(all[0], Marks{Omitted: ReasonOversize})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Annotations                           map[string]string
		RequestObject, ResponseObject, Object any
		Level                                 string
	}
	if err := json.Unmarshal(reduced.Data, &got); err != nil {
		t.Fatal(err)
	}
	if got.ResponseObject != nil || got.Level != "RequestResponse" ||
		cmp.Diff(got.Annotations, map[string]string{"a": "}", truncated: "true"}) != "" {
		t.Errorf("%s", reduced.Data)
	}
	if _, err := Reduce(all[2], Marks{}); err == nil {
		t.Error("an event without objects was reduced")
	}
	if Mergeable(all[0]) {
		t.Error("audit events can be merged")
	}
	gap := RefusalGap(all[0], ReasonOversize, "", "")
	if gap.Subject() != "events.audit.k8s.io" || gap.GapInfo.Resource != "events.audit.k8s.io" ||
		gap.GapInfo.Operation != "" {
		t.Errorf("%s: %+v", gap.Subject(), gap.GapInfo)
	}
}
