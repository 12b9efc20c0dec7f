package evaluate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/console"
)

// output runs the tests of a file with a configuration, and returns what is printed.
func output(t *testing.T, o TestOptions, file, configuration string) (*Results, string) {
	t.Helper()
	o.Config = func() (*config.Config, error) { return config.Parse("bridge.yaml", []byte(configuration)) }
	r := o.Test(file)
	var text strings.Builder
	if err := r.WriteTable(&text, console.Style{}); err != nil {
		t.Fatal(err)
	}
	return r, text.String()
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The tests in testdata pass for a right configuration, and find each of the mistakes in it. The output names the
// difference.
func TestFindsWrongConfigurations(t *testing.T) {
	right := read(t, filepath.Join("testdata", "bridge.yaml"))
	file := filepath.Join("testdata", "bridge_test.yaml")
	if r, text := output(t, TestOptions{}, file, right); r.Err != nil || text != "ok  "+file+": 4 passed\n" {
		t.Fatalf("the right configuration fails:\n%s", text)
	}
	for name, wrong := range map[string]struct {
		old, new string
		want     []string
	}{
		"watch without the resource": {
			"[deployments.apps, secrets, ", "[secrets, ",
			[]string{
				"- event 1: added k8s.prod.deployments.shop.web",
				"nothing was sent because of change 1 (add deployments.apps/shop/web)",
				"no   watch[1]  pods: does not include deployments.apps",
			},
		},
		"watch without the namespace": {
			"[shop, \"team-*\", ", "[\"team-*\", ", []string{"does not include the namespace shop"},
		},
		"watch without an exclusion": {
			", \"!team-test\"", "", []string{"+ added secrets/team-test/key", "not expected, but sent because of change 4", "yes  filters[2]"},
		},
		"watch with another label": {
			"tier!=test", "tier=test", []string{"no   watch[1]  pods: the selector tier=test spec.nodeName!=virtual does not select it"},
		},
		"watch without a label selector": {
			"    labelSelector: tier!=test\n", "", []string{"+ added pods/team-a/c"},
		},
		"watch with another field": {
			"spec.nodeName!=virtual", "spec.nodeName=virtual",
			[]string{"no   watch[1]  pods: the selector tier!=test spec.nodeName=virtual does not select it"},
		},
		"filter with another resource": {
			"resources: [deployments.apps]\n        when", "resources: [statefulsets.apps]\n        when",
			[]string{"no   resources   statefulsets.apps (found: deployments.apps)"},
		},
		"filter with another operator": {
			"replicas > 2", "replicas >= 2",
			[]string{"- event 3: left", "+ updated deployments.apps/shop/web", "because of change 3", "yes  when        object.spec.replicas >= 2"},
		},
		"filter with another constant": {
			"replicas > 2", "replicas > 3", []string{"no   when        object.spec.replicas > 3"},
		},
		"filter that suppresses leaves": {
			"replicas > 2\"", "replicas > 2\"\n        operations: [added, updated]",
			[]string{
				"no   filters[0]  previous state", "no   operations  added, updated (found: deleted)", "no   filters[0]  new state",
			},
		},
		"filter with a misspelt field": {
			"object.spec != old.spec", "object.spce != old.spce", []string{"+ updated widgets.example.com/shop/w", "because of change 1"},
		},
		"filter with another namespace": {
			"namespaces: [\"team-*\"]\n        only", "namespaces: [\"shop\"]\n        only",
			[]string{"no   namespaces  shop (found: team-a)", "event 1: added pods/shop/b"},
		},
		"filter without an operation": {
			"operations: [added, deleted]", "operations: [added]", []string{"no   operations  added (found: deleted)"},
		},
		"filter with an operation too many": {
			"operations: [added, deleted]", "operations: [added, updated, deleted]",
			[]string{"+ updated secrets/shop/key", "because of change 2 (patch secrets/shop/key)", "yes  filters[2]"},
		},
		"filter with another path in onlyChanges": {
			"onlyChanges: [status.phase]", "onlyChanges: [status.podIP]",
			[]string{"event 2: updated pods/team-a/a, because of change 2", "data.status.phase", `- "Running"`, "+ (none)"},
		},
		"filter without ignoreChanges": {
			"        ignoreChanges: [status, metadata.annotations]\n", "",
			[]string{"sink audit", "+ updated deployments.apps/shop/web", "because of change 2"},
		},
		"filter that ignores too much": {
			"ignoreChanges: [status, metadata", "ignoreChanges: [status, spec, metadata",
			[]string{"no   ignoreChanges  status, spec, metadata.annotations (found: spec)"},
		},
		"filter that does not reach another resource": {
			"[\"*.example.com\"]\n        when", "[\"*.example.org\"]\n        when",
			[]string{"no   resources   *.example.org (found: widgets.example.com)"},
		},
		"redaction of another path": {
			"env[*].value\"]", "env[*].val\"]",
			[]string{"data.spec.template.spec.containers[0].env[0].value", `+ "secret"`},
		},
		"secrets in plain text": {
			"- name: live", "- name: live\n    secrets: plain", []string{"data.data.token", `+ "c2VjcmV0"`},
		},
		"another order in the subject": {
			"{namespace}.{name}\"\n\n", "{name}.{namespace}\"\n\n",
			[]string{"subject", `- "k8s.prod.deployments.shop.web"`, `+ "k8s.prod.deployments.web.shop"`},
		},
		"another cluster": {
			"cluster: prod", "cluster: test", []string{`headers.ce-source`, `- "/clusters/prod"`, `+ "/clusters/test"`},
		},
		"another topic": {
			"audit.{resource}", "audit.{kind}", []string{"topic", `- "audit.deployments"`, `+ "audit.Deployment"`},
		},
		"another key": {
			"key: \"{namespace}/{name}\"", "key: \"{name}\"", []string{"key", `- "shop/web"`, `+ "web"`},
		},
		"another payload": {
			"payload: change", "payload: object", []string{"data.changedPaths", `- ["/spec/replicas"]`, "+ (none)"},
		},
		"without enrichment": {
			"enrich: {namespaceLabels: true}", "enrich: {owner: true}", []string{"attributes.namespacelabels", `- "team=checkout"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			configuration := strings.Replace(right, wrong.old, wrong.new, 1)
			if configuration == right {
				t.Fatal("the configuration is not changed")
			}
			r, text := output(t, TestOptions{}, file, configuration)
			if r.Err != nil || r.Failed() == 0 {
				t.Fatalf("the mistake is not found:\n%s", text)
			}
			for _, want := range wrong.want {
				if !strings.Contains(text, want) {
					t.Errorf("the output lacks %s:\n%s", want, text)
				}
			}
		})
	}
}
