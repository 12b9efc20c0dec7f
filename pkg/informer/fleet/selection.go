package fleet

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/pattern"
)

// selection selects the objects of an informer. The same scopes always result in the same selection, regardless of
// their order.
type selection struct {
	labels, fields string // canonical selectors; if empty, all objects match
	// namespaces are lists of globs. A namespace matches if one of the lists includes it. Without a list, all namespaces
	// match. The lists are sorted.
	namespaces []pattern.Namespaces
}

// selection returns what the scope selects. If the scope names namespaces, this applies to each of them.
func (scope *Scope) selection(namespaced bool) selection {
	label, _ := labels.Parse(scope.LabelSelector) // the configuration was validated
	s := selection{labels: label.String(), fields: canonicalFields(scope.FieldSelector)}
	if _, named := scope.Namespaces.Literals(); namespaced && !named && !scope.Namespaces.All() {
		s.namespaces = sortedLists(scope.Namespaces.Split())
	}
	return s
}

// hasSelectors reports whether the selection has these selectors.
func (s selection) hasSelectors(labels, fields string) bool {
	return s.labels == labels && s.fields == fields
}

// with returns a selection for the namespaces of both. Their selectors are the same.
func (s selection) with(o selection) selection {
	if len(s.namespaces) == 0 || len(o.namespaces) == 0 {
		s.namespaces = nil
	} else {
		s.namespaces = sortedLists(slices.Concat(s.namespaces, o.namespaces))
	}
	return s
}

func sortedLists(lists []pattern.Namespaces) []pattern.Namespaces {
	slices.SortFunc(lists, func(a, b pattern.Namespaces) int { return strings.Compare(a.String(), b.String()) })
	return slices.CompactFunc(lists, func(a, b pattern.Namespaces) bool { return a.String() == b.String() })
}

// includes reports whether the selection includes a namespace.
func (s selection) includes(namespace string) bool {
	return len(s.namespaces) == 0 ||
		slices.ContainsFunc(s.namespaces, func(list pattern.Namespaces) bool { return list.Matches(namespace) })
}

// includesAll reports whether the selection is certain to include all namespaces that o includes.
func (s selection) includesAll(o selection) bool {
	if len(s.namespaces) == 0 || len(o.namespaces) == 0 {
		return len(s.namespaces) == 0
	}
	return !slices.ContainsFunc(o.namespaces, func(list pattern.Namespaces) bool {
		return !slices.ContainsFunc(s.namespaces, func(own pattern.Namespaces) bool { return own.String() == list.String() })
	})
}

// String describes the selection. It is empty if the selection includes all objects.
func (s selection) String() string {
	var texts []string
	for n, list := range s.namespaces {
		texts = append(texts, []string{"in", "or in"}[min(n, 1)], list.String())
	}
	if s.labels != "" {
		texts = append(texts, "with labels", s.labels)
	}
	if s.fields != "" {
		texts = append(texts, "with fields", s.fields)
	}
	return strings.Join(texts, " ")
}

// inNamespace returns a function that reports whether the selection includes a namespace, or nil if it includes all.
func (s selection) inNamespace() func(string) bool {
	if len(s.namespaces) == 0 {
		return nil
	}
	return s.includes
}

// within returns a function that evaluates the selection in this process, or nil if the API server evaluates no part of
// it. Fields that only the API server can evaluate count as matching.
func (s selection) within() func(*object.Object) bool {
	if s.hasSelectors("", "") {
		return nil
	}
	label, _ := labels.Parse(s.labels)
	field, _ := fields.ParseSelector(s.fields)
	const name, namespace = "metadata.name", "metadata.namespace"
	if slices.ContainsFunc(field.Requirements(), func(r fields.Requirement) bool {
		return r.Field != name && r.Field != namespace
	}) {
		field = fields.Everything()
	}
	return func(o *object.Object) bool {
		return s.includes(o.Namespace) && field.Matches(fields.Set{name: o.Name, namespace: o.Namespace}) &&
			(label.Empty() || label.Matches(labels.Set(o.GetLabels())))
	}
}

// canonicalFields returns the canonical form of a field selector. Most selectors with the same meaning have the same
// canonical form.
func canonicalFields(text string) string {
	selector, _ := fields.ParseSelector(text) // the configuration was validated
	if strings.Contains(text, `\`) {          // a value may contain a comma
		return selector.String()
	}
	terms := strings.Split(selector.String(), ",")
	slices.Sort(terms)
	return strings.Join(slices.Compact(terms), ",")
}
