package evaluate

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
)

// objects maps lists, as "path?fieldSelector", to the only object in them. A list that is not in the map is empty; one
// with the object "forbidden" is not allowed.
type objects map[string]string

func (o objects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	item := o[r.URL.Path+"?"+r.URL.Query().Get("fieldSelector")]
	if item == "forbidden" {
		w.WriteHeader(http.StatusForbidden)
		item = `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"not for you"}`
		_, _ = w.Write([]byte(item))
		return
	}
	_, _ = fmt.Fprintf(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[%s]}`, item)
}

// explaining returns an explainer of a configuration, for a cluster with these objects.
func explaining(t *testing.T, text string, o objects) *explainer {
	t.Helper()
	cfg, err := config.Parse("bridge.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(o)
	t.Cleanup(server.Close)
	client, err := informer.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.(*rest.RESTClient).Client.CloseIdleConnections)
	served := func(group, resource, kind string, namespaced bool, versions ...string) discovery.Served {
		return discovery.Served{
			GroupResource: schema.GroupResource{Group: group, Resource: resource}, Kind: kind, Namespaced: namespaced,
			Versions: versions,
		}
	}
	return &explainer{
		cfg: cfg, client: client, uid: "k1",
		served: []discovery.Served{
			served("", "namespaces", "Namespace", false, "v1"), served("", "nodes", "Node", false, "v1"),
			served("", "pods", "Pod", true, "v1"), served("apps", "deployments", "Deployment", true, "v1", "v1beta1"),
			served("apps", "replicasets", "ReplicaSet", true, "v1"),
			served("a.com", "widgets", "Widget", true, "v1"), served("b.com", "widgets", "Widget", true, "v1"),
		},
	}
}

const everything = "sinks: [{name: live, stdout: {}}]"

func web(more string) string {
	return `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"shop","uid":"u1","resourceVersion":"7"` +
		more + `}}`
}

// A resource is named by a pattern, or by a kind or plural that only one group has.
func TestFind(t *testing.T) {
	e := explaining(t, everything, nil)
	for name, want := range map[string]string{
		"pods": "pods", "Pod": "pods", "PODS": "pods", "deployments.apps": "deployments.apps", "deployments": "deployments.apps",
		"deployments.v1beta1.apps": "deployments.apps", "widgets.b.com": "widgets.b.com", "Deployment": "deployments.apps",
		"deployments.v2.apps": "the cluster has no resource deployments.v2.apps that can be listed and watched",
		"gadgets":             "the cluster has no resource gadgets that can be listed and watched",
		"widgets":             "widgets is ambiguous; use one of [widgets.a.com widgets.b.com]",
		"pods/log":            "pods/log: subresources cannot be watched",
	} {
		served, err := e.find(name)
		got := served.String()
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) || err == nil && got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// An object is read in the namespace of its name, then of the option, then in the default one; a cluster-scoped object
// in none. It is read in the version that is watched.
func TestReadLive(t *testing.T) {
	node := `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u2","resourceVersion":"8"}}`
	e := explaining(t, "watch: [{resources: [deployments.v1beta1.apps, pods]}]\n"+everything, objects{
		"/api/v1/namespaces/shop/pods?metadata.name=web":                  web(""),
		"/api/v1/namespaces/default/pods?metadata.name=web":               strings.Replace(web(""), "shop", "default", 1),
		"/api/v1/nodes?metadata.name=n1":                                  node,
		"/api/v1/namespaces/shop/pods?metadata.name=secret":               "forbidden",
		"/apis/apps/v1beta1/namespaces/shop/deployments?metadata.name=me": strings.Replace(web(""), "web", "me", 1),
	})
	for _, tt := range []struct{ resource, name, namespace, want string }{
		{"pods", "shop/web", "other", "shop/web"},
		{"pods", "web", "shop", "shop/web"},
		{"pods", "web", "", "default/web"},
		{"nodes", "n1", "shop", "n1"},
		{"nodes", "shop/n1", "", "n1"},
		{"deployments", "shop/me", "", "shop/me"},
		{"pods", "gone", "", `pods "gone" not found in the cluster (namespace "default")`},
		{"nodes", "gone", "", `nodes "gone" not found in the cluster (namespace "")`},
		{"pods", "shop/secret", "", "read pods shop/secret: not for you"},
		{"gadgets", "x", "", "the cluster has no resource gadgets"},
	} {
		e.Namespace = tt.namespace
		s, err := e.readLive(t.Context(), tt.resource, tt.name)
		var got string
		if err != nil {
			got = err.Error()
		} else {
			got = strings.TrimPrefix(s.now.GetNamespace()+"/"+s.now.GetName(), "/")
		}
		if !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s %s: %s, want %s", tt.resource, tt.name, got, tt.want)
		}
	}
}

// Only the API server evaluates a field selector: for a live object it is asked, for one in a file it is not known.
func TestFieldSelectors(t *testing.T) {
	const watch = "watch: [{resources: [pods], labelSelector: %q, fieldSelector: status.phase=Running}]\n" + everything
	const selected = "/api/v1/namespaces/shop/pods?metadata.name=web,status.phase=Running"
	labeled := web(`,"labels":{"app":"web"}`)
	for _, tt := range []struct {
		name, labels string
		live         bool
		answer       string
		covers       bool
		why          string
	}{
		{"selected", "", true, labeled, true, "the selector status.phase=Running selects it"},
		{"not selected", "", true, "", false, "the selector status.phase=Running does not select it"},
		{"labels and fields", "app=web", true, labeled, true, "the selector app=web status.phase=Running selects it"},
		{"other labels", "app=db", true, labeled, false, "the selector app=db status.phase=Running does not select it"},
		{"from a file", "", false, "", true, "covers the object if the fieldSelector status.phase=Running selects it, which only the API server knows"},
	} {
		e := explaining(t, fmt.Sprintf(watch, tt.labels), objects{
			"/api/v1/namespaces/shop/pods?metadata.name=web": labeled, selected: tt.answer,
		})
		s, err := e.readLive(t.Context(), "pods", "shop/web")
		if err != nil {
			t.Fatal(err)
		}
		s.live = tt.live
		r, err := e.begin(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		want := []Watch{{Text: "pods", Covers: tt.covers, Why: tt.why}}
		if diff := cmp.Diff(want, r.Watch); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	e := explaining(t, fmt.Sprintf(watch, ""), objects{
		"/api/v1/namespaces/shop/pods?metadata.name=web": labeled, selected: "forbidden",
	})
	s, err := e.readLive(t.Context(), "pods", "shop/web")
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.begin(t.Context(), s)
	if want := "watch[0]: list objects selected by status.phase=Running: not for you"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// What a sink requires in addition is read as `bridge run` would know it: the namespace, and the owners up to the top
// one. What cannot be read is noted.
func TestRelated(t *testing.T) {
	const text = "sinks: [{name: out, filters: [{namespaceSelector: team=red}], enrich: {owner: true}, stdout: {}}," +
		" {name: all, enrich: {owner: true, namespaceLabels: true}, stdout: {}}]"
	const (
		namespace  = "/api/v1/namespaces?metadata.name=shop"
		replicaSet = "/apis/apps/v1/namespaces/shop/replicasets?metadata.name=web-1"
		deployment = "/apis/apps/v1/namespaces/shop/deployments?metadata.name=web"
	)
	owned := func(kind, name, uid string) string {
		return fmt.Sprintf(`,"ownerReferences":[{"apiVersion":"apps/v1","kind":%q,"name":%q,"uid":%q,"controller":true}]`,
			kind, name, uid)
	}
	object := func(kind, name, uid, more string) string {
		return fmt.Sprintf(`{"kind":%q,"apiVersion":"apps/v1","metadata":{"name":%q,"namespace":"shop","uid":%q,`+
			`"resourceVersion":"5"%s}}`, kind, name, uid, more)
	}
	team := func(name string) string {
		return `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"shop","uid":"n1","labels":{"team":"` + name + `"}}}`
	}
	known := objects{
		"/api/v1/namespaces/shop/pods?metadata.name=web": web(owned("ReplicaSet", "web-1", "r1")),
		namespace:  team("red"),
		replicaSet: object("ReplicaSet", "web-1", "r1", owned("Deployment", "web", "d1")),
		deployment: object("Deployment", "web", "d1", ""),
	}
	const top, first = "Deployment.apps/web", "ReplicaSet.apps/web-1"
	for name, tt := range map[string]struct {
		list, answer string // instead of that in known
		owner, team  string
		note         string
	}{
		"all":                   {owner: top, team: "red"},
		"another team":          {list: namespace, answer: team("blue"), owner: top, team: "blue"},
		"the top owner is gone": {list: deployment, owner: top, team: "red", note: "deployments.apps web does not exist"},
		"another object has the owner's name": {
			list: replicaSet, answer: object("ReplicaSet", "web-1", "r2", owned("Deployment", "web", "d1")),
			owner: first, team: "red",
		},
		"the namespace is gone": {list: namespace, owner: top, note: "namespaces shop does not exist"},
		"forbidden": {
			list: namespace, answer: "forbidden", owner: top, note: "cannot read namespaces shop: not for you",
		},
		"offline": {
			owner: first, note: "the namespace and the owners are unknown, because the API server was not queried",
		},
	} {
		lists := maps.Clone(known)
		if tt.list != "" {
			lists[tt.list] = tt.answer
		}
		e := explaining(t, text, lists)
		s, err := e.readLive(t.Context(), "pods", "shop/web")
		if err != nil {
			t.Fatal(err)
		}
		if name == "offline" {
			e.client = nil
		}
		r, err := e.explain(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		attributes := r.Sinks[1].Message.Attributes
		owner, team := attributes["owner"], strings.TrimPrefix(attributes["namespacelabels"], "team=")
		if owner != tt.owner || team != tt.team || r.Sinks[0].Sent != (team == "red") {
			t.Errorf("%s: owner %s, team %s, sent to out: %v", name, owner, team, r.Sinks[0].Sent)
		}
		if notes := strings.Join(r.Notes, "; "); notes != tt.note {
			t.Errorf("%s: notes: %q, want %q", name, notes, tt.note)
		}
	}
}

// The resource of an object in a file comes from the API server, from --resource, or is guessed, which a note says.
func TestServedOf(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		kind, apiVersion, resource string
		offline                    bool
		want, note                 string
	}{
		{"Deployment", "apps/v1", "", false, "deployments.apps", ""},
		{"Deployment", "apps/v7", "", false, "deployments.apps", "the cluster does not serve the kind Deployment of apps/v7; the resource deployments.apps is guessed"},
		{"Policy", "x.com/v1", "", true, "policies.x.com", "the resource policies.x.com is guessed from the kind; set --resource if it is wrong"},
		{"Policy", "x.com/v1", "rules.x.com", true, "rules.x.com", ""},
		{"Policy", "x.com/v1", "Rules", true, "--resource Rules: write the resource as its lower-case plural", ""},
	} {
		e := explaining(t, everything, nil)
		e.Resource = tt.resource
		if tt.offline {
			e.client, e.served = nil, nil
		}
		file := filepath.Join(dir, "object.yaml")
		text := fmt.Sprintf(
			"kind: %s\napiVersion: %s\nmetadata: {name: a, uid: u, resourceVersion: \"1\"}\n",
			tt.kind,
			tt.apiVersion,
		)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		states, err := readObjects(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		served, notes, err := e.servedOf(states[0])
		got := served.String()
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, tt.want) || !strings.HasPrefix(strings.Join(notes, ""), tt.note) ||
			(tt.note == "") != (len(notes) == 0) {
			t.Errorf("%s: %s, %q", tt.kind, got, notes)
		}
	}
}

// Large integers keep their digits, and an error names the file but does not quote the object.
func TestReadObjects(t *testing.T) {
	states, err := readObjects("-", strings.NewReader(`{"kind":"A","metadata":{"name":"a"},"n":12345678901234567}`))
	if err != nil || states[0].Object["n"] != int64(12345678901234567) {
		t.Errorf("%v, %v", states, err)
	}
	_, err = readObjects("-", strings.NewReader("kind: A\nmetadata: {name: s3cret\n"))
	if err == nil || !strings.HasPrefix(err.Error(), "-: ") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%v", err)
	}
}
