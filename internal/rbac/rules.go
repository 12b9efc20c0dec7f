package rbac

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
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
	c := &computation{options: options, scopes: map[string]*grants{}}
	access := &Access{Namespaces: map[string][]rbacv1.PolicyRule{}}
	for n := range watch {
		if err := c.watch(&watch[n]); err != nil {
			return nil, fmt.Errorf("watch[%d].%w", n, err)
		}
	}
	access.Cluster = append(c.scope("").rules(), c.own()...)
	for namespace, g := range c.scopes {
		if namespace != "" {
			access.Namespaces[namespace] = g.rules()
		}
	}
	slices.Sort(c.notes)
	access.Notes = slices.Compact(c.notes)
	return access, nil
}

var errPart = errors.New("RBAC has no wildcards within a name; use --discover, or list the names")

// computation collects grants for all entries of `watch`.
type computation struct {
	options   Options
	scopes    map[string]*grants // by namespace; "" stands for the whole cluster
	wildcards bool               // whether patterns contain wildcards
	foreign   bool               // whether patterns can select custom or aggregated resources
	notes     []string
}

// grants contains the resources to which access is granted in one scope.
type grants struct {
	named map[string][]string // resources that are granted by name, by API group
	whole []string            // API groups that are granted as a whole
}

func (c *computation) scope(namespace string) *grants {
	if c.scopes[namespace] == nil {
		c.scopes[namespace] = &grants{named: map[string][]string{}}
	}
	return c.scopes[namespace]
}

// entry is a parsed entry of `watch`.
type entry struct {
	namespaces []string // [""] stands for the whole cluster
	exclude    config.Patterns
	secrets    bool // whether a pattern names secrets and they are not excluded
}

func (c *computation) watch(w *config.Watch) error {
	e := entry{namespaces: []string{""}, exclude: config.ParsePatterns(w.Exclude)}
	matcher, err := filter.ParseNamespaces(w.Namespaces)
	if err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	if literals, ok := matcher.Literals(); ok {
		e.namespaces = literals
	} else if !matcher.All() {
		c.note("namespaces: [%s] is watched and granted in the whole cluster, because not all entries are plain names",
			strings.Join(w.Namespaces, ", "))
	}
	patterns := config.ParsePatterns(w.Resources)
	for _, p := range patterns {
		e.secrets = e.secrets || p.Resource == secrets && matches(p.Group, "") && !e.excludes("", p.Version, secrets)
	}
	c.scan(patterns)
	for n, p := range patterns {
		for _, namespace := range e.namespaces {
			if err := c.pattern(&e, namespace, p); err != nil {
				return fmt.Errorf("resources[%d]: %q: %w", n, w.Resources[n], err)
			}
		}
	}
	return nil
}

func (e *entry) excludes(group, version, resource string) bool {
	return e.exclude.Match(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
}

// pattern grants the resources that p selects in a namespace. If namespace is empty, it grants them in the whole
// cluster.
func (c *computation) pattern(e *entry, namespace string, p filter.ResourcePattern) error {
	g := c.scope(namespace)
	switch {
	case !isGlob(p.Resource) && !isGlob(p.Group):
		if !e.excludes(p.Group, p.Version, p.Resource) {
			g.add(p.Group, p.Resource)
		}
	case c.options.Served != nil:
		c.resolve(e, namespace, p)
	case isPart(p.Resource) || isPart(p.Group):
		return errPart
	case p.Resource != "*":
		g.add(p.Group, p.Resource)
	case p.Group == "*" && e.secrets:
		g.whole = append(g.whole, "*")
		c.noteExclusions(e, "*")
	case p.Group == "*":
		g.addCore(e, namespace)
		for _, group := range slices.Concat(builtInGroups(), c.options.Groups) {
			c.whole(e, g, group)
		}
		c.note(
			"resources: \"*\" selects the API groups of Kubernetes%s, without Secrets; add other groups with --group, or use"+
				" --discover; list secrets in resources to watch them too",
			joinGroups(c.options.Groups),
		)
	case p.Group == "":
		g.addCore(e, namespace)
	default:
		c.whole(e, g, p.Group)
	}
	return nil
}

// resolve grants the served resources that match a pattern with wildcards. It grants Secrets only if the entry names
// them.
func (c *computation) resolve(e *entry, namespace string, p filter.ResourcePattern) {
	for _, s := range c.options.Served.Served {
		isSecret := s.Group == "" && s.Resource == secrets
		selected := slices.ContainsFunc(s.Versions, func(version string) bool {
			return p.Matches(s.WithVersion(version)) && !e.excludes(s.Group, version, s.Resource)
		})
		if selected && (namespace == "" || s.Namespaced) && (!isSecret || e.secrets) {
			c.scope(namespace).add(s.Group, s.Resource)
		}
	}
	c.note(
		"wildcards are resolved to the resources that the cluster serves now: run this command again when resources are added",
	)
}

// whole grants all resources in a group unless the entry excludes the group.
func (c *computation) whole(e *entry, g *grants, group string) {
	all := func(p filter.ResourcePattern) bool {
		return p.Resource == "*" && p.Version == "" && matches(p.Group, group)
	}
	if slices.ContainsFunc(e.exclude, all) {
		return
	}
	g.whole = append(g.whole, group)
	c.noteExclusions(e, group)
}

// noteExclusions adds a note for each exclusion that matches resources in a group that is granted as a whole.
func (c *computation) noteExclusions(e *entry, group string) {
	for _, p := range e.exclude {
		if group == "*" || matches(p.Group, group) {
			c.note(
				"exclude: the rules grant %q anyway, because RBAC has no exclusions; use --discover to leave it out",
				p.String(),
			)
		}
	}
}

func (c *computation) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// joinGroups returns the additional groups as text for a note. If there are none, it returns an empty string.
func joinGroups(groups []string) string {
	if len(groups) == 0 {
		return ""
	}
	return " and " + strings.Join(groups, ", ")
}

func (g *grants) add(group, resource string) {
	if !slices.Contains(g.named[group], resource) {
		g.named[group] = append(g.named[group], resource)
	}
}

func (g *grants) addCore(e *entry, namespace string) {
	resources := coreNamespaced()
	if namespace == "" {
		resources = append(resources, coreCluster()...)
	}
	for _, resource := range resources {
		if !e.excludes("", "v1", resource) && (resource != secrets || e.secrets) {
			g.add("", resource)
		}
	}
}

func (g *grants) rules() []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, group := range slices.Sorted(maps.Keys(g.named)) {
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{group}, Resources: slices.Sorted(slices.Values(g.named[group])),
			Verbs: []string{"get", "list", "watch"},
		})
	}
	groups := slices.Compact(slices.Sorted(slices.Values(g.whole)))
	if slices.Contains(groups, "*") {
		groups = []string{"*"}
	}
	if len(groups) > 0 {
		rules = append(
			rules,
			rbacv1.PolicyRule{APIGroups: groups, Resources: []string{"*"}, Verbs: []string{"list", "watch"}},
			rbacv1.PolicyRule{
				APIGroups: groups, Resources: []string{"*"}, ResourceNames: []string{informer.ProbeName}, Verbs: []string{"get"},
			},
		)
	}
	return rules
}

// Own returns the rules for objects that the bridge reads in addition to the watched resources, to learn about the
// cluster. The bridge runs without these permissions, but detects some changes late or not at all.
func Own(watch []config.Watch) []rbacv1.PolicyRule {
	c := &computation{}
	for n := range watch {
		c.scan(config.ParsePatterns(watch[n].Resources))
	}
	return c.own()
}

// scan records whether patterns contain wildcards, and whether they can select custom or aggregated resources.
func (c *computation) scan(patterns config.Patterns) {
	for _, p := range patterns {
		wildcard := isGlob(p.Resource) || isGlob(p.Group)
		c.wildcards = c.wildcards || wildcard
		c.foreign = c.foreign || wildcard || strings.Contains(p.Group, ".")
	}
}

func (c *computation) own() []rbacv1.PolicyRule {
	rules := []rbacv1.PolicyRule{
		{
			APIGroups: []string{
				"",
			},
			Resources:     []string{"namespaces"},
			ResourceNames: []string{"kube-system"},
			Verbs:         []string{"get"},
		},
	}
	if c.wildcards {
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"},
			Verbs: []string{"get", "list", "watch"},
		})
	}
	if c.foreign {
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, Verbs: []string{"list"},
		})
	}
	return rules
}

func isGlob(text string) bool { return strings.ContainsAny(text, `*?[`) }

// isPart reports whether a glob contains wildcards within a name. RBAC cannot express such globs.
func isPart(glob string) bool { return isGlob(glob) && glob != "*" }

func matches(glob, name string) bool {
	matched, err := path.Match(glob, name)
	return err == nil && matched
}
