package rbac

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
)

const always = "core: namespaces [kube-system] get"

// text writes rules in short.
func text(rules []rbacv1.PolicyRule) string {
	var lines []string
	for _, r := range rules {
		groups := strings.Join(r.APIGroups, ",")
		if groups == "" {
			groups = "core"
		}
		line := groups + ": " + strings.Join(r.Resources, ",")
		if len(r.ResourceNames) > 0 {
			line += fmt.Sprint(" ", r.ResourceNames)
		}
		lines = append(lines, line+" "+strings.Join(r.Verbs, ","))
	}
	return strings.Join(lines, "\n")
}

func TestFor(t *testing.T) {
	core := strings.Join(slices.Sorted(slices.Values(slices.Concat(coreNamespaced(), coreCluster()))), ",")
	withoutSecrets := strings.Replace(core, "secrets,", "", 1)
	builtIn := strings.Join(builtInGroups(), ",")
	const (
		definitions = "apiextensions.k8s.io: customresourcedefinitions get,list,watch"
		services    = "apiregistration.k8s.io: apiservices list"
	)
	for _, tt := range []struct {
		name    string
		watch   []config.Watch
		options Options
		want    []string            // of the cluster
		in      map[string][]string // of namespaces
		note    string
	}{
		{
			name:  "names",
			watch: []config.Watch{{Resources: []string{"pods", "deployments.v1.apps", "configmaps"}}, {Resources: []string{"pods"}, LabelSelector: "a=b"}},
			want:  []string{"core: configmaps,pods get,list,watch", "apps: deployments get,list,watch", always},
		},
		{
			name:  "namespaces",
			watch: []config.Watch{{Resources: []string{"pods", "widgets.example.com"}, Namespaces: []string{"b", "a"}}, {Resources: []string{"nodes"}}},
			want:  []string{"core: nodes get,list,watch", always, services},
			in: map[string][]string{
				"a": {"core: pods get,list,watch", "example.com: widgets get,list,watch"},
				"b": {"core: pods get,list,watch", "example.com: widgets get,list,watch"},
			},
		},
		{
			name:  "globs of namespaces",
			watch: []config.Watch{{Resources: []string{"pods"}, Namespaces: []string{"team-*", "a"}}},
			want:  []string{"core: pods get,list,watch", always},
			note:  "namespaces: [team-*, a] contains patterns or exclusions, so access is granted in the whole cluster",
		},
		{
			name:  "a group",
			watch: []config.Watch{{Resources: []string{"*.example.com"}}},
			want:  []string{"example.com: * list,watch", "example.com: * [deltabridge-probe] get", always, definitions, services},
		},
		{
			name:  "a resource of any group",
			watch: []config.Watch{{Resources: []string{"events.*"}}},
			want:  []string{"*: events get,list,watch", always, definitions, services},
		},
		{
			name:  "the core group",
			watch: []config.Watch{{Resources: []string{"*.v1"}, Namespaces: []string{"a"}, Exclude: []string{"events"}}},
			want:  []string{always, definitions, services},
			in:    map[string][]string{"a": {"core: configmaps,endpoints,limitranges,persistentvolumeclaims,pods,podtemplates,replicationcontrollers,resourcequotas,serviceaccounts,services get,list,watch"}},
		},
		{
			name:  "everything",
			watch: config.Default().Watch,
			want:  []string{"core: " + withoutSecrets + " get,list,watch", builtIn + ": * list,watch", builtIn + ": * [deltabridge-probe] get", always, definitions, services},
			note:  "without Secrets",
		},
		{
			name:    "everything, with groups and exclusions",
			watch:   []config.Watch{{Resources: []string{"*"}, Exclude: []string{"leases.coordination.k8s.io", "*.apps", "pods"}}},
			options: Options{Groups: []string{"a.com"}},
			want: []string{
				"core: " + strings.Replace(withoutSecrets, "pods,", "", 1) + " get,list,watch",
				"a.com," + strings.Replace(builtIn, "apps,", "", 1) + ": * list,watch",
				"a.com," + strings.Replace(builtIn, "apps,", "", 1) + ": * [deltabridge-probe] get", always, definitions, services,
			},
			note: `exclude: the rules grant "leases.coordination.k8s.io" anyway, because RBAC has no exclusions`,
		},
		{
			name:  "everything with Secrets",
			watch: []config.Watch{{Resources: []string{"*", "secrets"}}},
			want:  []string{"core: secrets get,list,watch", "*: * list,watch", "*: * [deltabridge-probe] get", always, definitions, services},
		},
		{
			name:  "everything with Secrets, without a group",
			watch: []config.Watch{{Resources: []string{"*", "secrets"}, Exclude: []string{"*.apps"}}},
			want:  []string{"core: secrets get,list,watch", "*: * list,watch", "*: * [deltabridge-probe] get", always, definitions, services},
			note:  `exclude: the rules grant "*.apps" anyway`,
		},
		{
			name:  "a group within everything",
			watch: []config.Watch{{Resources: []string{"*", "secrets", "*.a.com"}}, {Resources: []string{"*.b.com"}, Namespaces: []string{"x"}}},
			want:  []string{"core: secrets get,list,watch", "*: * list,watch", "*: * [deltabridge-probe] get", always, definitions, services},
			in:    map[string][]string{"x": {"b.com: * list,watch", "b.com: * [deltabridge-probe] get"}},
		},
		{
			name:  "a version, of which another is excluded",
			watch: []config.Watch{{Resources: []string{"pods.v1", "jobs.v1.batch"}, Exclude: []string{"pods.v2", "jobs.v1.batch"}}},
			want:  []string{"core: pods get,list,watch", always},
		},
		{
			name:  "names and globs of namespaces, twice",
			watch: []config.Watch{{Resources: []string{"pods"}, Namespaces: []string{"a", "a"}}, {Resources: []string{"services", "pods"}, Namespaces: []string{"a"}}, {Resources: []string{"nodes"}, Namespaces: []string{"!x"}}, {Resources: []string{"nodes"}, Namespaces: []string{"!x"}}},
			want:  []string{"core: nodes get,list,watch", always},
			in:    map[string][]string{"a": {"core: pods,services get,list,watch"}},
			note:  "namespaces: [!x] contains patterns or exclusions, so access is granted in the whole cluster",
		},
		{
			name:  "Secrets of another entry",
			watch: []config.Watch{{Resources: []string{"*"}}, {Resources: []string{"secrets"}, Namespaces: []string{"a"}}},
			want:  []string{"core: " + withoutSecrets + " get,list,watch", builtIn + ": * list,watch", builtIn + ": * [deltabridge-probe] get", always, definitions, services},
			in:    map[string][]string{"a": {"core: secrets get,list,watch"}},
			note:  "without Secrets",
		},
		{
			name:  "named and excluded",
			watch: []config.Watch{{Resources: []string{"pods", "secrets", "*.v1"}, Exclude: []string{"secrets", "e*", "[l-s]*"}}},
			want:  []string{"core: configmaps get,list,watch", always, definitions, services},
		},
		{
			name:  "discovered",
			watch: []config.Watch{{Resources: []string{"*"}, Exclude: []string{"b*.apps"}}, {Resources: []string{"n*", "a*.apps"}, Namespaces: []string{"x"}}},
			options: Options{Served: &discovery.Catalog{Served: []discovery.Served{
				served("", "pods", true, "v1"), served("", "secrets", true, "v1"), served("", "nodes", false, "v1"),
				served("apps", "as", true, "v1", "v2"), served("apps", "bs", true, "v1"),
			}}},
			want: []string{"core: nodes,pods get,list,watch", "apps: as get,list,watch", always, definitions, services},
			in:   map[string][]string{"x": {"apps: as get,list,watch"}},
			note: "run this command again",
		},
		{
			name:    "discovered, with Secrets",
			watch:   []config.Watch{{Resources: []string{"*", "secrets"}}},
			options: Options{Served: &discovery.Catalog{Served: []discovery.Served{served("", "secrets", true, "v1")}}},
			want:    []string{"core: secrets get,list,watch", always, definitions, services},
			note:    "run this command again",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := For(tt.watch, tt.options)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Join(tt.want, "\n"), text(got.Cluster)); diff != "" {
				t.Errorf("the cluster (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(slices.Sorted(maps.Keys(tt.in)), slices.Sorted(maps.Keys(got.Namespaces))); diff != "" {
				t.Errorf("namespaces (-want +got):\n%s", diff)
			}
			for namespace, want := range tt.in {
				if diff := cmp.Diff(strings.Join(want, "\n"), text(got.Namespaces[namespace])); diff != "" {
					t.Errorf("namespace %s (-want +got):\n%s", namespace, diff)
				}
			}
			if notes := strings.Join(got.Notes, "\n"); !strings.Contains(notes, tt.note) || tt.note == "" && notes != "" {
				t.Errorf("notes: %q, want %q", notes, tt.note)
			}
		})
	}
}

func served(group, resource string, namespaced bool, versions ...string) discovery.Served {
	return discovery.Served{
		GroupResource: schema.GroupResource{Group: group, Resource: resource}, Namespaced: namespaced, Versions: versions,
	}
}

// A note is written once, whatever number of entries and namespaces it is about.
func TestNotesOnce(t *testing.T) {
	entry := config.Watch{Resources: []string{"*"}, Namespaces: []string{"a", "b"}, Exclude: []string{"jobs.batch"}}
	access, err := For([]config.Watch{entry, entry}, Options{Groups: []string{"x.com", "y.com"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`exclude: the rules grant "jobs.batch" anyway, because RBAC has no exclusions; use --discover to leave it out`,
		`resources: "*" selects the API groups of Kubernetes and x.com, y.com, without Secrets; add other groups with --group,` +
			" or use --discover; list secrets in resources to watch them too",
	}
	if diff := cmp.Diff(want, access.Notes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What the bridge reads for itself depends on what it may have to discover.
func TestOwn(t *testing.T) {
	for resource, want := range map[string]string{
		"pods": "namespaces", "jobs.batch": "namespaces", "pods.v1": "namespaces",
		"widgets.example.com": "namespaces apiservices", "widgets.v1.example.com": "namespaces apiservices",
		"*": "namespaces customresourcedefinitions apiservices", "pod*": "namespaces customresourcedefinitions apiservices",
		"pods.*": "namespaces customresourcedefinitions apiservices",
	} {
		var got []string
		for _, rule := range Own([]config.Watch{{Resources: []string{resource}}}) {
			got = append(got, rule.Resources...)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", resource, got, want)
		}
	}
}

// If a group cannot be discovered, its resources would be missing from the rules.
func TestForIncompleteDiscovery(t *testing.T) {
	down := &discovery.Catalog{Failed: map[schema.GroupVersion]error{{Group: "a.com", Version: "v1"}: errors.New("down")}}
	if _, err := For(
		config.Default().Watch,
		Options{Served: down},
	); err == nil ||
		!strings.Contains(err.Error(), "a.com/v1: down") {
		t.Error(err)
	}
}

// What RBAC can't express is refused where it stands.
func TestForRefuses(t *testing.T) {
	for _, pattern := range []string{"deploy*.apps", "pod*", "*.*.example.com", "p?ds", "[a-z]s.*"} {
		_, err := For([]config.Watch{{Resources: []string{"pods"}}, {Resources: []string{"pods", pattern}}}, Options{})
		if want := fmt.Sprintf(
			"watch[1].resources[1]: %q: RBAC has no wildcards",
			pattern,
		); err == nil ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if _, err := For([]config.Watch{{Resources: []string{pattern}}}, Options{Served: &discovery.Catalog{}}); err != nil {
			t.Errorf("discovered: %v", err)
		}
	}
}

// The rules for the Lease are added to those of its namespace.
func TestGrantLease(t *testing.T) {
	access, err := For([]config.Watch{{Resources: []string{"pods"}, Namespaces: []string{"a"}}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	access.GrantLease("a", "mine")
	access.GrantLease("b", "mine")
	lease := "coordination.k8s.io: leases [mine] get,update,watch\ncoordination.k8s.io: leases create"
	if diff := cmp.Diff("core: pods get,list,watch\n"+lease, text(access.Namespaces["a"])); diff != "" {
		t.Errorf("in the namespace of a watch (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(lease, text(access.Namespaces["b"])); diff != "" {
		t.Errorf("in another namespace (-want +got):\n%s", diff)
	}
}

func TestWrite(t *testing.T) {
	access, err := For(
		[]config.Watch{{Resources: []string{"pods"}, Namespaces: []string{"a"}, Exclude: []string{"pods.v2"}}},
		Options{},
	)
	if err != nil {
		t.Fatal(err)
	}
	access.Notes = []string{"said"}
	var out strings.Builder
	if err := Write(&out, access, Names{Name: "rights", Namespace: "ns", ServiceAccount: "sa"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(written, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

const written = `# The access that the bridge requires, and nothing else.
# Note: said.
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  labels:
    app.kubernetes.io/name: deltabridge
  name: rights
rules:
- apiGroups:
  - ""
  resourceNames:
  - kube-system
  resources:
  - namespaces
  verbs:
  - get
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  labels:
    app.kubernetes.io/name: deltabridge
  name: rights
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: rights
subjects:
- kind: ServiceAccount
  name: sa
  namespace: ns
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  labels:
    app.kubernetes.io/name: deltabridge
  name: rights
  namespace: a
rules:
- apiGroups:
  - ""
  resources:
  - pods
  verbs:
  - get
  - list
  - watch
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  labels:
    app.kubernetes.io/name: deltabridge
  name: rights
  namespace: a
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: rights
subjects:
- kind: ServiceAccount
  name: sa
  namespace: ns
`
