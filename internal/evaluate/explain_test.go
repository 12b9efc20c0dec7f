package evaluate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// offline explains objects from files, for a configuration in which everything is watched unless the text says more.
func offline(t *testing.T, o ExplainOptions, text string, args ...string) ([]*Report, error) {
	t.Helper()
	cfg, err := config.Parse("bridge.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	o.Offline = true
	return o.Explain(t.Context(), cfg, args, strings.NewReader(web("")))
}

// Each entry of watch has its own answer, in its own words. The object is watched if one covers it.
func TestWhyAnEntryCovers(t *testing.T) {
	const text = everything + `
watch:
- {resources: [deployments.apps]}
- {resources: ["*"], exclude: [pods]}
- {resources: [pods, nodes], namespaces: ["team-*", "!team-b"]}
- {resources: [pods], namespaces: [shop], labelSelector: "app=db"}
- {resources: [nodes], namespaces: [shop, ""]}
`
	for object, want := range map[string][]Watch{
		web(`,"labels":{"app":"web"}`): {
			{0, "deployments.apps", false, "does not include pods"},
			{1, "* without pods", false, "does not include pods"},
			{2, "pods, nodes in team-*, !team-b", false, "does not include the namespace shop"},
			{3, "pods in shop", false, "the selector app=db does not select it"},
			{4, "nodes in shop, ", false, "does not include pods"},
		},
		web(`,"labels":{"app":"db"}`): {
			{0, "deployments.apps", false, "does not include pods"},
			{1, "* without pods", false, "does not include pods"},
			{2, "pods, nodes in team-*, !team-b", false, "does not include the namespace shop"},
			{3, "pods in shop", true, "the selector app=db selects it"},
			{4, "nodes in shop, ", false, "does not include pods"},
		},
		`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","uid":"u","resourceVersion":"1"}}`: {
			{0, "deployments.apps", false, "does not include nodes"},
			{1, "* without pods", true, "covers the object"},
			{2, "pods, nodes in team-*, !team-b", false, `the object is cluster-scoped, and namespaces does not list ""`},
			{3, "pods in shop", false, "does not include nodes"},
			{4, "nodes in shop, ", true, "covers the object"},
		},
	} {
		reports, err := offline(t, ExplainOptions{}, text, write(t, object))
		if err != nil {
			t.Fatal(err)
		}
		covered := slices.ContainsFunc(want, func(w Watch) bool { return w.Covers })
		if diff := cmp.Diff(want, reports[0].Watch); diff != "" || reports[0].Watched != covered {
			t.Errorf("watched %v (-want +got):\n%s", reports[0].Watched, diff)
		}
	}
	reports, err := offline(t, ExplainOptions{}, everything+"\nwatch: [{resources: [nodes]}]", "-")
	if err != nil || reports[0].Watched || reports[0].Sinks[0].Sent || reports[0].Sinks[0].Operation != "added" {
		t.Errorf("what no entry covers would be an addition, but is not sent: %+v, %v", reports, err)
	}
}

// What an update does at a watch depends on the selector before and after it, as at an API server.
func TestUpdateCrossesASelector(t *testing.T) {
	const text = everything + "\nwatch: [{resources: [pods], labelSelector: app=db}]"
	inside, outside := web(`,"labels":{"app":"db"}`), strings.Replace(web(""), `"7"`, `"8"`, 1)
	for _, tt := range []struct{ old, now, want string }{
		{inside, outside, "deleted"}, {outside, inside, "added"}, {inside, strings.Replace(inside, `"7"`, `"8"`, 1), "updated"},
	} {
		reports, err := offline(t, ExplainOptions{Old: write(t, tt.old)}, text, write(t, tt.now))
		if err != nil || !reports[0].Watched || !reports[0].Sinks[0].Sent || reports[0].Sinks[0].Operation != tt.want {
			t.Errorf("want %s: %+v, %v", tt.want, reports, err)
		}
	}
}

// The previous state must be one of the same object. Two states with one resourceVersion are noted.
func TestPreviousState(t *testing.T) {
	now := write(t, web(""))
	for _, tt := range []struct{ name, old, want string }{
		{"another object", strings.Replace(web(""), `"web"`, `"db"`, 1), "--old: the file has no object shop/web"},
		{"another uid", strings.Replace(web(""), `"u1"`, `"u2"`, 1), "--old: the two states have different uids"},
		{"not an object", "[]", "json: cannot unmarshal array"},
	} {
		if _, err := offline(
			t,
			ExplainOptions{Old: write(t, tt.old)},
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
		old := write(t, strings.Replace(web(`,"labels":{"a":"b"}`), `"7"`, `"`+version+`"`, 1))
		reports, err := offline(t, ExplainOptions{Old: old}, everything, now)
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
		reports, err := offline(t, ExplainOptions{Namespace: namespace}, everything, write(t, manifest))
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
	reports, err := offline(t, ExplainOptions{}, `
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
	cfg, err := config.Parse("bridge.yaml", []byte(`sinks: [{name: out, oversize: gap, nats: {url: "nats://a:4222"}}]`))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		destination previewer
		want        Sink
	}{
		"a topic": {
			previewer{placement: diagnose.Placement{Topic: "k8s.pods", Size: 10, Limit: 10}},
			Sink{Message: &Message{Placement: diagnose.Placement{Topic: "k8s.pods", Size: 10, Limit: 10}}},
		},
		"too large": {
			previewer{placement: diagnose.Placement{Size: 11, Limit: 10}},
			Sink{Message: &Message{
				Placement: diagnose.Placement{Size: 11, Limit: 10}, Oversize: "the sink's setting oversize: gap applies",
			}},
		},
		"no limit is known": {
			previewer{placement: diagnose.Placement{Size: 11, Unknown: errors.New("not allowed")}},
			Sink{Message: &Message{Placement: diagnose.Placement{Size: 11}, Incomplete: "not allowed"}},
		},
		"rejected": {
			previewer{placement: diagnose.Placement{Size: 1}, err: errors.New("the subject is too long")},
			Sink{Message: &Message{Placement: diagnose.Placement{Size: 1}}, Error: "the subject is too long"},
		},
	} {
		for _, ask := range []bool{false, true} {
			e := &evaluator{options: options{cfg: cfg, ask: ask}}
			sink := engine.Sink{Name: "out", Destination: &tt.destination}
			m := e.message(t.Context(), &sink, &event.Message{Type: event.Added, ID: "u1.7", Data: []byte("{}")})
			got := Sink{messages: []*Message{m}}
			got.describe()
			if m.ID != "u1.7" || m.Attributes["id"] != "u1.7" || tt.destination.asked != ask {
				t.Errorf("%s: %+v, asked %v", name, m, tt.destination.asked)
			}
			m.ID, m.Attributes, m.Unknown = "", nil, nil
			tt.want.Sent, tt.want.Operation = true, "added"
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreUnexported(Sink{}, Message{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
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
	o := ExplainOptions{}
	reports, err := o.Explain(t.Context(), cfg, []string{"-"}, strings.NewReader(web("")))
	if err != nil || !strings.HasPrefix(reports[0].Notes[0], "cannot query the API server: ") ||
		!reports[0].Sinks[0].Sent {
		t.Errorf("%+v, %v", reports, err)
	}
	if _, err := o.Explain(
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
	if _, err := o.Explain(
		ended,
		cfg,
		[]string{"-"},
		strings.NewReader(web("")),
	); err == nil ||
		err.Error() != "interrupted" {
		t.Errorf("after a signal: %v", err)
	}
}
