package doctor

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
)

// answers maps requests, as "VERB path", to answers: a status code, or a body with the status 200. The verb of a watch is
// WATCH. A request that is not in the map is not found.
type answers map[string]any

func (a answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	verb := r.Method
	if r.URL.Query().Get("watch") != "" {
		verb = "WATCH"
	}
	code, body := http.StatusNotFound, ""
	switch answer := a[verb+" "+r.URL.Path].(type) {
	case int:
		code = answer
	case string:
		code, body = http.StatusOK, answer
	}
	if body == "" {
		body = fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q}`,
			code, reasons()[code])
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(body))
}

func reasons() map[int]string {
	return map[int]string{
		400: "BadRequest",
		401: "Unauthorized",
		403: "Forbidden",
		404: "NotFound",
		405: "MethodNotAllowed",
	}
}

// examining returns an examination of an API server with these answers.
func examining(t *testing.T, a answers) *examination {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	client, err := informer.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.(*rest.RESTClient).Client.CloseIdleConnections)
	return &examination{cfg: config.Default(), client: client}
}

const (
	whoAmI = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews"
	system = "GET /api/v1/namespaces/kube-system"
)

// What the API server says of the bridge's identity ends the examination only if nothing else can succeed.
func TestAuthenticate(t *testing.T) {
	for _, tt := range []struct {
		answer    any
		result    string
		text      string
		goesOn    bool
		hasRemedy bool
	}{
		{`{"status":{"userInfo":{"username":"system:serviceaccount:a:b"}}}`, "ok", "as system:serviceaccount:a:b", true, false},
		{`{"status":{"userInfo":{"username":"system:anonymous"}}}`, "warning", "is not authenticated", true, true},
		{http.StatusUnauthorized, "failed", "", false, true},
		{http.StatusForbidden, "ok", "does not report the user name", true, false},
		{http.StatusNotFound, "ok", "does not report the user name", true, false},
		{http.StatusTeapot, "failed", "", false, true},
		{`{"status":`, "failed", "unexpected end of JSON", false, true},
	} {
		e := examining(t, answers{whoAmI: tt.answer})
		goesOn := e.authenticate(t.Context(), e.client)
		f := e.report.Findings[0]
		if goesOn != tt.goesOn || f.Result != tt.result || !strings.Contains(f.Detail+f.Error, tt.text) ||
			(f.Remedy != "") != tt.hasRemedy {
			t.Errorf("%v: goes on: %v, %+v", tt.answer, goesOn, f)
		}
	}
}

// Without the uid of the cluster, the bridge runs, but does not notice another cluster.
func TestReadClusterUID(t *testing.T) {
	namespace := `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"k1","resourceVersion":"1"}}`
	for _, tt := range []struct {
		answer       any
		result, text string
	}{
		{namespace, "ok", "uid k1"},
		{http.StatusForbidden, "warning", "would not notice that a checkpoint belongs to another cluster"},
		{http.StatusTeapot, "warning", "would not notice that a checkpoint belongs to another cluster: "},
	} {
		e := examining(t, answers{system: tt.answer})
		e.readClusterUID(t.Context())
		f := e.report.Findings[0]
		if f.Result != tt.result || !strings.Contains(f.Detail, tt.text) || (f.Remedy == rbacRemedy) != (tt.result != "ok") {
			t.Errorf("%v: %+v", tt.answer, f)
		}
		if (e.cluster == "k1") != (tt.result == "ok") {
			t.Errorf("%v: cluster %q", tt.answer, e.cluster)
		}
	}
}

// The step that failed and its remedy depend on how far the connection came.
func TestConnect(t *testing.T) {
	secure := httptest.NewUnstartedServer(answers{})
	secure.Config.ErrorLog = nil
	secure.StartTLS()
	defer secure.Close()
	plain := httptest.NewServer(answers{"GET /version": `{"gitVersion":"v1.99.0"}`})
	defer plain.Close()
	for _, tt := range []struct {
		host   string
		passes bool
		want   []string // step, result and a part of the text of each finding
	}{
		{plain.URL, true, []string{
			"connect ok connected", "TLS warning the connection is not encrypted", "version ok Kubernetes v1.99.0",
		}},
		{"http://127.0.0.1:1", false, []string{"connect failed connection refused"}},
		{secure.URL, false, []string{"TLS failed certificate"}},
		{"https://nowhere.invalid", false, []string{"resolve failed nowhere.invalid"}},
	} {
		client, err := informer.NewClient(&rest.Config{Host: tt.host})
		if err != nil {
			t.Fatal(err)
		}
		e := &examination{cfg: config.Default()}
		if passes := e.connect(t.Context(), client, false); passes != tt.passes || len(e.report.Findings) != len(tt.want) {
			t.Errorf("%s: %v, %+v", tt.host, passes, e.report.Findings)
			continue
		}
		for n, f := range e.report.Findings {
			start, text, _ := strings.Cut(tt.want[n], f.Result+" ")
			if start != f.Step+" " || !strings.Contains(f.Detail+f.Error, text) || (f.Result == "ok") != (f.Remedy == "") {
				t.Errorf("%s: %+v, want %s", tt.host, f, tt.want[n])
			}
		}
		client.(*rest.RESTClient).Client.CloseIdleConnections()
	}
}

// Each verb that is not allowed has its own consequence, which also depends on how the resource was selected.
func TestCheckWatched(t *testing.T) {
	const (
		get   = "GET /api/v1/namespaces/default/pods/" + informer.ProbeName
		list  = "GET /api/v1/pods"
		watch = "WATCH /api/v1/pods"
	)
	few := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"c","remainingItemCount":41},` +
		`"items":[{"metadata":{"name":"a","namespace":"b","uid":"u","resourceVersion":"1"}}]}`
	some := strings.Replace(few, `,"remainingItemCount":41`, "", 1)
	one := strings.Replace(some, `,"continue":"c"`, "", 1)
	for _, tt := range []struct {
		name               string
		answers            answers
		named, auxiliary   bool
		result, text, does string
	}{
		{"counted", answers{list: few, watch: ""}, false, false, "ok", "42 objects", ""},
		{"not counted", answers{list: some, watch: ""}, false, false, "ok", "more than 1 objects", ""},
		{"one", answers{list: one, watch: ""}, false, false, "ok", "1 objects", ""},
		{"get is not served", answers{get: 405, list: one, watch: ""}, false, false, "ok", "1 objects", ""},
		{"get", answers{get: 403, list: one, watch: ""}, true, false, "warning", "no permission to get: the bridge detects only later", rbacRemedy},
		{"list, named", answers{list: 403, watch: ""}, true, false, "failed", "no permission to list", rbacRemedy},
		{"both, named", answers{list: 403, watch: 403}, true, false, "failed", "no permission to list, watch", rbacRemedy},
		{"watch, by wildcard", answers{list: one, watch: 403}, false, false, "warning", "no permission to watch: the bridge will not send its events", rbacRemedy + ", or exclude it"},
		{"for enrichment", answers{list: 403, watch: ""}, false, true, "warning", "events will not be enriched with this resource", rbacRemedy},
		{"selector", answers{list: 400, watch: ""}, true, false, "failed", "list: ", "correct labelSelector or fieldSelector"},
		{"broken", answers{list: one, watch: 418}, true, false, "failed", "watch: ", checkLog},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.answers[watch] == "" {
				tt.answers[watch] = "{}"
			}
			e := examining(t, tt.answers)
			pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
			found := e.checkWatched(t.Context(), &fleet.Watched{
				Source: informer.Source{Resource: pods}, Namespaced: true, Named: tt.named, Auxiliary: tt.auxiliary,
			})
			e.add(found)
			f := e.report.Findings[0]
			if f.Step != "watch" || f.Target != "pods" || f.Result != tt.result ||
				!strings.Contains(f.Detail+f.Error, tt.text) ||
				!strings.HasPrefix(f.Remedy, tt.does) ||
				(tt.does == "") != (f.Remedy == "") {
				t.Errorf("%+v", f)
			}
		})
	}
}

// Rights that the bridge can do without are warnings that say what is missed. They are asked for only if the
// configuration requires them.
func TestOwnRights(t *testing.T) {
	const services = "GET /apis/apiregistration.k8s.io/v1/apiservices"
	none := `{"kind":"List","apiVersion":"v1","metadata":{},"items":[]}`
	for _, tt := range []struct {
		answer       any
		result, text string
	}{
		{none, "ok", "list"},
		{403, "warning", "no permission to list: the bridge does not recognize aggregated APIs"},
		{418, "warning", "the bridge does not recognize aggregated APIs"},
		{404, "ok", "list"},
	} {
		e := examining(t, answers{services: tt.answer})
		e.cfg.Watch = []config.Watch{{Resources: []string{"widgets.example.com"}}}
		e.checkOwnRights(t.Context())
		if len(e.report.Findings) != 1 {
			t.Fatalf("%v: %+v", tt.answer, e.report.Findings)
		}
		f := e.report.Findings[0]
		if f.Target != "apiservices" || f.Result != tt.result || !strings.Contains(f.Detail, tt.text) ||
			(f.Result == "ok") != (f.Remedy == "") {
			t.Errorf("%v: %+v", tt.answer, f)
		}
	}
	e := examining(t, answers{})
	e.cfg.Watch = []config.Watch{{Resources: []string{"pods"}}}
	if e.checkOwnRights(t.Context()); len(e.report.Findings) > 0 {
		t.Errorf("only pods are watched: %+v", e.report.Findings)
	}
}

// A filter that selects namespaces by their labels requires the rights to read them.
func TestCheckNamespaces(t *testing.T) {
	const list, watch = "GET /api/v1/namespaces", "WATCH /api/v1/namespaces"
	none := `{"kind":"List","apiVersion":"v1","metadata":{},"items":[]}`
	for _, tt := range []struct {
		list, watch  any
		result, text string
	}{
		{none, "{}", "ok", "namespaceSelector: 0 objects"},
		{none, 403, "failed", "namespaceSelector: no permission to watch"},
		{403, 403, "failed", "namespaceSelector: no permission to list, watch"},
		{418, "{}", "failed", "namespaceSelector: list: "},
	} {
		e := examining(t, answers{list: tt.list, watch: tt.watch})
		e.checkNamespaces(t.Context())
		if len(e.report.Findings) > 0 {
			t.Errorf("no filter selects namespaces: %+v", e.report.Findings)
		}
		e.cfg.Sinks[0].Filters = []filter.Rule{{NamespaceSelector: "a"}}
		e.checkNamespaces(t.Context())
		if f := e.report.Findings[0]; f.Result != tt.result || !strings.HasPrefix(f.Detail+f.Error, tt.text) {
			t.Errorf("%+v, want %s", f, tt.text)
		}
	}
}

// A file where no directory can be, and a disk that cannot take what the spills may need.
func TestSpace(t *testing.T) {
	cfg := localConfig(t)
	if f := outcome(
		t,
		cfg,
		"state",
		"space",
	); f.Result != "ok" ||
		!strings.Contains(f.Detail, "spills can take up to 1Gi") ||
		strings.Contains(f.Detail, "now") {
		t.Errorf("nothing spilled: %+v", f)
	}
	spill := filepath.Join(cfg.State.Path, "spill-"+cfg.Sinks[0].Name)
	if err := os.MkdirAll(spill, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(spill, "1"), make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Sinks[0].Buffer.Spill.MaxBytes = 1 << 60
	if f := outcome(t, cfg, "state", "space"); f.Result != "warning" || !strings.Contains(f.Detail, "and use 3Mi now") ||
		!strings.Contains(f.Remedy, "buffer.spill.maxBytes") {
		t.Errorf("not enough space: %+v", f)
	}
}
