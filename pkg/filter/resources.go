package filter

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ResourcePattern names resources, as the package comment describes. Make it with ParsePattern; the zero value
// matches nothing.
type ResourcePattern struct {
	Resource string // glob
	Version  string // exact; empty: any
	Group    string // glob; empty: the core group

	// Unqualified: the text is a plain name without a group. It matches the core group only, while who wrote
	// `deployments` may have meant `deployments.apps`: discovery can say so if nothing matches.
	Unqualified bool
}

var (
	// The API server's own form (KEP-2853 sorts by it): v1, v2alpha1, v1beta3.
	versionSegment = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)
	resourceGlob   = regexp.MustCompile(`^[a-z0-9*?\[\]^-]+$`)
	groupGlob      = regexp.MustCompile(`^[a-z0-9.*?\[\]^-]+$`)
)

// ParsePattern reads a resource pattern. The error does not repeat the text.
func ParsePattern(text string) (ResourcePattern, error) {
	if err := checkPatternText(text); err != nil {
		return ResourcePattern{}, err
	}
	resource, rest, hasRest := strings.Cut(text, ".")
	p := ResourcePattern{Resource: resource}
	if hasRest {
		first, afterFirst, _ := strings.Cut(rest, ".")
		if versionSegment.MatchString(first) {
			p.Version, rest = first, afterFirst
		}
		p.Group = rest
	} else if hasMeta(resource) {
		p.Group = "*"
	}
	p.Unqualified = p.Group == "" && !hasMeta(resource)

	if !resourceGlob.MatchString(p.Resource) || (p.Group != "" && !groupGlob.MatchString(p.Group)) {
		return ResourcePattern{}, errors.New("not a resource: want the form pods, deployments.apps, deployments.v1.apps, *.example.com or *")
	}
	for _, glob := range []string{p.Resource, p.Group} {
		if _, err := path.Match(glob, ""); err != nil {
			return ResourcePattern{}, fmt.Errorf("%q is no valid glob: %w", glob, err)
		}
	}
	return p, nil
}

// checkPatternText names the mistakes that have a better explanation than "not a resource".
func checkPatternText(text string) error {
	switch {
	case text == "":
		return errors.New("empty")
	case strings.HasPrefix(text, "!"):
		return errors.New("resources know no exclusions with \"!\"")
	case strings.Contains(text, "/"):
		return errors.New("subresources are not watched, and a group follows the resource after a dot, as in deployments.apps")
	case strings.ToLower(text) != text:
		return errors.New("resources are written as the lower-case plural, as in configmaps")
	case strings.HasSuffix(text, "."):
		return errors.New("ends with a dot")
	}
	return nil
}

// Matches reports whether the resource is one of those that the pattern names.
func (p ResourcePattern) Matches(gvr schema.GroupVersionResource) bool {
	return (p.Version == "" || p.Version == gvr.Version) &&
		matchGlob(p.Resource, gvr.Resource) && matchGlob(p.Group, gvr.Group)
}

// String is the pattern as it is written in a configuration.
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

// matchGlob is path.Match for a glob that is known to be valid.
func matchGlob(glob, name string) bool {
	matched, err := path.Match(glob, name)
	return err == nil && matched
}
