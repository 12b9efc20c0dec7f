package filter

import (
	"slices"
	"strings"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Verdict is the decision of one rule on a change.
type Verdict struct {
	Rule  int    `json:"index"`           // index of the rule, from 0
	State string `json:"state,omitempty"` // "before" or "now" if an update crosses the border, otherwise empty
	// Belongs reports whether all conditions on the object hold. Sends reports whether the conditions on the change hold
	// too.
	Belongs bool `json:"belongs"`
	Sends   bool `json:"passes"`
	// Conditions are the evaluated conditions of the rule. If the rule does not include the resource, no other conditions
	// are evaluated.
	Conditions []Condition `json:"conditions"`
}

// Condition is one key of a rule together with its result.
type Condition struct {
	Field string `json:"field"` // resources, namespaces, operations, ignoreChanges, onlyChanges, preset, when
	Text  string `json:"text"`  // the configured value; lists are joined with ", "
	Found string `json:"found,omitempty"`
	Holds bool   `json:"holds"`
	// Error is the reason why an expression failed. A failed expression counts as true. Error never quotes the object.
	Error string `json:"error,omitempty"`
}

// Explain returns the verdict of each rule. If an update moves the object across the border of the filter, Explain
// returns the verdicts for both states. The arguments are the same as for Refusal. Explain does not count or log
// failures and does not cache decisions.
func (f *Filter) Explain(gvr schema.GroupVersionResource, op event.Type, old, obj *object.Object) []Verdict {
	if op != event.Updated || old == nil {
		return f.explain(gvr, op, nil, obj, "")
	}
	belongs := func(v Verdict) bool { return v.Belongs }
	before := slices.ContainsFunc(f.explain(gvr, event.Added, nil, old, ""), belongs)
	now := slices.ContainsFunc(f.explain(gvr, event.Added, nil, obj, ""), belongs)
	switch {
	case before == now:
		return f.explain(gvr, op, old, obj, "")
	case now:
		op = event.Added
	default:
		op = event.Deleted
	}
	return append(f.explain(gvr, op, nil, old, "before"), f.explain(gvr, op, nil, obj, "now")...)
}

func (f *Filter) explain(
	gvr schema.GroupVersionResource,
	op event.Type,
	old, obj *object.Object,
	state string,
) (verdicts []Verdict) {
	if f == nil {
		return nil
	}
	for i, r := range f.rules {
		v := r.explain(gvr, op, old, obj)
		v.Rule, v.State = i, state
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// conditions are the conditions of a rule that have been evaluated.
type conditions []Condition

func (c *conditions) add(field string, texts []string, found string, holds bool, err string) {
	*c = append(*c, Condition{field, strings.Join(texts, ", "), found, holds, err})
}

func (c conditions) hold() bool {
	return !slices.ContainsFunc(c, func(c Condition) bool { return !c.Holds })
}

func (r *rule) explain(gvr schema.GroupVersionResource, op event.Type, old, obj *object.Object) Verdict {
	var c conditions
	names, resource := r.names(gvr), event.GroupResource(gvr)
	if len(r.resources) > 0 {
		c.add("resources", r.text.Resources, resource, names, "")
	}
	if r.excluded.Match(gvr) {
		c.add("preset", []string{r.text.Preset}, resource, false, "")
	}
	if !names {
		return Verdict{Conditions: c}
	}
	if !r.namespaces.All() {
		c.add("namespaces", r.text.Namespaces, obj.Namespace, r.namespaces.Matches(obj.Namespace), "")
	}
	if r.onObject != nil {
		holds, reason := r.onObject.explain(gvr, 0, nil, obj)
		c.add("when", []string{r.text.When}, "", holds, reason)
	}
	belongs := c.hold()
	if r.operations != 0 {
		c.add("operations", r.text.Operations, op.String(), r.operations.has(op), "")
	}
	if r.changes != nil {
		r.explainChanges(&c, op, old, obj)
	}
	if r.onChange != nil {
		holds, reason := r.onChange.explain(gvr, op, old, obj)
		c.add("when", []string{r.text.When}, "", holds, reason)
	}
	return Verdict{Belongs: belongs, Sends: c.hold(), Conditions: c}
}

// explainChanges adds the conditions on the parts that an update modifies: onlyChanges, ignoreChanges and the preset.
func (r *rule) explainChanges(c *conditions, op event.Type, old, obj *object.Object) {
	reason, problem := "", ""
	if op == event.Updated && old != nil {
		var err error
		if reason, err = r.changes.refusal(old, obj); err != nil {
			problem = err.Error()
		}
	}
	only, ignored := "", ""
	if reason == ReasonOnlyChanges {
		only = reason
	} else {
		ignored = reason
	}
	if r.text.OnlyChanges != nil {
		c.add("onlyChanges", r.text.OnlyChanges, only, only == "", problem)
	}
	if r.text.IgnoreChanges != nil {
		c.add("ignoreChanges", r.text.IgnoreChanges, ignored, ignored == "", problem)
	}
	if r.text.Preset != "" {
		c.add("preset", []string{r.text.Preset}, ignored, ignored == "", problem)
	}
}

// explain evaluates the expression. If the evaluation fails, explain returns true and the reason.
func (e *expression) explain(
	gvr schema.GroupVersionResource,
	op event.Type,
	old, obj *object.Object,
) (holds bool, reason string) {
	holds, err := e.evaluate(gvr, op, old, obj)
	if err != nil {
		return true, e.reason(err)
	}
	return holds, ""
}
