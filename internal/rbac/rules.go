package rbac

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/pattern"
)

// Access describes the access that the bridge requires.
type Access struct {
	// Cluster contains the rules for the whole cluster.
	Cluster []rbacv1.PolicyRule
	// Namespaces contains the rules for each namespace.
	Namespaces map[string][]rbacv1.PolicyRule
	// Notes explain where the rules grant more or less access than the configuration requires.
	Notes []string
}

// Options configures how wildcards are resolved.
type Options struct {
	// Groups are the API groups that `*` selects in addition to the groups of Kubernetes.
	Groups []string
	// Served contains the resources that replace wildcards. If it is nil, the rules contain wildcards.
	Served *discovery.Catalog
}

// coreNamespaced returns the namespaced resources of the core group that can be listed and watched. The list is fixed,
// because custom resources cannot be in the core group.
func coreNamespaced() []string {
	return []string{
		"configmaps", "endpoints", "events", "limitranges", "persistentvolumeclaims", "pods", "podtemplates",
		"replicationcontrollers", "resourcequotas", "secrets", "serviceaccounts", "services",
	}
}

func coreCluster() []string { return []string{"namespaces", "nodes", "persistentvolumes"} }

// builtInGroups returns the API groups of Kubernetes that contain watchable resources, except the core group.
func builtInGroups() []string {
	return []string{
		"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "apps", "autoscaling", "batch",
		"certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "flowcontrol.apiserver.k8s.io",
		"networking.k8s.io", "node.k8s.io", "policy", "rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io",
		"storage.k8s.io", "storagemigration.k8s.io",
	}
}

const secrets = "secrets"

// For computes the access that the entries of `watch` require. If RBAC cannot express an entry, the error identifies
// the entry and contains a remedy.
func For(watch []config.Watch, options Options) (*Access, error) {
	if options.Served != nil {
		for gv, err := range options.Served.Failed {
			return nil, fmt.Errorf("discover the resources of %s: %w", gv, err)
		}
	}
	scopes := map[string]grants{}
	var notes []string
	for n := range watch {
		e := &entry{Options: options, Scope: watch[n].Scope()}
		if err := e.grant(&watch[n], scopes); err != nil {
			return nil, fmt.Errorf("watch[%d].%w", n, err)
		}
		notes = append(notes, e.notes...)
	}
	slices.Sort(notes)
	access := &Access{Namespaces: map[string][]rbacv1.PolicyRule{}, Notes: slices.Compact(notes)}
	for namespace, resources := range scopes {
		access.Namespaces[namespace] = rules(resources)
	}
	access.Cluster = append(access.Namespaces[""], Own(watch)...)
	delete(access.Namespaces, "")
	return access, nil
}

var errPart = errors.New("RBAC has no wildcards within a name; use --discover, or list the names")

// grants contains the resources to which access is granted in one scope. The resource `*` stands for a whole group.
type grants = sets.Set[schema.GroupResource]

// entry is an entry of `watch`.
type entry struct {
	Options
	fleet.Scope
	secrets bool // whether a pattern names secrets and they are not excluded
	notes   []string
}

// grant adds the resources that an entry selects to the scopes of its namespaces. The scope "" is the whole cluster.
func (e *entry) grant(w *config.Watch, scopes map[string]grants) error {
	namespaces, named := e.Namespaces.Literals()
	if !named {
		namespaces = []string{""}
	}
	if !named && !e.Namespaces.All() {
		e.note("namespaces: [%s] contains patterns or exclusions, so access is granted in the whole cluster",
			strings.Join(w.Namespaces, ", "))
	}
	e.secrets = slices.ContainsFunc(e.Resources, func(p pattern.Resource) bool {
		return p.Resource == secrets && p.MatchesGroup("") && !e.excludes("", p.Version, secrets)
	})
	for _, namespace := range namespaces {
		if scopes[namespace] == nil {
			scopes[namespace] = grants{}
		}
		for n, p := range e.Resources {
			resources, err := e.selected(p, namespace)
			if err != nil {
				return fmt.Errorf("resources[%d]: %q: %w", n, w.Resources[n], err)
			}
			scopes[namespace].Insert(resources...)
		}
	}
	return nil
}

func (e *entry) excludes(group, version, resource string) bool {
	return e.Exclude.Match(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
}

// selected returns the resources that a pattern selects in a namespace. If namespace is empty, it returns those of the
// whole cluster.
func (e *entry) selected(p pattern.Resource, namespace string) ([]schema.GroupResource, error) {
	named := []schema.GroupResource{{Group: p.Group, Resource: p.Resource}}
	switch {
	case !p.Wildcard() && e.excludes(p.Group, p.Version, p.Resource):
		return nil, nil
	case !p.Wildcard():
		return named, nil
	case e.Served != nil:
		return e.served(p, namespace), nil
	case isPart(p.Resource) || isPart(p.Group):
		return nil, errPart
	case p.Resource != "*":
		return named, nil
	case p.Group == "":
		return e.core(namespace), nil
	case p.Group != "*" || e.secrets:
		return e.groups(p.Group), nil
	}
	and := ""
	if len(e.Groups) > 0 {
		and = " and " + strings.Join(e.Groups, ", ")
	}
	e.note("resources: \"*\" selects the API groups of Kubernetes%s, without Secrets; add other groups with --group,"+
		" or use --discover; list secrets in resources to watch them too", and)
	return append(e.core(namespace), e.groups(slices.Concat(builtInGroups(), e.Groups)...)...), nil
}

// served returns the served resources that match a pattern with wildcards. It returns Secrets only if the entry names
// them.
func (e *entry) served(p pattern.Resource, namespace string) (found []schema.GroupResource) {
	for _, s := range e.Served.Served {
		isSecret := s.Group == "" && s.Resource == secrets
		selected := slices.ContainsFunc(s.Versions, func(version string) bool {
			return p.Matches(s.WithVersion(version)) && !e.excludes(s.Group, version, s.Resource)
		})
		if selected && (namespace == "" || s.Namespaced) && (!isSecret || e.secrets) {
			found = append(found, s.GroupResource)
		}
	}
	e.note("wildcards are resolved to the resources that the cluster serves now:" +
		" run this command again when resources are added")
	return found
}

// groups returns the named groups that the entry does not exclude, each as the resource `*`. It adds a note for each
// exclusion that matches resources in one of these groups.
func (e *entry) groups(names ...string) (all []schema.GroupResource) {
	for _, group := range names {
		excluded := func(p pattern.Resource) bool {
			return p.Resource == "*" && p.Version == "" && p.MatchesGroup(group)
		}
		if slices.ContainsFunc(e.Exclude, excluded) {
			continue
		}
		all = append(all, schema.GroupResource{Group: group, Resource: "*"})
		for _, p := range e.Exclude {
			if group == "*" || p.MatchesGroup(group) {
				e.note("exclude: the rules grant %q anyway, because RBAC has no exclusions; use --discover to leave it out",
					p.String())
			}
		}
	}
	return all
}

// core returns the resources of the core group that the entry does not exclude.
func (e *entry) core(namespace string) (all []schema.GroupResource) {
	resources := coreNamespaced()
	if namespace == "" {
		resources = append(resources, coreCluster()...)
	}
	for _, resource := range resources {
		if !e.excludes("", "v1", resource) && (resource != secrets || e.secrets) {
			all = append(all, schema.GroupResource{Resource: resource})
		}
	}
	return all
}

func (e *entry) note(format string, args ...any) {
	e.notes = append(e.notes, fmt.Sprintf(format, args...))
}

// rules returns the rules for the resources of one scope, sorted by group. Rules for whole groups come last.
func rules(resources grants) (all []rbacv1.PolicyRule) {
	named, groups := map[string][]string{}, []string{}
	for r := range resources {
		if r.Resource == "*" {
			groups = append(groups, r.Group)
		} else {
			named[r.Group] = append(named[r.Group], r.Resource)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(named)) {
		all = append(all, rbacv1.PolicyRule{
			APIGroups: []string{group}, Resources: slices.Sorted(slices.Values(named[group])),
			Verbs: []string{"get", "list", "watch"},
		})
	}
	if slices.Contains(groups, "*") {
		groups = []string{"*"}
	}
	if slices.Sort(groups); len(groups) > 0 {
		all = append(
			all,
			rbacv1.PolicyRule{APIGroups: groups, Resources: []string{"*"}, Verbs: []string{"list", "watch"}},
			rbacv1.PolicyRule{
				APIGroups: groups, Resources: []string{"*"}, ResourceNames: []string{informer.ProbeName}, Verbs: []string{"get"},
			},
		)
	}
	return all
}

// Own returns the rules for objects that the bridge reads in addition to the watched resources, to learn about the
// cluster. The bridge runs without these permissions, but detects some changes late or not at all.
func Own(watch []config.Watch) []rbacv1.PolicyRule {
	var wildcards, foreign bool // foreign: whether patterns can select custom or aggregated resources
	for n := range watch {
		for _, p := range pattern.ParseResources(watch[n].Resources) {
			wildcards = wildcards || p.Wildcard()
			foreign = foreign || p.Wildcard() || strings.Contains(p.Group, ".")
		}
	}
	all := []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"},
		Verbs: []string{"get"},
	}}
	if wildcards {
		all = append(all, rbacv1.PolicyRule{
			APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"},
			Verbs: []string{"get", "list", "watch"},
		})
	}
	if foreign {
		all = append(all, rbacv1.PolicyRule{
			APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, Verbs: []string{"list"},
		})
	}
	return all
}

// GrantLease adds the rules for the Lease of the replicas.
func (a *Access) GrantLease(namespace, name string) {
	a.Namespaces[namespace] = append(a.Namespaces[namespace], Lease(name)...)
}

// Lease returns the rules that the replicas require for their Lease, in its namespace (internal/election). The verb
// create cannot be restricted to a name.
func Lease(name string) []rbacv1.PolicyRule {
	rule := rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}}
	own, create := rule, rule
	own.ResourceNames, own.Verbs = []string{name}, []string{"get", "update", "watch"}
	create.Verbs = []string{"create"}
	return []rbacv1.PolicyRule{own, create}
}

// GrantAuditLease adds the rules for the Lease with the records about audit journals.
func (a *Access) GrantAuditLease(namespace, name string) {
	a.Namespaces[namespace] = append(a.Namespaces[namespace], AuditLease(name)...)
}

// AuditLease returns the rules for the Lease with the records about audit journals (internal/journals), beside those of
// Lease, which let the bridge create it.
func AuditLease(name string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{name},
		Verbs: []string{"get", "patch"},
	}}
}

// GrantReviews adds the rules with which the bridge examines the tokens of viewers of its page.
func (a *Access) GrantReviews() { a.Cluster = append(a.Cluster, reviews()...) }

// GrantCommands adds the rules for commands that reach the leader from another replica. They include those of
// GrantReviews.
func (a *Access) GrantCommands() { a.Cluster = append(a.Cluster, Commands()...) }

// Commands returns the rules with which a replica examines the tokens of commands, and with which its own commands are
// accepted by the leader.
func Commands() []rbacv1.PolicyRule {
	return append(reviews(), rbacv1.PolicyRule{
		NonResourceURLs: []string{"/api/pause", "/api/reload", "/api/resume", "/api/resync"}, Verbs: []string{"post"},
	})
}

// reviews returns the rules with which the bridge examines tokens (internal/guard).
func reviews() []rbacv1.PolicyRule {
	create := []string{"create"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: create},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: create},
	}
}

// isPart reports whether a glob contains wildcards within a name. RBAC cannot express such globs.
func isPart(glob string) bool { return strings.ContainsAny(glob, `*?[`) && glob != "*" }
