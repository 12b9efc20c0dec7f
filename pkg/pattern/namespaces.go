package pattern

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Namespaces matches namespaces against a list of globs and exclusions; the package comment describes the syntax.
// The zero value matches every namespace.
type Namespaces struct {
	include, exclude []string
}

var namespaceText = regexp.MustCompile(`^[a-z0-9*?\[\]^-]*$`)

// ParseNamespaces parses a list of namespace globs and exclusions.
func ParseNamespaces(entries []string) (m Namespaces, err error) {
	for i, entry := range entries {
		if err := m.Add(entry); err != nil {
			return Namespaces{}, fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return m, nil
}

// Add adds an entry to the list.
func (m *Namespaces) Add(entry string) error {
	glob, excluded := strings.CutPrefix(entry, "!")
	if !namespaceText.MatchString(glob) {
		return fmt.Errorf("%q: not a namespace: must have only lower-case letters, digits and \"-\", "+
			"with * ? [a-z] as wildcards and a leading \"!\" to exclude", entry)
	}
	if _, err := path.Match(glob, ""); err != nil {
		return fmt.Errorf("%q: not a valid glob: %w", entry, err)
	}
	if excluded {
		m.exclude = append(m.exclude, glob)
	} else {
		m.include = append(m.include, glob)
	}
	return nil
}

// Matches reports whether the list includes the namespace. For cluster-scoped objects, the namespace is "".
func (m Namespaces) Matches(namespace string) bool {
	matches := func(glob string) bool { return matchGlob(glob, namespace) }
	return !slices.ContainsFunc(m.exclude, matches) &&
		(len(m.include) == 0 || slices.ContainsFunc(m.include, matches))
}

// All reports whether the list is empty. An empty list matches every namespace.
func (m Namespaces) All() bool { return len(m.include) == 0 && len(m.exclude) == 0 }

// Literals returns the namespaces in the list, without duplicates. It returns false if the list is empty or contains a
// glob, an exclusion or the entry "", because then the namespaces cannot be watched one by one: a watch of the
// namespace "" covers all namespaces.
func (m Namespaces) Literals() (names []string, ok bool) {
	if len(m.include) == 0 || len(m.exclude) > 0 {
		return nil, false
	}
	for _, glob := range m.include {
		if glob == "" || hasMeta(glob) {
			return nil, false
		}
		if !slices.Contains(names, glob) {
			names = append(names, glob)
		}
	}
	return names, true
}

// Split returns lists that together include the same namespaces: one for each glob, or only the list itself if it has
// exclusions.
func (m Namespaces) Split() (lists []Namespaces) {
	if len(m.exclude) > 0 {
		return []Namespaces{m}
	}
	for _, glob := range m.include {
		lists = append(lists, Namespaces{include: []string{glob}})
	}
	return lists
}

// String returns the list in canonical form: sorted, without duplicates, separated by commas.
func (m Namespaces) String() string {
	entries := slices.Clone(m.include)
	for _, glob := range m.exclude {
		entries = append(entries, "!"+glob)
	}
	slices.Sort(entries)
	return strings.Join(slices.Compact(entries), ",")
}
