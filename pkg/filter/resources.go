package filter

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ResourcePattern matches resources; the package comment describes the syntax. Use ParsePattern to create a pattern.
// The zero value matches nothing.
type ResourcePattern struct {
	Resource string // a glob
	Version  string // compared exactly; empty matches any version
	Group    string // a glob; empty matches the core group
}

var (
	versionSegment  = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)
	resourcePattern = regexp.MustCompile(`^[a-z0-9*?\[\]^-]+(\.[a-z0-9.*?\[\]^-]+)?$`)
)

// ParsePattern parses a resource pattern. Its errors do not quote the text.
func ParsePattern(text string) (ResourcePattern, error) {
	switch {
	case text == "":
		return ResourcePattern{}, errors.New("empty")
	case strings.HasPrefix(text, "!"):
		return ResourcePattern{}, errors.New("resources cannot be excluded with \"!\"")
	case strings.Contains(text, "/"):
		return ResourcePattern{}, errors.New(
			"subresources cannot be watched; to specify a group, separate it with a dot, as in deployments.apps",
		)
	case strings.ToLower(text) != text:
		return ResourcePattern{}, errors.New("write the resource as its lower-case plural, as in configmaps")
	case !resourcePattern.MatchString(text) || strings.HasSuffix(text, "."):
		return ResourcePattern{}, errors.New(
			"not a resource: must be written as pods, deployments.apps, deployments.v1.apps, *.example.com or *",
		)
	}
	resource, rest, hasRest := strings.Cut(text, ".")
	p := ResourcePattern{Resource: resource, Group: rest}
	first, afterFirst, _ := strings.Cut(rest, ".")
	switch {
	case versionSegment.MatchString(first):
		p.Version, p.Group = first, afterFirst
	case !hasRest && hasMeta(resource):
		p.Group = "*"
	}
	for _, glob := range []string{p.Resource, p.Group} {
		if _, err := path.Match(glob, ""); err != nil {
			return ResourcePattern{}, fmt.Errorf("%q is not a valid glob: %w", glob, err)
		}
	}
	return p, nil
}

// Matches reports whether the pattern matches a resource.
func (p ResourcePattern) Matches(gvr schema.GroupVersionResource) bool {
	return (p.Version == "" || p.Version == gvr.Version) &&
		matchGlob(p.Resource, gvr.Resource) && matchGlob(p.Group, gvr.Group)
}

// Wildcard reports whether the pattern has wildcards. Such a pattern can match resources that do not exist yet.
func (p ResourcePattern) Wildcard() bool { return hasMeta(p.Resource) || hasMeta(p.Group) }

// String returns the pattern in the notation of the configuration.
func (p ResourcePattern) String() string {
	text := p.Resource
	if p.Version != "" {
		text += "." + p.Version
	}
	if p.Group == "" || (p.Group == "*" && p.Version == "" && hasMeta(p.Resource)) {
		return text
	}
	return text + "." + p.Group
}

func hasMeta(glob string) bool { return strings.ContainsAny(glob, `*?[\`) }

// matchGlob reports whether a valid glob matches a name.
func matchGlob(glob, name string) bool {
	matched, err := path.Match(glob, name)
	return err == nil && matched
}
