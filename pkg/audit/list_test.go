package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// listOf returns the body of a request with these items.
func listOf(items ...string) []byte {
	return []byte(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[` +
		strings.Join(items, ",") + "]}\n")
}

// item returns a small event.
func item(auditID string) string {
	return `{"level":"Metadata","auditID":"` + auditID + `","stage":"ResponseComplete","verb":"get",` +
		`"user":{"username":"alice"},"requestReceivedTimestamp":"2026-01-02T03:04:05.678901Z"}`
}

// sent is a request in the form in which a kube-apiserver sends it.
func sent(t testing.TB) []byte {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", "sent.json"))
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestParseList(t *testing.T) {
	events, err := parseList(sent(t))
	if err != nil || len(events) != 3 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	e := parsed(t, events[1])
	if !json.Valid(e.Raw) || !strings.Contains(string(sent(t)), string(e.Raw)) || len(e.Raw) < 1000 {
		t.Errorf("raw: %s", e.Raw)
	}
	e.Raw = nil
	want := Event{
		AuditID: "1f6b5b0e-0c8e-4a55-9d0c-6a3c8f6c8d11", Stage: "ResponseComplete",
		Received:  time.Date(2026, 11, 27, 0, 12, 30, 123456000, time.UTC),
		StageTime: time.Date(2026, 11, 27, 0, 12, 30, 129012000, time.UTC),
		Object: ObjectReference{
			APIGroup: "apps", APIVersion: "v1", Resource: "deployments", Subresource: "scale", Namespace: "default", Name: "web",
		},
	}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if id := e.ID(); id != "1f6b5b0e-0c8e-4a55-9d0c-6a3c8f6c8d11.ResponseComplete.2026-11-27T00:12:30.123456Z" {
		t.Errorf("id %s", id)
	}
	if e := parsed(t, events[2]); e.Object != (ObjectReference{}) {
		t.Errorf("%+v", e)
	}
}

// Clients of the API server choose the auditID. The id of the event differs anyway.
func TestIDOfReusedAuditID(t *testing.T) {
	events, err := parseList(listOf(item("mine"), strings.Replace(item("mine"), "678901Z", "678902Z", 1)))
	if err != nil || len(events) != 2 {
		t.Fatalf("%s, %v", events, err)
	}
	if a, b := parsed(t, events[0]), parsed(t, events[1]); a.ID() == b.ID() {
		t.Errorf("both have the id %s", a.ID())
	}
	if e := parsed(t, []byte(`{"auditID":"a","stage":"Panic","requestReceivedTimestamp":null}`)); e.ID() != "a.Panic" {
		t.Error(e.ID())
	}
	for _, raw := range []string{`{"auditID":"a"}`, `{"auditID":"a","stage":"Panic"`} {
		if e, err := new(parser).parseEvent([]byte(raw)); err == nil {
			t.Errorf("%s: %+v", raw, e)
		}
	}
}

func parsed(t testing.TB, raw []byte) Event {
	t.Helper()
	e, err := new(parser).parseEvent(raw)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestParseListAccepts(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want int
	}{
		"other order":      {`{"items":[` + item("a") + `],"kind":"EventList","apiVersion":"audit.k8s.io/v1"}`, 1},
		"no items":         {`{"kind":"EventList","apiVersion":"audit.k8s.io/v1"}`, 0},
		"null items":       {`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":null}`, 0},
		"empty items":      {string(listOf()), 0},
		"white space":      {" \n" + strings.ReplaceAll(string(listOf(item("a"), item("b"))), ",", " ,\r\n\t"), 2},
		"last items count": {`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[7],"items":[` + item("a") + `]}`, 1},
		"last null counts": {`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[7],"items":null}`, 0},
		"equal ids":        {string(listOf(item("a"), item("a"))), 2},
		// What a client of the API server may choose.
		"invalid UTF-8": {string(listOf(item("a\xff"))), 1},
		"deep object": {string(listOf(strings.TrimSuffix(item("a"), "}") + `,"requestObject":` +
			strings.Repeat(`{"a":`, 9999) + "{}" + strings.Repeat("}", 9999) + "}")), 1},
	} {
		events, err := parseList([]byte(c.body))
		if err != nil || len(events) != c.want {
			t.Errorf("%s: %d events, %v", name, len(events), err)
		}
	}
}

func TestParseListRejects(t *testing.T) {
	whole := string(listOf(item("a"), item("b")))
	for _, c := range []struct{ body, want string }{
		{"", "not valid JSON: unexpected end of JSON input (byte 0 of 0)"},
		{whole[:len(whole)/2], "not valid JSON: unexpected end of JSON input (byte 198 of 198)"},
		{whole + "x", "not valid JSON: invalid character 'x' after top-level value (byte 397 of 397)"},
		{whole + whole, "not valid JSON: invalid character '{' after top-level value"},
		{"[]", "not one complete JSON object"},
		{"null", "not one complete JSON object"},
		{`"EventList"`, "not one complete JSON object"},
		{strings.Replace(whole, `"get"`, `get`, 1), "not valid JSON: invalid character 'g' looking for beginning of value"},
		{strings.Replace(whole, `"get"`, "\"g\x01t\"", 1), `not valid JSON: invalid character '\x01' in string literal`},
		{strings.Replace(whole, `"verb"`, `"v\erb"`, 1), `not valid JSON: invalid character 'e' in string escape code`},
		{strings.Replace(whole, `"kind"`, "\"k\x01nd\"", 1), `not valid JSON: invalid character '\x01' in string literal`},
		{strings.Replace(whole, "{}", "{]", 1), "not valid JSON: invalid character ']'"},
		{strings.Replace(whole, `{}`, `01`, 1), "not valid JSON: invalid character '1' after object key:value pair"},
		{strings.Replace(whole, "},{", "}{", 1), "not valid JSON: invalid character '{' after array element"},
		{strings.Replace(whole, "},{", "},,{", 1), "not valid JSON: invalid character ','"},
		{strings.Replace(whole, "},{", "},nul,{", 1), "not valid JSON: invalid character ','"},
		{strings.Replace(whole, "EventList", "Event", 1), "not an EventList of audit.k8s.io/v1"},
		{strings.Replace(whole, "k8s.io/v1", "k8s.io/v1beta1", 1), "not an EventList of audit.k8s.io/v1"},
		{strings.Replace(whole, `"kind"`, `"Kind"`, 1), "not an EventList of audit.k8s.io/v1"},
		{`{}`, "not an EventList of audit.k8s.io/v1"},
		{`{"kind":"PodList","apiVersion":"v1","items":[{}]}`, "not an EventList of audit.k8s.io/v1"},
		{`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":{}}`, "items is not a list of audit events"},
		{string(listOf(item("a"), "7")), "items[1] is not an object"},
		{string(listOf(item("a"), "null", "{}")), "items[1] is not an object"},
		{string(listOf(item("a"), `{"stage":"Panic"}`)), "items[1] has no auditID"},
		{string(listOf(item(""))), "items[0] has no auditID"},
		{string(listOf(`{"auditID":7,"stage":"Panic"}`)), "items[0] has no auditID"},
		{string(listOf(item("a"), item("b"), `{"auditID":"x"}`)), "items[2] has no stage"},
	} {
		events, err := parseList([]byte(c.body))
		if err == nil || events != nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60s\n%d events, %v\nwant %s", c.body, len(events), err, c.want)
		}
	}
}

// modelOf parses a body with encoding/json.
func modelOf(body []byte) (events []Event, err error) {
	var list map[string]json.RawMessage
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	if text(list["kind"]) != "EventList" || text(list["apiVersion"]) != "audit.k8s.io/v1" {
		return nil, fmt.Errorf("kind")
	}
	var items []json.RawMessage
	if list["items"] != nil {
		if err := json.Unmarshal(list["items"], &items); err != nil {
			return nil, err
		}
	}
	for _, raw := range items {
		var e, object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &e); err != nil || e == nil {
			return nil, fmt.Errorf("item: %w", err)
		}
		_ = json.Unmarshal(e["objectRef"], &object)
		one := Event{
			AuditID: text(e["auditID"]), Stage: text(e["stage"]),
			Received: timeOf([]byte(text(e["requestReceivedTimestamp"]))), StageTime: timeOf([]byte(text(e["stageTimestamp"]))),
			Object: ObjectReference{
				APIGroup: text(object["apiGroup"]), APIVersion: text(object["apiVersion"]), Resource: text(object["resource"]),
				Subresource: text(object["subresource"]), Namespace: text(object["namespace"]), Name: text(object["name"]),
			},
			Raw: raw,
		}
		if one.AuditID == "" || one.Stage == "" {
			return nil, fmt.Errorf("identity")
		}
		events = append(events, one)
	}
	return events, nil
}

// isDeep reports whether encoding/json, which has another limit, may reject a body because of its depth.
func isDeep(body []byte) bool {
	return bytes.Count(body, []byte("{"))+bytes.Count(body, []byte("[")) > 9000
}

func text(value json.RawMessage) (s string) {
	if json.Unmarshal(value, &s) != nil {
		return ""
	}
	return s
}

// FuzzParseList compares the parser with encoding/json.
func FuzzParseList(f *testing.F) {
	f.Add(sent(f))
	f.Add(
		listOf(
			item("a"),
			item("\\u00e4\xff"),
			`{"auditID":"b","auditID":"c","stage":"S","user":{"username":7},"user":{"username":"x"}}`,
		),
	)
	f.Add(
		[]byte(
			`{"items":[{"auditID":"a","stage":"s","objectRef":{"name":"n"},"objectRef":null}],"kind":"EventList","apiVersion":"audit.k8s.io/v1"}`,
		),
	)
	f.Add(
		[]byte(
			`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[7],"items":[{"auditID":"a","stage":"s","user":[{"username":1}]}]}`,
		),
	)
	f.Add([]byte(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[{"auditID":"a","stage":"s","x":[}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if isDeep(body) {
			return
		}
		got, gotErr := parseList(body)
		want, wantErr := modelOf(body)
		if (gotErr == nil) != (wantErr == nil) {
			t.Fatalf("%v, want %v", gotErr, wantErr)
		}
		if gotErr != nil && (got != nil || strings.Contains(gotErr.Error(), "\n")) {
			t.Fatalf("%d events, %v", len(got), gotErr)
		}
		var events []Event
		for _, raw := range got {
			events = append(events, parsed(t, raw))
		}
		if diff := cmp.Diff(want, events); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}
