package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/config"
)

// cluster serves pods, nodes and a group that does not answer, and lets the bridge read pods only.
func cluster(t *testing.T) *httptest.Server {
	t.Helper()
	resource := func(name, kind string, namespaced bool, verbs string) string {
		return fmt.Sprintf(
			`{"name":%q,"singularName":"","kind":%q,"namespaced":%v,"verbs":[%s]}`,
			name,
			kind,
			namespaced,
			verbs,
		)
	}
	const readable = `"get","list","watch"`
	server := httptest.NewServer(answers{
		"GET /version": `{"gitVersion":"v1.99.0"}`,
		whoAmI:         `{"status":{"userInfo":{"username":"system:serviceaccount:a:b"}}}`,
		system:         `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"k1","resourceVersion":"1"}}`,
		"GET /api":     `{"kind":"APIVersions","versions":["v1"]}`,
		"GET /apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"x.com",` +
			`"versions":[{"groupVersion":"x.com/v1","version":"v1"}],"preferredVersion":{"groupVersion":"x.com/v1","version":"v1"}}]}`,
		"GET /api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[` + strings.Join([]string{
			resource("pods", "Pod", true, readable), resource("nodes", "Node", false, readable),
			resource("pods/log", "Pod", true, `"get"`), resource("bindings", "Binding", true, `"create"`),
		}, ",") + `]}`,
		"GET /apis/x.com/v1":  http.StatusServiceUnavailable,
		"GET /api/v1/pods":    `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`,
		"WATCH /api/v1/pods":  "{}",
		"GET /api/v1/nodes":   http.StatusForbidden,
		"WATCH /api/v1/nodes": http.StatusForbidden,
		"GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions":   http.StatusForbidden,
		"WATCH /apis/apiextensions.k8s.io/v1/customresourcedefinitions": http.StatusForbidden,
		"GET /apis/apiregistration.k8s.io/v1/apiservices":               `{"kind":"List","apiVersion":"v1","metadata":{},"items":[]}`,
	})
	t.Cleanup(server.Close)
	return server
}

// The whole examination: each step in its order, from the kubeconfig to the destinations, with a remedy for each
// problem. It changes nothing.
func TestExamine(t *testing.T) {
	dir := t.TempDir()
	server := cluster(t)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf(
		"apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
			"clusters: [{name: c, cluster: {server: %q}}]\nusers: [{name: u, user: {}}]\n",
		server.URL,
	)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse("bridge.yaml", fmt.Appendf(nil, `
kubeconfig: %q
state: {path: %q}
watch: [{resources: [pods, gadgets.y.com]}, {resources: ["*"]}]
sinks: [{name: lines, stdout: {}}, {name: own, nats: {embedded: {listen: "127.0.0.1:0", storeDir: %q}, stream: {create: true}}}]
`, kubeconfig, filepath.Join(dir, "state"), filepath.Join(dir, "nats")))
	if err != nil {
		t.Fatal(err)
	}
	report, err := Examine(t.Context(), cfg, "dev")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range report.Findings {
		if f.Area == "state" { // depends on the machine; TestState checks it
			continue
		}
		line := strings.Join(
			strings.Fields(strings.Join([]string{f.Area + ":", f.Result, f.Step, f.Target, f.Detail, f.Error}, " ")),
			" ",
		)
		if f.Remedy != "" {
			line += " -> " + f.Remedy
		}
		got = append(
			got,
			strings.NewReplacer(server.URL, "URL", strings.TrimPrefix(server.URL, "http://"), "HOST", dir, "DIR").Replace(line),
		)
	}
	want := []string{
		"API server: ok kubeconfig DIR/kubeconfig API server URL",
		"API server: ok connect HOST connected",
		"API server: warning TLS HOST the connection is not encrypted, or the server certificate is not verified -> use https and certificate-authority in the kubeconfig, without insecure-skip-tls-verify",
		"API server: ok version Kubernetes v1.99.0",
		"API server: ok authenticate as system:serviceaccount:a:b",
		"API server: ok cluster namespace kube-system uid k1",
		"API server: ok discover 2 resources to watch",
		"API server: failed discover the cluster does not serve gadgets.y.com -> correct `watch` in the configuration, or install the resource",
		"API server: warning discover x.com/v1 the aggregated API server does not answer: -> fix or remove the APIService v1.x.com",
		"API server: warning authorize customresourcedefinitions no permission to list, watch: new custom resources are noticed after 30 seconds, not at once -> apply the output of `bridge rbac --config FILE`",
		"API server: ok authorize apiservices list",
		"API server: warning watch nodes no permission to list, watch: the bridge will not send its events -> apply the output of `bridge rbac --config FILE`, or exclude it",
		"API server: ok watch pods 0 objects",
		"sink lines: ok destination nothing to check",
		"sink own: ok files DIR/nats the store of the embedded server does not exist yet; the bridge creates it at startup",
		"sink own: ok connect 127.0.0.1:0 the address of the embedded server is free",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the examination wrote files: %v, %v", entries, err)
	}
	if report.Failed == 0 || report.OK+report.Warnings+report.Failed != len(report.Findings) {
		t.Errorf("counts: %+v", report)
	}
}

// If a step fails, those that depend on it are left out, and the others still run.
func TestExamineWithoutAPIServer(t *testing.T) {
	cfg := localConfig(t)
	report, err := Examine(t.Context(), cfg, "dev")
	if err != nil {
		t.Fatal(err)
	}
	areas := map[string]int{}
	for _, f := range report.Findings {
		areas[f.Area]++
	}
	if areas["API server"] != 1 || areas["state"] < 3 || areas["sink nats"] == 0 {
		t.Errorf("findings by area: %v", areas)
	}
	if _, err := os.Stat(cfg.State.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of the state: %v", err)
	}
	wrong := filepath.Join(t.TempDir(), "wrong.pem")
	if err := os.WriteFile(wrong, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err = config.Parse(
		"",
		fmt.Appendf(nil, `sinks: [{name: bad, kafka: {brokers: ["a:1"], tls: {caFile: %q}}}]`, wrong),
	)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Examine(
		t.Context(),
		cfg,
		"dev",
	); err == nil ||
		!strings.HasPrefix(err.Error(), "sink bad: files: ") {
		t.Errorf("a file without a certificate: %v", err)
	}
}
