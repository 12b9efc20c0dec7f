package pattern

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource matches resources; the package comment describes the syntax. Use ParseResource to create one. The zero value
// matches nothing.
type Resource struct {
	Resource string // a glob
	Version  string // compared exactly; empty matches any version
	Group    string // a glob; empty matches the core group
}

var (
	versionSegment  = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)
	resourcePattern = regexp.MustCompile(`^[a-z0-9*?\[\]^-]+(\.[a-z0-9.*?\[\]^-]+)?$`)
)

// ParseResource parses a resource pattern. Its errors do not quote the text.
func ParseResource(text string) (Resource, error) {
	switch {
	case text == "":
		return Resource{}, errors.New("empty")
	case strings.HasPrefix(text, "!"):
		return Resource{}, errors.New("resources cannot be excluded with \"!\"")
	case strings.Contains(text, "/"):
		return Resource{}, errors.New(
			"subresources cannot be watched; to specify a group, separate it with a dot, as in deployments.apps")
	case strings.ToLower(text) != text:
		return Resource{}, errors.New("write the resource as its lower-case plural, as in configmaps")
	case !resourcePattern.MatchString(text) || strings.HasSuffix(text, "."):
		return Resource{}, errors.New(
			"not a resource: must be written as pods, deployments.apps, deployments.v1.apps, *.example.com or *")
	}
	resource, rest, hasRest := strings.Cut(text, ".")
	p := Resource{Resource: resource, Group: rest}
	first, afterFirst, _ := strings.Cut(rest, ".")
	switch {
	case versionSegment.MatchString(first):
		p.Version, p.Group = first, afterFirst
	case !hasRest && hasMeta(resource):
		p.Group = "*"
	}
	for _, glob := range []string{p.Resource, p.Group} {
		if _, err := path.Match(glob, ""); err != nil {
			return Resource{}, fmt.Errorf("%q is not a valid glob: %w", glob, err)
		}
	}
	return p, nil
}

// Matches reports whether the pattern matches a resource.
func (p Resource) Matches(gvr schema.GroupVersionResource) bool {
	return (p.Version == "" || p.Version == gvr.Version) &&
		matchGlob(p.Resource, gvr.Resource) && p.MatchesGroup(gvr.Group)
}

// MatchesGroup reports whether the pattern can match resources of an API group.
func (p Resource) MatchesGroup(group string) bool { return matchGlob(p.Group, group) }

// Wildcard reports whether the pattern has wildcards. Such a pattern can match resources that do not exist yet.
func (p Resource) Wildcard() bool { return hasMeta(p.Resource) || hasMeta(p.Group) }

// Meet returns a pattern that matches every resource that both patterns match, and false if there is none. It assumes
// that two globs with wildcards match the same names.
func (p Resource) Meet(q Resource) (both Resource, ok bool) {
	meet := func(a, b string) (string, bool) {
		if globCovers(b, a) {
			return a, true
		}
		return b, globCovers(a, b) || hasMeta(a) && hasMeta(b)
	}
	var resource, group bool
	both.Resource, resource = meet(p.Resource, q.Resource)
	both.Group, group = meet(p.Group, q.Group)
	both.Version = cmp.Or(p.Version, q.Version)
	return both, resource && group && (q.Version == "" || q.Version == both.Version)
}

// Covers reports whether the pattern is certain to match every resource that q matches.
func (p Resource) Covers(q Resource) bool {
	return (p.Version == "" || p.Version == q.Version) && globCovers(p.Resource, q.Resource) &&
		globCovers(p.Group, q.Group)
}

// globCovers reports whether a glob is certain to match every name that another glob matches.
func globCovers(glob, other string) bool {
	return glob == "*" || glob == other || !hasMeta(other) && matchGlob(glob, other)
}

// String returns the pattern in the notation of the configuration.
func (p Resource) String() string {
	text := p.Resource
	if p.Version != "" {
		text += "." + p.Version
	}
	if p.Group == "" || (p.Group == "*" && p.Version == "" && hasMeta(p.Resource)) {
		return text
	}
	return text + "." + p.Group
}

// Resources is a list of patterns.
type Resources []Resource

// ParseResources parses patterns. It omits invalid ones.
func ParseResources(texts []string) (patterns Resources) {
	for _, text := range texts {
		if p, err := ParseResource(text); err == nil {
			patterns = append(patterns, p)
		}
	}
	return patterns
}

// Match reports whether at least one of the patterns matches a resource.
func (r Resources) Match(resource schema.GroupVersionResource) bool {
	return slices.ContainsFunc(r, func(p Resource) bool { return p.Matches(resource) })
}

func hasMeta(glob string) bool { return strings.ContainsAny(glob, `*?[\`) }

// matchGlob reports whether a valid glob matches a name.
func matchGlob(glob, name string) bool {
	matched, err := path.Match(glob, name)
	return err == nil && matched
}
