package filter

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Namespaces contains the labels of all existing namespaces, by name.
type Namespaces map[string]labels.Set

// selects reports whether the rule's namespaceSelector selects a namespace. The name is empty for cluster-scoped
// objects, which no selector selects.
func (r *rule) selects(namespace string) bool { return r.selector == nil || r.selected.Has(namespace) }

// SelectsNamespaces reports whether a rule selects namespaces by their labels.
func (f *Filter) SelectsNamespaces() bool {
	return f != nil && slices.ContainsFunc(f.rules, hasSelector)
}

// SelectsNamespaces reports whether a rule that includes the resource selects namespaces by their labels.
func (r *ResourceFilter) SelectsNamespaces() bool {
	return r != nil && slices.ContainsFunc(r.rules, hasSelector)
}

func hasSelector(r *rule) bool { return r.selector != nil }

// Rules returns the rules of the filter. Their field Selected contains the namespaces that are selected now.
func (f *Filter) Rules() (rules []Rule) {
	for _, r := range f.rules {
		rules = append(rules, r.text)
	}
	return rules
}

// WithNamespaces returns the filter that selects the given namespaces by their labels. If it selects the same
// namespaces as f, it is f. Other conditions, and cached decisions, are the same.
//
// A selected namespace that does not exist any more stays selected if keep returns true, because the deletions of its
// objects can arrive later than its own deletion.
func (f *Filter) WithNamespaces(existing Namespaces, keep func(namespace string) bool) *Filter {
	if !f.SelectsNamespaces() {
		return f
	}
	next, changed := &Filter{}, false
	for _, r := range f.rules {
		if r.selector != nil {
			selected := r.selectFrom(existing, keep)
			if !selected.Equal(r.selected) {
				other := *r
				other.selected, other.text.Selected = selected, sets.List(selected)
				r, changed = &other, true
			}
		}
		next.rules = append(next.rules, r)
	}
	if !changed {
		return f
	}
	return next
}

func (r *rule) selectFrom(existing Namespaces, keep func(string) bool) sets.Set[string] {
	selected := sets.New[string]()
	for name, of := range existing {
		if r.selector.Matches(of) {
			selected.Insert(name)
		}
	}
	for name := range r.selected {
		if _, exists := existing[name]; !exists && keep(name) {
			selected.Insert(name)
		}
	}
	return selected
}

// Selection returns rules with the namespaces that rules with the same selectors have selected before.
func Selection(rules, before []Rule) []Rule {
	rules = slices.Clone(rules)
	for n := range rules {
		selector := rules[n].NamespaceSelector
		same := func(r Rule) bool { return r.NamespaceSelector == selector }
		if i := slices.IndexFunc(before, same); selector != "" && i >= 0 {
			rules[n].Selected = before[i].Selected
		}
	}
	return rules
}
