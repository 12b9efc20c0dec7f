package fleet

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// selection selects the objects of a resource that match at least one of its clauses. No clause covers another one.
// Therefore, the same scopes always result in the same selection, regardless of their order.
type selection struct {
	clauses []clause
	except  []string // namespaces that have their own informers, sorted
}

// clause selects the objects that a scope selects. If the namespaces of the scope are globs, it has a clause for each
// glob.
type clause struct {
	accept         func(namespace string) bool // accepts the namespaces of the scope; if nil, all namespaces match
	namespaces     string                      // the glob; if it is a part of a list with "!", the whole list
	labels, fields string                      // canonical selectors; if empty, all objects match
}

// clausesOf returns the clauses of a scope. If the scope names namespaces, they apply to each of these namespaces.
func clausesOf(scope *Scope, namespaced bool) (clauses []clause) {
	c := scope.selectors()
	if _, named := scope.Namespaces.Literals(); !namespaced || named || scope.Namespaces.All() {
		return []clause{c}
	}
	text := scope.Namespaces.String()
	globs := strings.Split(text, ",")
	if strings.Contains(text, "!") {
		globs = []string{text} // not a union of the globs
	}
	for _, glob := range globs {
		clauses = append(clauses, clause{scope.Namespaces.Matches, glob, c.labels, c.fields})
	}
	return clauses
}

// selectors returns a clause with the selectors of a scope, for all namespaces.
func (scope *Scope) selectors() clause {
	label, _ := labels.Parse(scope.LabelSelector) // the configuration was validated
	return clause{labels: label.String(), fields: canonicalFields(scope.FieldSelector)}
}

// with returns a selection of the objects that s or one of the clauses selects.
func (s selection) with(added ...clause) selection {
	clauses := slices.Clone(s.clauses)
	for _, c := range added {
		if !slices.ContainsFunc(clauses, func(o clause) bool { return o.covers(c) }) {
			clauses = append(slices.DeleteFunc(clauses, c.covers), c)
		}
	}
	slices.SortFunc(clauses, func(a, b clause) int { return strings.Compare(a.String(), b.String()) })
	return selection{clauses, s.except}
}

// covers reports whether c is certain to select all objects that o selects.
func (c clause) covers(o clause) bool {
	return (c.labels == "" || c.labels == o.labels) && (c.fields == "" || c.fields == o.fields) &&
		(c.accept == nil || o.accept != nil && c.namespaces == o.namespaces)
}

// in returns the selection restricted to one namespace.
func (s selection) in(namespace string) selection {
	var within selection
	for _, c := range s.clauses {
		if !slices.Contains(s.except, namespace) && (c.accept == nil || c.accept(namespace)) {
			within = within.with(clause{labels: c.labels, fields: c.fields})
		}
	}
	return within
}

// covers reports whether s is certain to select all objects that o selects.
func (s selection) covers(o selection) bool {
	return len(s.except) == 0 && !slices.ContainsFunc(o.clauses, func(c clause) bool {
		return !slices.ContainsFunc(s.clauses, func(by clause) bool { return by.covers(c) })
	})
}

// String describes the selection. It is empty if the selection includes all objects, and is the same for the same
// scopes.
func (s selection) String() string {
	texts := make([]string, len(s.clauses))
	for n, c := range s.clauses {
		texts[n] = c.String()
	}
	text := strings.Join(texts, " or ")
	if len(s.except) > 0 {
		text = strings.TrimSpace(text + " except in " + strings.Join(s.except, ", "))
	}
	return text
}

func (c clause) String() string {
	var texts []string
	if c.accept != nil {
		texts = append(texts, "in "+c.namespaces)
	}
	if c.labels != "" {
		texts = append(texts, "with labels "+c.labels)
	}
	if c.fields != "" {
		texts = append(texts, "with fields "+c.fields)
	}
	return strings.Join(texts, " ")
}

// selectors describes the label and field selectors.
func (s selection) selectors() string {
	var texts []string
	for _, c := range s.clauses {
		if text := strings.Trim(c.labels+";"+c.fields, ";"); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, " or ")
}

// server returns the selectors that the API server evaluates, which are those that all clauses have in common.
func (s selection) server() (labels, fields string) {
	for n, c := range s.clauses {
		if n == 0 {
			labels, fields = c.labels, c.fields
		}
		if c.labels != labels {
			labels = ""
		}
		if c.fields != fields {
			fields = ""
		}
	}
	return labels, fields
}

// matcher returns a function that evaluates the selection in this process, or nil if nothing remains to be evaluated.
// Unless whole is set, it omits the selectors that the API server evaluates. Fields that only the API server can
// evaluate count as matching.
func (s selection) matcher(whole bool) func(*object.Object) bool {
	labelsByServer, fieldsByServer := s.server()
	var matchers []func(*object.Object) bool
	for _, c := range s.clauses {
		m := c.matcher(whole || labelsByServer == "", whole || fieldsByServer == "")
		if m == nil && len(s.except) == 0 {
			return nil
		}
		matchers = append(matchers, m)
	}
	return func(o *object.Object) bool {
		if slices.Contains(s.except, o.Namespace) {
			return false
		}
		return slices.ContainsFunc(matchers, func(m func(*object.Object) bool) bool { return m == nil || m(o) })
	}
}

func (c clause) matcher(byLabels, byFields bool) func(*object.Object) bool {
	label, field := labels.Everything(), fields.Everything()
	if byLabels {
		label, _ = labels.Parse(c.labels) // clausesOf has already parsed both
	}
	if byFields && c.evaluable() {
		field, _ = fields.ParseSelector(c.fields)
	}
	if c.accept == nil && label.Empty() && field.Empty() {
		return nil
	}
	return func(o *object.Object) bool {
		return (c.accept == nil || c.accept(o.Namespace)) &&
			(field.Empty() || field.Matches(fields.Set{fieldName: o.Name, fieldNamespace: o.Namespace})) &&
			(label.Empty() || label.Matches(labels.Set(o.GetLabels())))
	}
}

// Every resource can be selected by these fields, and this process can evaluate them.
const fieldName, fieldNamespace = "metadata.name", "metadata.namespace"

// evaluable reports whether this process can evaluate the field selector.
func (c clause) evaluable() bool {
	selector, _ := fields.ParseSelector(c.fields)
	return !slices.ContainsFunc(selector.Requirements(), func(r fields.Requirement) bool {
		return r.Field != fieldName && r.Field != fieldNamespace
	})
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
