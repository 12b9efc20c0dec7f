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
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
)

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("bridge.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// Only literal namespaces have their own watches; patterns restrict a watch of all namespaces, and their order does not
// change the scope.
func TestNamespacesOfAScope(t *testing.T) {
	for _, test := range []struct {
		namespaces string
		own        []string
		text       string // of Accept
		accepted   string // namespaces out of a, b and "" that Accept accepts
	}{
		{namespaces: "[]", accepted: "all"},
		{namespaces: "[a, b]", own: []string{"a", "b"}, accepted: "all"},
		{namespaces: `["a*", "!b"]`, text: "!b,a*", accepted: "a"},
		{namespaces: `["!b", "a*", "a*"]`, text: "!b,a*", accepted: "a"},
		{namespaces: `["!b"]`, text: "!b", accepted: "a "},
		{namespaces: `["*"]`, text: "*", accepted: "ab "},
	} {
		cfg := parse(t, "watch: [{resources: [pods], namespaces: "+test.namespaces+"}]\nsinks: [{name: s, stdout: {}}]")
		scope := newScope(&cfg.Watch[0])
		if !slices.Equal(scope.Namespaces, test.own) || scope.AcceptText != test.text {
			t.Errorf("%s: watches of %q, accepts %q", test.namespaces, scope.Namespaces, scope.AcceptText)
		}
		accepted := "all"
		if scope.Accept != nil {
			accepted = ""
			for _, namespace := range []string{"a", "b"} {
				if scope.Accept(namespace) {
					accepted += namespace
				}
			}
			if scope.Accept("") { // of objects that have no namespace
				accepted += " "
			}
		}
		if accepted != test.accepted {
			t.Errorf("%s: accepts %q, want %q", test.namespaces, accepted, test.accepted)
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
	if first.LabelSelector != "app=web" || second.FieldSelector != "metadata.name=a" || second.Exclude != nil {
		t.Errorf("selectors: %+v, %+v", first, second)
	}
	if first.Patterns[0].Wildcard || !first.Patterns[1].Wildcard || first.Patterns[1].Text != "*.example.com" {
		t.Errorf("patterns: %+v", first.Patterns)
	}
	example := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: resource}
	}
	if !first.Patterns[1].Match(example("widgets")) || first.Patterns[0].Match(example("secrets")) {
		t.Error("a pattern matches another group, or not its own")
	}
	if !first.Exclude(example("secretives")) || first.Exclude(example("widgets")) {
		t.Error("the wrong resources are excluded")
	}
	for n, namespaces := range [][]string{nil, {"shop"}} {
		owners := scopes[2+n]
		if !owners.Auxiliary || !slices.Equal(owners.Namespaces, namespaces) ||
			!slices.ContainsFunc(owners.Patterns, func(p fleet.Pattern) bool { return p.Text == "replicasets.apps" }) {
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
