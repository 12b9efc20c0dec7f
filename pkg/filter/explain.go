package filter

import (
	"errors"
	"strings"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Verdict is what one rule says of a change, for people.
type Verdict struct {
	Rule  int  // index of the rule, from 0
	Named bool // the rule speaks of the resource; otherwise nothing else of it was asked
	// Belongs: the conditions on the object hold. Sends: those on the change do too.
	Belongs, Sends bool
	// Conditions are those that the rule has, in the order of its fields. A rule without any holds always.
	Conditions []Condition
}

// Condition is one field of a rule, and what came of it.
type Condition struct {
	Field    string // resources, namespaces, operations, ignoreChanges, onlyChanges, preset, when
	Text     string // as it is configured; lists are joined by ", "
	Found    string // what it was held against; empty for an expression
	OnChange bool   // it is a condition on the change, not on the object
	Holds    bool
	Err      error // why an expression failed, which counts as true, without values of the object; nil if it did not
}

// Explain gives what each rule says of a change, as Belongs and Sends would decide it. The arguments are those of
// Sends. Expressions are evaluated anew, and nothing is counted, logged or remembered. A nil Filter has no rules, and
// one without rules lets everything pass.
func (f *Filter) Explain(gvr schema.GroupVersionResource, op event.Type, old, obj *object.Object) []Verdict {
	if f == nil {
		return nil
	}
	verdicts := make([]Verdict, len(f.rules))
	for i, r := range f.rules {
		verdicts[i] = r.explain(gvr, op, old, obj)
		verdicts[i].Rule = i
	}
	return verdicts
}

func (r *rule) explain(gvr schema.GroupVersionResource, op event.Type, old, obj *object.Object) Verdict {
	v := Verdict{Named: r.names(gvr)}
	v.Belongs = v.Named
	add := func(c Condition) {
		v.Conditions = append(v.Conditions, c)
		if !c.OnChange {
			v.Belongs = v.Belongs && c.Holds
		}
	}
	if len(r.resources) > 0 {
		v.Conditions = append(v.Conditions, Condition{Field: "resources", Text: strings.Join(r.text.Resources, ", "), Found: event.GroupResource(gvr), Holds: v.Named})
	}
	if r.excludes(gvr) {
		v.Conditions = append(v.Conditions, Condition{Field: "preset", Text: r.text.Preset, Found: event.GroupResource(gvr)})
	}
	if !v.Named {
		return v
	}
	if !r.namespaces.All() {
		add(Condition{Field: "namespaces", Text: strings.Join(r.text.Namespaces, ", "), Found: obj.Namespace, Holds: r.namespaces.Matches(obj.Namespace)})
	}
	if r.onObject != nil {
		add(r.onObject.explain(gvr, r.text.When, 0, nil, obj))
	}
	v.Sends = v.Belongs
	if r.operations != 0 {
		add(Condition{Field: "operations", Text: strings.Join(r.text.Operations, ", "), Found: op.String(), OnChange: true, Holds: r.operations.has(op)})
		v.Sends = v.Sends && r.operations.has(op)
	}
	for _, c := range r.explainChanges(op, old, obj) {
		add(c)
		v.Sends = v.Sends && c.Holds
	}
	if r.onChange != nil {
		c := r.onChange.explain(gvr, r.text.When, op, old, obj)
		c.OnChange = true
		add(c)
		v.Sends = v.Sends && c.Holds
	}
	return v
}

func (e *expression) explain(gvr schema.GroupVersionResource, text string, op event.Type, old, obj *object.Object) Condition {
	holds, err := e.evaluate(gvr, op, old, obj)
	if err != nil {
		holds, err = true, errors.New(e.reason(err))
	}
	return Condition{Field: "when", Text: text, Holds: holds, Err: err}
}

// explainChanges tells of each of the keys that say what an update has to touch.
func (r *rule) explainChanges(op event.Type, old, obj *object.Object) (conditions []Condition) {
	if r.changes == nil {
		return nil
	}
	var reason string
	var err error
	if op == event.Updated && old != nil {
		reason, err = r.changes.refusal(old, obj)
	}
	add := func(field, text string, holds bool) {
		c := Condition{Field: field, Text: text, OnChange: true, Holds: holds, Err: err}
		if !holds {
			c.Found = reason
		}
		conditions = append(conditions, c)
	}
	if r.text.OnlyChanges != nil {
		add(ReasonOnlyChanges, strings.Join(r.text.OnlyChanges, ", "), reason != ReasonOnlyChanges)
	}
	ignores := reason == "" || reason == ReasonOnlyChanges
	if r.text.IgnoreChanges != nil {
		add("ignoreChanges", strings.Join(r.text.IgnoreChanges, ", "), ignores)
	}
	if r.text.Preset != "" {
		add("preset", r.text.Preset, ignores)
	}
	return conditions
}
