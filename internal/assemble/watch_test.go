package assemble

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/pattern"
)

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("bridge.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// Without a sink that is sent changes, nothing is watched.
func TestWatched(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	audit := fmt.Sprintf("audit: {listen: 127.0.0.1:0, tokenFile: %q}\nwatch: [{resources: [events]}]\nsinks:\n"+
		"- {name: a, events: audit, stdout: {}}\n", file)
	for text, want := range map[string]int{
		audit:                             0,
		audit + "- {name: b, stdout: {}}": 1,
	} {
		if scopes := Watched(parse(t, text)); len(scopes) != want {
			t.Errorf("%s\n%d scopes", text, len(scopes))
		}
	}
}

// The entries of watch keep their order, and what only enrichment requires follows them.
func TestScopes(t *testing.T) {
	cfg := parse(t, `
watch:
- {resources: [secrets, "*.example.com"], exclude: [secretives.example.com], labelSelector: "app=web"}
- {resources: [pods], fieldSelector: "metadata.name=a", namespaces: [shop]}
sinks: [{name: s, enrich: {owner: true}, stdout: {}}]`)
	scopes := Scopes(cfg)
	if len(scopes) != 4 {
		t.Fatalf("%d scopes: %+v", len(scopes), scopes)
	}
	first, second := scopes[0], scopes[1]
	if first.LabelSelector != "app=web" || second.FieldSelector != "metadata.name=a" || len(second.Exclude) > 0 {
		t.Errorf("selectors: %+v, %+v", first, second)
	}
	if first.Resources[0].Wildcard() || !first.Resources[1].Wildcard() || first.Resources[1].String() != "*.example.com" {
		t.Errorf("patterns: %+v", first.Resources)
	}
	example := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: resource}
	}
	if !first.Resources[1].Matches(example("widgets")) || first.Resources[0].Matches(example("secrets")) {
		t.Error("a pattern matches another group, or not its own")
	}
	if !first.Exclude.Match(example("secretives")) || first.Exclude.Match(example("widgets")) {
		t.Error("the wrong resources are excluded")
	}
	for n, namespaces := range [][]string{nil, {"shop"}} {
		owners := scopes[2+n]
		if names, _ := owners.Namespaces.Literals(); !owners.Auxiliary || !slices.Equal(names, namespaces) ||
			!slices.Contains(owners.Resources, pattern.Resource{Resource: "replicasets", Group: "apps"}) {
			t.Errorf("owners: %+v", owners)
		}
	}
	if first.Auxiliary || second.Auxiliary {
		t.Error("an entry of watch is watched only for enrichment")
	}
}

// Outside a Pod, the configured file counts, or else the one of KUBECONFIG. Errors say what to set.
func TestKubeconfig(t *testing.T) {
	file := func(server string) string {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		text := fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: t}}]`, server)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	damaged := filepath.Join(t.TempDir(), "damaged")
	if err := os.WriteFile(damaged, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for name, test := range map[string]struct{ variable, path, host, err string }{
		"configured":   {variable: file("https://a"), path: file("https://b"), host: "https://b"},
		"of kubectl":   {variable: file("https://a"), host: "https://a"},
		"none":         {variable: filepath.Join(t.TempDir(), "none"), err: "not in a Pod, and there is no kubeconfig (set kubeconfig"},
		"not there":    {path: filepath.Join(t.TempDir(), "none"), err: "kubeconfig: "},
		"not readable": {path: damaged, err: "kubeconfig: "},
	} {
		t.Setenv("KUBECONFIG", test.variable)
		kube, err := Kubeconfig(test.path)
		switch {
		case test.err != "":
			if err == nil || !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil || kube.Host != test.host:
			t.Errorf("%s: %+v, %v", name, kube, err)
		}
	}
}
