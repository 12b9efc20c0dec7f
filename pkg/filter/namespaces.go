package filter

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// NamespaceMatcher says which namespaces a list of globs and exclusions means, as the package comment describes.
// The zero value matches every namespace.
type NamespaceMatcher struct {
	include, exclude []namespaceGlob
}

type namespaceGlob struct {
	glob    string
	literal bool
	prefix  string // if glob is that and "*" behind it, as nearly all are: each event asks
	begins  bool   // prefix is meant
}

func newNamespaceGlob(glob string) namespaceGlob {
	g := namespaceGlob{glob: glob, literal: !hasMeta(glob)}
	if prefix, ok := strings.CutSuffix(glob, "*"); ok && !hasMeta(prefix) {
		g.prefix, g.begins = prefix, true
	}
	return g
}

func (g namespaceGlob) matches(namespace string) bool {
	switch {
	case g.literal:
		return g.glob == namespace
	case g.begins: // a namespace holds no slash, which is all that "*" does not match
		return strings.HasPrefix(namespace, g.prefix)
	default:
		return matchGlob(g.glob, namespace)
	}
}

// EntryError is a mistake in one entry of a list.
type EntryError struct {
	Index int // of the entry, from 0
	Err   error
}

func (e *EntryError) Error() string { return fmt.Sprintf("[%d]: %v", e.Index, e.Err) }

// Unwrap returns Err.
func (e *EntryError) Unwrap() error { return e.Err }

var namespaceText = regexp.MustCompile(`^[a-z0-9*?\[\]^-]*$`)

// ParseNamespaces reads a list of namespaces. The error joins one *EntryError for each entry that is wrong.
func ParseNamespaces(entries []string) (NamespaceMatcher, error) {
	m, mistakes := parseNamespaces(entries)
	errs := make([]error, len(mistakes))
	for i, mistake := range mistakes {
		errs[i] = mistake
	}
	return m, errors.Join(errs...)
}

func parseNamespaces(entries []string) (NamespaceMatcher, []*EntryError) {
	var m NamespaceMatcher
	var mistakes []*EntryError
	for i, entry := range entries {
		glob, excluded := strings.CutPrefix(entry, "!")
		if err := checkNamespace(glob); err != nil {
			mistakes = append(mistakes, &EntryError{Index: i, Err: fmt.Errorf("%q: %w", entry, err)})
			continue
		}
		g := newNamespaceGlob(glob)
		if excluded {
			m.exclude = append(m.exclude, g)
		} else {
			m.include = append(m.include, g)
		}
	}
	if len(mistakes) > 0 {
		return NamespaceMatcher{}, mistakes
	}
	return m, nil
}

func checkNamespace(glob string) error {
	if !namespaceText.MatchString(glob) {
		return errors.New("not a namespace: want lower-case letters, digits and \"-\", with * ? [a-z] as wildcards and a leading \"!\" to exclude")
	}
	if _, err := path.Match(glob, ""); err != nil {
		return fmt.Errorf("no valid glob: %w", err)
	}
	return nil
}

// Matches reports whether the namespace is one of those that the list means. Objects that are cluster-scoped
// have the namespace "".
func (m NamespaceMatcher) Matches(namespace string) bool {
	for _, g := range m.exclude {
		if g.matches(namespace) {
			return false
		}
	}
	for _, g := range m.include {
		if g.matches(namespace) {
			return true
		}
	}
	return len(m.include) == 0
}

// All reports whether the list is empty, so that it matches everything.
func (m NamespaceMatcher) All() bool { return len(m.include) == 0 && len(m.exclude) == 0 }

// Literals returns the names, each once and in their order, and true if the list consists of nothing but names of
// namespaces, so that each can be watched by itself. An entry "" is none: to watch the namespace "" is to watch
// all of them. The caller owns the slice.
func (m NamespaceMatcher) Literals() ([]string, bool) {
	if len(m.include) == 0 || len(m.exclude) > 0 {
		return nil, false
	}
	var names []string
	for _, g := range m.include {
		if !g.literal || g.glob == "" {
			return nil, false
		}
		if !slices.Contains(names, g.glob) {
			names = append(names, g.glob)
		}
	}
	return names, true
}
