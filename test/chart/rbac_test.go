package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// The chart's template and `bridge rbac` grant the same, whatever is watched.
func TestRBACIsThatOfTheBridge(t *testing.T) {
	for _, watch := range []string{
		``,
		`[{resources: ["*"]}]`,
		`[{resources: ["*", secrets]}]`,
		`[{resources: ["*", secrets], exclude: [secrets]}]`,
		`[{resources: ["*", "secrets.*"]}]`,
		`[{resources: ["*"]}, {resources: [secrets]}]`,
		`[{resources: ["*"], exclude: [leases.coordination.k8s.io, events, "*.apps", "*.*.k8s.io", "p*", "node?", "[a-c]*"]}]`,
		`[{resources: ["*"], exclude: ["*"]}]`,
		`[{resources: ["*"], exclude: [configmaps.v1, pods.v2, "*.v1.apps"]}]`,
		`[{resources: ["*", secrets]}, {resources: ["*.apps"]}]`,
		`[{resources: ["*"], namespaces: [a, b]}]`,
		`[{resources: ["*", secrets], namespaces: [a]}, {resources: ["*.apps"]}]`,
		`[{resources: [pods]}]`,
		`[{resources: [pods, pods, configmaps, deployments.apps, deployments.v1.apps]}]`,
		`[{resources: [pods.v1, "*.v1", "*.v1.apps", jobs.v1beta1.batch]}]`,
		`[{resources: [pods, secrets], exclude: [pods]}]`,
		`[{resources: [pods.v1, services], exclude: [pods.v2, services.v1]}]`,
		`[{resources: [widgets.example.com, gadgets.v1alpha1.example.com]}]`,
		`[{resources: ["*.example.com", "*.apps"], exclude: ["*.apps", widgets.example.com]}]`,
		`[{resources: ["*.v1.example.com"], exclude: ["*.v1.example.com"]}]`,
		`[{resources: ["events.*"]}]`,
		`[{resources: [pods, secrets], namespaces: [a, b, a]}]`,
		`[{resources: [pods], namespaces: [a]}, {resources: [services, pods], namespaces: [a, b]}]`,
		`[{resources: [pods], namespaces: ["team-*"]}]`,
		`[{resources: [pods], namespaces: ["!kube-system"]}]`,
		`[{resources: [pods], namespaces: [a, "!kube-system"]}]`,
		`[{resources: [pods, nodes], namespaces: [""]}]`,
		`[{resources: [pods], namespaces: ["", a]}]`,
		`[{resources: [pods], namespaces: ["team-[ab]"]}, {resources: [pods], namespaces: ["te?m"]}]`,
		`[{resources: [pods], namespaces: []}]`,
		`[{resources: [pods], exclude: [pods], namespaces: [a]}]`,
		`[{resources: ["*"], namespaces: [a]}, {resources: ["*"]}]`,
	} {
		for _, groups := range [][]string{nil, {"example.com", "a.example.com"}} {
			if groups != nil && !strings.Contains(watch, `"*"`) {
				continue
			}
			sameRights(t, watch, "{name: a, stdout: {}}", noLog, groups)
		}
	}
}

// What sinks need for enrichment, and for selecting namespaces, is granted too.
func TestRBACForEnrichment(t *testing.T) {
	for _, c := range []struct{ watch, sinks string }{
		{``, `{name: a, stdout: {}, enrich: {owner: true}}`},
		{`[{resources: [pods]}, {resources: [services], namespaces: ["team-*"]}]`, `{name: a, stdout: {}, enrich: {involvedObject: true}}, {name: b, stdout: {}}`},
		{`[{resources: [events], namespaces: [a, b]}, {resources: [pods], namespaces: [b, c]}]`, `{name: b, stdout: {}, enrich: {owner: true}}, {name: a, stdout: {}, enrich: {involvedObject: true, namespaceLabels: true, owner: false}}`},
		{`[{resources: [pods], namespaces: ["", a]}]`, `{name: a, stdout: {}, enrich: {namespaceLabels: true}}`},
		{`[{resources: [pods], namespaces: [a]}]`, `{name: a, stdout: {}, filters: [{resources: [pods]}, {namespaceSelector: "team in (a, b)"}]}`},
	} {
		sameRights(t, c.watch, c.sinks, noLog, nil)
	}
	_, _, err := command(
		t,
		tools.helm,
		"template",
		"x",
		chartDir,
		"--values",
		chartDir+"/examples/namespaced.yaml",
		"--set",
		"rbac.cluster=false",
		"--set",
		"config.sinks[0].enrich.namespaceLabels=true",
	)
	if err == nil || !strings.Contains(err.Error(), "enrich.namespaceLabels") {
		t.Errorf("labels of namespaces without a ClusterRole: %v", err)
	}
}

// What replicas need for their Lease, and so that commands reach the leader, is granted too.
func TestRBACForReplicas(t *testing.T) {
	const log = "redactionKeyFile: /key\nstate: {path: /state, log: {nats: {url: nats://a}}}\n"
	for _, watch := range []string{
		``,
		`[{resources: [pods], namespaces: [streams, a]}]`,
		`[{resources: [leases.coordination.k8s.io], namespaces: [other]}]`,
	} {
		for _, election := range []string{"", "election: {lease: {name: mine, namespace: other}}\n"} {
			sameRights(t, watch, "{name: a, stdout: {}}", log+election, nil)
			sameRights(t, watch, "{name: a, stdout: {}}", log+election+"http: {peers: [\"a:8080\"]}\n", nil)
			sameRights(t, watch, "{name: a, events: audit, stdout: {}}", log+election+
				"audit: {listen: \"127.0.0.1:1\", tokenFile: /token}\n", nil)
		}
	}
}

// If all sinks are sent audit events, nothing in watch is granted.
func TestRBACForAuditEvents(t *testing.T) {
	const audit = noLog + "audit: {listen: \"127.0.0.1:1\", tokenFile: /token}\n"
	const events = `[{resources: [events], namespaces: [a]}]`
	sinks := "{name: a, events: audit, stdout: {}}"
	for _, watch := range []string{``, `[{resources: ["*", secrets]}]`, events} {
		sameRights(t, watch, sinks, audit, nil)
	}
	sameRights(t, ``, sinks+", {name: b, stdout: {}}", audit, nil)
}

// What the bridge needs to examine the tokens of viewers is granted too.
func TestRBACForThePage(t *testing.T) {
	for _, watch := range []string{``, `[{resources: [pods], namespaces: [streams, a]}]`} {
		sameRights(t, watch, "{name: a, stdout: {}}", noLog+"http: {ui: true}\n", nil)
		sameRights(t, watch, "{name: a, stdout: {}}", noLog+"http: {ui: true, peers: [\"a:8080\"]}\n", nil)
	}
}

// noLog is the state in a configuration without a state log.
const noLog = "state: {path: /state}\n"

// sameRights compares what the chart grants with what `bridge rbac` prints.
func sameRights(t *testing.T, watch, sinks, state string, groups []string) {
	t.Helper()
	config := "sinks: [" + sinks + "]\n" + state
	if watch != "" {
		config += "watch: " + watch + "\n"
	}
	args := []string{
		"rbac",
		"--config",
		writeFile(t, "bridge.yaml", config),
		"--namespace",
		"streams",
		"--name",
		"streams:deltabridge",
	}
	for _, group := range groups {
		args = append(args, "--group", group)
	}
	want, _, err := command(t, tools.bridge, args...)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{"rbac": map[string]any{"groups": slices.Concat(groups, []string{})}}
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(config), &parsed); err != nil {
		t.Fatal(err)
	}
	if watch == "" {
		parsed["watch"] = nil // takes the default of the chart away
	}
	values["config"] = parsed
	text, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	got := template(t, "--show-only", "templates/rbac.yaml", "--values", writeFile(t, "values.yaml", string(text)))
	if diff := cmp.Diff(rights(t, want), rights(t, got)); diff != "" {
		t.Errorf("%s, sinks %s, groups %v (-bridge rbac +chart):\n%s", watch, sinks, groups, diff)
	}
}

// rights are the roles and bindings in a text, less their labels.
func rights(t *testing.T, text string) map[string]any {
	t.Helper()
	found := map[string]any{}
	for _, o := range objects(t, text) {
		key := strings.Join([]string{o.Kind, o.Namespace, o.Name}, " ")
		if found[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		if strings.HasSuffix(o.Kind, "Binding") {
			var b rbacv1.RoleBinding // of the same form as a ClusterRoleBinding
			o.decode(t, &b)
			found[key] = []any{b.RoleRef, b.Subjects}
			continue
		}
		var r rbacv1.Role // of the same form as a ClusterRole
		o.decode(t, &r)
		found[key] = append([]rbacv1.PolicyRule{}, r.Rules...)
	}
	return found
}

// grantsWhatIsServed compares the rules for "*" with the resources of this API server: a new version of Kubernetes may
// have more groups.
func (k *kube) grantsWhatIsServed(t *testing.T) {
	got := rights(t, template(t, "--show-only", "templates/rbac.yaml"))
	role, _ := got["ClusterRole  streams:deltabridge"].([]rbacv1.PolicyRule)
	granted := func(group, resource string) bool {
		return slices.ContainsFunc(role, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, group) && slices.Contains(r.Verbs, "watch") &&
				(slices.Contains(r.Resources, resource) || slices.Contains(r.Resources, "*"))
		})
	}
	_, lists, err := k.client.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	served := 0
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "watch") || gv.Group == "monitoring.coreos.com" {
				continue
			}
			served++
			if want := gv.Group != "" || r.Name != "secrets"; granted(gv.Group, r.Name) != want {
				t.Errorf("%s of %s is granted: %t", r.Name, gv, !want)
			}
		}
	}
	if served < 50 {
		t.Errorf("only %d resources are served", served)
	}
}

func TestExtraRules(t *testing.T) {
	got := template(t, "--show-only", "templates/rbac.yaml", "--values", chartDir+"/examples/everything.yaml")
	role, _ := rights(t, got)["ClusterRole  streams:bridge"].([]rbacv1.PolicyRule)
	want := rbacv1.PolicyRule{
		APIGroups: []string{"metrics.k8s.io"},
		Resources: []string{"nodes"},
		Verbs:     []string{"get", "list"},
	}
	if !slices.ContainsFunc(role, func(r rbacv1.PolicyRule) bool { return cmp.Equal(r, want) }) {
		t.Errorf("extraRules are not among %v", role)
	}
}

// Who may not create a ClusterRole does without one, where nothing needs it.
func TestWithoutClusterRole(t *testing.T) {
	got := template(t, "--values", chartDir+"/examples/namespaced.yaml", "--set", "rbac.cluster=false")
	roles := 0
	for _, o := range objects(t, got) {
		if strings.HasPrefix(o.Kind, "ClusterRole") {
			t.Errorf("there is the %s %s", o.Kind, o.Name)
		}
		if o.Kind == "Role" {
			roles++
		}
	}
	if roles != 2 {
		t.Errorf("%d Roles, want 2", roles)
	}
	_, _, err := command(t, tools.helm, "template", "x", chartDir, "--values", minimal, "--set", "rbac.cluster=false")
	if err == nil || !strings.Contains(err.Error(), "a ClusterRole is required") {
		t.Errorf("a watch on the whole cluster: %v", err)
	}
}
