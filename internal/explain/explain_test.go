package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

func TestOperation(t *testing.T) {
	for _, tt := range []struct {
		old, operation string
		want           event.Type
		mistake        string
	}{
		{want: event.Added},
		{old: "before.yaml", want: event.Updated},
		{old: "before.yaml", operation: "updated", want: event.Updated},
		{operation: "added", want: event.Added},
		{operation: "deleted", want: event.Deleted},
		{operation: "restated", want: event.Restated},
		{operation: "updated", mistake: "--operation updated: set --old to a file with the previous state"},
		{operation: "gap", mistake: "--operation gap: must be added, updated, deleted or restated"},
		{operation: "Added", mistake: "--operation Added: must be added, updated, deleted or restated"},
		{old: "before.yaml", operation: "deleted", mistake: "--old: only for an update, but --operation is deleted"},
	} {
		got, err := (&Options{Old: tt.old, Operation: tt.operation}).operation()
		if mistake := fmt.Sprint(err); got != tt.want || mistake != tt.mistake && (err != nil || tt.mistake != "") {
			t.Errorf("old %q, operation %q: %v, %v", tt.old, tt.operation, got, err)
		}
	}
}

// offline explains objects from files, for a configuration in which everything is watched unless the text says more.
func offline(t *testing.T, o Options, text string, args ...string) ([]*Report, error) {
	t.Helper()
	cfg, err := config.Parse("bridge.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	o.Offline = true
	return o.Reports(t.Context(), cfg, args, strings.NewReader(pod("")))
}

func write(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "object")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Each entry of watch has its own answer, in its own words. The object is watched if one covers it.
func TestWhyAnEntryCovers(t *testing.T) {
	const text = everything + `
watch:
- {resources: [deployments.apps]}
- {resources: ["*"], exclude: [pods]}
- {resources: [pods, nodes], namespaces: ["team-*", "!team-b"]}
- {resources: [pods], namespaces: [shop], labelSelector: "app=db"}
- {resources: [pods, nodes], namespaces: [shop, ""]}
`
	for object, want := range map[string][]Watch{
		pod(`,"labels":{"app":"web"}`): {
			{0, "deployments.apps", false, "does not include pods"},
			{1, "* without pods", false, "does not include pods"},
			{2, "pods, nodes in team-*, !team-b", false, "does not include the namespace shop"},
			{3, "pods in shop", false, "the selector app=db does not select it"},
			{4, "pods, nodes in shop, ", true, "covers the object"},
		},
		pod(`,"labels":{"app":"db"}`): {
			{0, "deployments.apps", false, "does not include pods"},
			{1, "* without pods", false, "does not include pods"},
			{2, "pods, nodes in team-*, !team-b", false, "does not include the namespace shop"},
			{3, "pods in shop", true, "the selector app=db selects it"},
			{4, "pods, nodes in shop, ", true, "covers the object"},
		},
		`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","uid":"u","resourceVersion":"1"}}`: {
			{0, "deployments.apps", false, "does not include nodes"},
			{1, "* without pods", true, "covers the object"},
			{2, "pods, nodes in team-*, !team-b", false, `the object is cluster-scoped, and namespaces does not list ""`},
			{3, "pods in shop", false, "does not include nodes"},
			{4, "pods, nodes in shop, ", true, "covers the object"},
		},
	} {
		reports, err := offline(t, Options{}, text, write(t, object))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, reports[0].Watch); diff != "" || !reports[0].Watched {
			t.Errorf("watched %v (-want +got):\n%s", reports[0].Watched, diff)
		}
	}
	reports, err := offline(t, Options{}, everything+"\nwatch: [{resources: [nodes]}]", "-")
	if err != nil || reports[0].Watched || reports[0].Sinks[0].Sent || reports[0].Sinks[0].Operation != "added" {
		t.Errorf("what no entry covers would be an addition, but is not sent: %+v, %v", reports, err)
	}
}

// The previous state must be one of the same object. Two states with one resourceVersion are noted.
func TestPreviousState(t *testing.T) {
	now := write(t, pod(""))
	for _, tt := range []struct{ name, old, want string }{
		{"another object", strings.Replace(pod(""), `"web"`, `"db"`, 1), "--old: the file contains object shop/db, not shop/web"},
		{"another uid", strings.Replace(pod(""), `"u1"`, `"u2"`, 1), "--old: the two states have different uids"},
		{"two objects", pod("") + "\n---\n" + pod(""), "--old: the file must have one object, but has 2"},
		{"not an object", "[]", "json: cannot unmarshal array"},
	} {
		if _, err := offline(
			t,
			Options{Old: write(t, tt.old)},
			everything,
			now,
		); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
	for version, notes := range map[string]string{
		"6": "",
		"7": "both states have the same resourceVersion, so `bridge run` would not see a change",
	} {
		old := write(t, strings.Replace(pod(`,"labels":{"a":"b"}`), `"7"`, `"`+version+`"`, 1))
		reports, err := offline(t, Options{Old: old}, everything, now)
		if err != nil || strings.Join(reports[0].Notes[1:], "; ") != notes || reports[0].Operation != "updated" {
			t.Errorf("resourceVersion %s: %+v, %v", version, reports, err)
		}
	}
}

// A manifest gets what the API server would add to it, and notes say what is assumed.
func TestManifest(t *testing.T) {
	const manifest = "kind: Policy\napiVersion: x.com/v1\nmetadata: {name: a}\nspec: {n: 12345678901234567}\n"
	for namespace, want := range map[string]Object{
		"":     {Resource: "policies.x.com", APIVersion: "x.com/v1", Kind: "Policy", Name: "a", ResourceVersion: unknownVersion},
		"shop": {Resource: "policies.x.com", APIVersion: "x.com/v1", Kind: "Policy", Namespace: "shop", Name: "a", ResourceVersion: unknownVersion},
	} {
		reports, err := offline(t, Options{Namespace: namespace}, everything, write(t, manifest))
		if err != nil {
			t.Fatal(err)
		}
		got := reports[0].Object
		want.Bytes = got.Bytes
		if diff := cmp.Diff(want, got); diff != "" || got.Bytes < len(manifest) {
			t.Errorf("namespace %q (-want +got):\n%s", namespace, diff)
		}
		notes := []string{
			"the resource policies.x.com is guessed from the kind; set --resource if it is wrong",
			"the object lacks the uid or resourceVersion that form the event id; the API server sets them",
		}
		if diff := cmp.Diff(notes, reports[0].Notes); diff != "" {
			t.Errorf("notes (-want +got):\n%s", diff)
		}
		if id := reports[0].Sinks[0].Message.ID; id != "<uid>.<resourceVersion>" {
			t.Errorf("id %s", id)
		}
	}
}

// No report contains a secret value, whatever a sink is sent, and the size is that of the message.
func TestSecretValuesAreNotShown(t *testing.T) {
	const value = "aHVudGVyMg=="
	secret := `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s","namespace":"shop","uid":"u1","resourceVersion":"7"},` +
		`"data":{"password":"` + value + `"}}`
	reports, err := offline(t, Options{}, `
sinks:
- {name: hidden, stdout: {}, filters: [{when: "object.data.password.size() == 1 / 0"}]}
- {name: plain, stdout: {}, secrets: plain, filters: [{when: "object.data.password == '`+value+`'"}]}
- {name: metadata, stdout: {}, payload: metadata}
`, write(t, secret))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(reports[0].Sinks)
	if err != nil || strings.Count(string(text), value) != 1 ||
		!strings.Contains(string(text), "object.data.password == '"+value) {
		t.Errorf("the value is only in the expression of the configuration: %s, %v", text, err)
	}
	hidden, plain, metadata := reports[0].Sinks[0], reports[0].Sinks[1], reports[0].Sinks[2]
	if !plain.Sent || plain.Message.Size != int64(len(secret)) || hidden.Message.Size <= plain.Message.Size ||
		metadata.Message.Size >= plain.Message.Size {
		t.Errorf("sizes: hidden %+v, plain %+v, metadata %+v", hidden.Message, plain.Message, metadata.Message)
	}
	if c := hidden.Filters[0].Conditions[0]; !c.Holds || c.Error == "" {
		t.Errorf("an expression that fails counts as true: %+v", c)
	}
}

// previewer is a destination that says where a message would be stored.
type previewer struct {
	sinks.Sink

	placement diagnose.Placement
	err       error
	asked     bool
}

func (p *previewer) Preview(_ context.Context, _ *event.Message, ask bool) (diagnose.Placement, error) {
	p.asked = ask
	return p.placement, p.err
}

// What the destination says becomes part of the report: where, what it rejects, what is too large and what it does not
// know. It is asked unless the command is offline.
func TestPlacement(t *testing.T) {
	const text = "sinks: [{name: out, oversize: gap, filters: [{operations: [added]}], kafka: {brokers: [\"127.0.0.1:1\"]}}]"
	for _, tt := range []struct {
		name        string
		destination previewer
		operation   event.Type
		want        Sink
	}{
		{
			name: "a topic", destination: previewer{placement: diagnose.Placement{Topic: "k8s.pods", Size: 10, Limit: 10}},
			want: Sink{Sent: true, Operation: "added", Message: &Message{Placement: diagnose.Placement{Topic: "k8s.pods", Size: 10, Limit: 10}}},
		}, {
			name: "too large", destination: previewer{placement: diagnose.Placement{Size: 11, Limit: 10}},
			want: Sink{Sent: true, Operation: "added", Message: &Message{
				Placement: diagnose.Placement{Size: 11, Limit: 10}, Oversize: "the sink's setting oversize: gap applies",
			}},
		}, {
			name: "no limit is known", destination: previewer{placement: diagnose.Placement{Size: 11, Unknown: errors.New("not allowed")}},
			want: Sink{Sent: true, Operation: "added", Message: &Message{
				Placement: diagnose.Placement{Size: 11}, Incomplete: "not allowed",
			}},
		}, {
			name: "rejected", destination: previewer{placement: diagnose.Placement{Size: 1}, err: errors.New("the subject is too long")},
			want: Sink{Sent: true, Operation: "added", Message: &Message{Placement: diagnose.Placement{Size: 1}}, Error: "the subject is too long"},
		}, {
			name: "suppressed", destination: previewer{}, operation: event.Deleted, want: Sink{},
		},
	} {
		for _, isOffline := range []bool{false, true} {
			e := explaining(t, text, objects{"/api/v1/namespaces/shop/pods?metadata.name=web": pod("")})
			e.Offline = isOffline
			if tt.operation != 0 {
				e.operation = tt.operation
			}
			s, err := e.readLive(t.Context(), "pods", "shop/web")
			if err != nil {
				t.Fatal(err)
			}
			redaction, err := assemble.RedactionWith(e.cfg, bytes.Repeat([]byte("k"), 32))
			if err != nil {
				t.Fatal(err)
			}
			c, destination := &e.cfg.Sinks[0], tt.destination
			part := assemble.Sink(e.cfg, c, redaction, &assemble.Destination{Sink: &destination, Key: c.Kafka.KeyTemplate()})
			got, err := e.explainSink(t.Context(), part, c, s)
			if err != nil {
				t.Fatal(err)
			}
			want := tt.want
			want.Name, want.Kind, want.Filters = "out", "kafka", got.Filters
			if got.Message != nil {
				if got.Message.ID != "u1.7" || got.Message.Attributes["name"] != "web" || destination.asked == isOffline {
					t.Errorf("%s: %+v, asked %v", tt.name, got.Message, destination.asked)
				}
				got.Message.ID, got.Message.Attributes, got.Message.Unknown = "", nil, nil
			}
			if diff := cmp.Diff(want, got); diff != "" || len(got.Filters) != 1 {
				t.Errorf("%s (-want +got):\n%s", tt.name, diff)
			}
		}
	}
}

// Without an API server, an object in a file is still explained, with a note. An object of the cluster is not explained.
func TestWithoutAPIServer(t *testing.T) {
	kubeconfig := write(t, `
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]`)
	cfg, err := config.Parse("bridge.yaml", fmt.Appendf(nil, "kubeconfig: %q\n%s", kubeconfig, everything))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{}
	reports, err := o.Reports(t.Context(), cfg, []string{"-"}, strings.NewReader(pod("")))
	if err != nil || !strings.HasPrefix(reports[0].Notes[0], "cannot query the API server: ") ||
		!reports[0].Sinks[0].Sent {
		t.Errorf("%+v, %v", reports, err)
	}
	if _, err := o.Reports(
		t.Context(),
		cfg,
		[]string{"pods", "shop/web"},
		nil,
	); err == nil ||
		!strings.Contains(err.Error(), "refused") {
		t.Errorf("an object of the cluster: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	o.Offline = true
	if _, err := o.Reports(
		ended,
		cfg,
		[]string{"-"},
		strings.NewReader(pod("")),
	); err == nil ||
		err.Error() != "interrupted" {
		t.Errorf("after a signal: %v", err)
	}
}
