package fleet

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// selection says which objects of a resource are watched: those that any of its clauses selects. No two clauses have
// the same selectors, and none is covered by another, so that the same scopes give the same selection, in whatever
// order.
type selection struct {
	clauses []clause
	except  []string // namespaces that are watched by informers of their own, sorted
}

// clause is what scopes with the same selectors select.
type clause struct {
	accepts        []func(namespace string) bool // any of them; nil: all
	texts          []string                      // what they accept, in words, sorted
	labels, fields string                        // canonical; empty: all
}

// clauseOf gives what a scope selects; in a namespace that the scope names: there.
func clauseOf(scope *Scope) clause {
	c := clause{labels: canonicalLabels(scope.LabelSelector), fields: canonicalFields(scope.FieldSelector)}
	if len(scope.Namespaces) == 0 && scope.Accept != nil {
		c.texts = []string{scope.AcceptText}
		if !strings.Contains(scope.AcceptText, "!") { // a union of globs, which entries may share out among them in any way
			c.texts = slices.Compact(slices.Sorted(strings.SplitSeq(scope.AcceptText, ",")))
		}
		c.accepts = []func(string) bool{scope.Accept}
	}
	return c
}

// with is the selection of what s or c selects.
func (s selection) with(c clause) selection {
	clauses := slices.Clone(s.clauses)
	if n := slices.IndexFunc(
		clauses,
		func(o clause) bool { return o.labels == c.labels && o.fields == c.fields },
	); n >= 0 {
		c = clauses[n].union(c)
		clauses = slices.Delete(clauses, n, n+1)
	}
	if !slices.ContainsFunc(clauses, func(o clause) bool { return o.covers(c) }) {
		clauses = slices.DeleteFunc(clauses, c.covers)
		clauses = append(clauses, c)
	}
	slices.SortFunc(clauses, func(a, b clause) int { return strings.Compare(a.String(), b.String()) })
	return selection{clauses, s.except}
}

// union of two clauses with the same selectors.
func (c clause) union(o clause) clause {
	if c.accepts == nil || o.accepts == nil {
		c.accepts, c.texts = nil, nil
		return c
	}
	if texts := slices.Compact(slices.Sorted(slices.Values(slices.Concat(c.texts, o.texts)))); len(texts) > len(c.texts) {
		c.texts, c.accepts = texts, slices.Concat(c.accepts, o.accepts)
	}
	return c
}

// covers reports whether c certainly selects all that o does.
func (c clause) covers(o clause) bool {
	if c.labels != "" && c.labels != o.labels || c.fields != "" && c.fields != o.fields {
		return false
	}
	return c.accepts == nil ||
		o.accepts != nil && !slices.ContainsFunc(o.texts, func(text string) bool { return !slices.Contains(c.texts, text) })
}

func (c clause) accept(namespace string) bool {
	return c.accepts == nil ||
		slices.ContainsFunc(c.accepts, func(accept func(string) bool) bool { return accept(namespace) })
}

// in is what the selection means within one namespace.
func (s selection) in(namespace string) selection {
	var within selection
	for _, c := range s.clauses {
		if !slices.Contains(s.except, namespace) && c.accept(namespace) {
			within = within.with(clause{labels: c.labels, fields: c.fields})
		}
	}
	return within
}

// covers reports whether s certainly selects all that o does.
func (s selection) covers(o selection) bool {
	return len(s.except) == 0 && !slices.ContainsFunc(o.clauses, func(c clause) bool {
		return !slices.ContainsFunc(s.clauses, func(by clause) bool { return by.covers(c) })
	})
}

// String names the selection. It is empty if no object is left out, and the same for the same scopes.
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
	if len(c.texts) > 0 {
		texts = append(texts, "in "+strings.Join(c.texts, " or "))
	}
	if c.labels != "" {
		texts = append(texts, "with labels "+c.labels)
	}
	if c.fields != "" {
		texts = append(texts, "with fields "+c.fields)
	}
	return strings.Join(texts, " ")
}

// selectors names what is selected by label and field.
func (s selection) selectors() string {
	var texts []string
	for _, c := range s.clauses {
		if text := strings.Trim(c.labels+";"+c.fields, ";"); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, " or ")
}

// server gives the selectors that the API server evaluates: those that all clauses have.
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

// evaluable gives the part of the selection that can be evaluated: where clauses select by different fields, not those
// whose fields only the API server knows, unless there are no others: then the first. It gives the fields that are not
// selected by for that.
func (s selection) evaluable() (rest selection, dropped []string) {
	keep := func(c clause) bool { return fieldsAreKnown(c.fields) }
	if first := s.clauses[0].fields; !slices.ContainsFunc(s.clauses, keep) ||
		!slices.ContainsFunc(s.clauses, func(c clause) bool { return c.fields != first }) {
		keep = func(c clause) bool { return c.fields == first }
	}
	rest.except = s.except
	for _, c := range s.clauses {
		if keep(c) {
			rest.clauses = append(rest.clauses, c)
		} else if !slices.Contains(dropped, c.fields) {
			dropped = append(dropped, c.fields)
		}
	}
	return rest, dropped
}

// matcher gives what evaluates the selection in this process; nil if nothing is left to be evaluated. What the API
// server has selected by is left out, unless whole is set; fields that only the API server knows are taken to match.
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
	if byLabels && c.labels != "" {
		if parsed, err := labels.Parse(c.labels); err == nil {
			label = parsed
		}
	}
	if byFields && c.fields != "" && fieldsAreKnown(c.fields) {
		if parsed, err := fields.ParseSelector(c.fields); err == nil {
			field = parsed
		}
	}
	if c.accepts == nil && label.Empty() && field.Empty() {
		return nil
	}
	return func(o *object.Object) bool {
		return c.accept(o.Namespace) &&
			(field.Empty() || field.Matches(fields.Set{fieldName: o.Name, fieldNamespace: o.Namespace})) &&
			(label.Empty() || label.Matches(labels.Set(o.GetLabels())))
	}
}

// The fields that each resource can be selected by, and that are known here.
const fieldName, fieldNamespace = "metadata.name", "metadata.namespace"

// fieldsAreKnown reports whether a field selector can be evaluated in this process.
func fieldsAreKnown(text string) bool {
	selector, err := fields.ParseSelector(text)
	return err == nil && !slices.ContainsFunc(selector.Requirements(), func(r fields.Requirement) bool {
		return r.Field != fieldName && r.Field != fieldNamespace
	})
}

// canonicalLabels gives a selector in the form that all of the same meaning have, as far as that is easy to tell.
func canonicalLabels(text string) string {
	selector, err := labels.Parse(text)
	if err != nil {
		return text // the API server says what is wrong with it
	}
	return selector.String()
}

// canonicalFields is canonicalLabels for fields.
func canonicalFields(text string) string {
	selector, err := fields.ParseSelector(text)
	if err != nil {
		return text
	}
	if strings.Contains(text, `\`) { // a comma may be part of a value
		return selector.String()
	}
	terms := strings.Split(selector.String(), ",")
	slices.Sort(terms)
	return strings.Join(slices.Compact(terms), ",")
}
