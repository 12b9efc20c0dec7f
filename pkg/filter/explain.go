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
	// Field is resources, namespaces, namespaceSelector, operations, ignoreChanges, onlyChanges, preset or when.
	Field string `json:"field"`
	Text  string `json:"text"` // the configured value; lists are joined with ", "
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
		return f.explain(change{gvr, op, nil, obj}, "")
	}
	belongs := func(o *object.Object) bool {
		verdicts := f.explain(change{gvr, event.Added, nil, o}, "")
		return slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.Belongs })
	}
	switch before, now := belongs(old), belongs(obj); {
	case before == now:
		return f.explain(change{gvr, op, old, obj}, "")
	case now:
		op = event.Added
	default:
		op = event.Deleted
	}
	return append(f.explain(change{gvr, op, nil, old}, "before"), f.explain(change{gvr, op, nil, obj}, "now")...)
}

func (f *Filter) explain(c change, state string) (verdicts []Verdict) {
	if f == nil {
		return nil
	}
	for i, r := range f.rules {
		v := Verdict{Rule: i, State: state, Sends: true}
		v.explain(r, c)
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// explain evaluates the conditions of a rule.
func (v *Verdict) explain(r *rule, c change) {
	resource, preset := event.GroupResource(c.resource), strings.Fields(r.text.Preset)
	names := r.names(c.resource)
	v.add("resources", r.text.Resources, resource, names, "")
	if r.excluded.Match(c.resource) {
		v.add("preset", preset, resource, false, "")
	}
	if !names {
		return
	}
	v.add("namespaces", r.text.Namespaces, c.now.Namespace, r.namespaces.Matches(c.now.Namespace), "")
	if r.selector != nil {
		v.add("namespaceSelector", []string{r.text.NamespaceSelector}, c.now.Namespace, r.selects(c.now.Namespace), "")
	}
	v.addWhen(r.onObject, change{resource: c.resource, now: c.now})
	v.Belongs = v.Sends
	v.add("operations", r.text.Operations, c.op.String(), r.operations.has(c.op), "")
	reason, err := r.changes.refusal(c)
	only, ignored, problem := "", reason, ""
	if reason == ReasonOnlyChanges {
		only, ignored = reason, ""
	}
	if err != nil {
		problem = err.Error()
	}
	v.add("onlyChanges", r.text.OnlyChanges, only, only == "", problem)
	v.add("ignoreChanges", r.text.IgnoreChanges, ignored, ignored == "", problem)
	v.add("preset", preset, ignored, ignored == "", problem)
	v.addWhen(r.onChange, c)
}

// add adds a condition to the verdict. It does nothing if the condition is not configured, because texts is empty.
func (v *Verdict) add(field string, texts []string, found string, holds bool, problem string) {
	if len(texts) > 0 {
		v.Conditions = append(v.Conditions, Condition{field, strings.Join(texts, ", "), found, holds, problem})
		v.Sends = v.Sends && holds
	}
}

// addWhen evaluates an expression, which can be nil, and adds it to the verdict.
func (v *Verdict) addWhen(e *expression, c change) {
	if e == nil {
		return
	}
	holds, err := e.evaluate(c)
	problem := ""
	if err != nil {
		problem = e.reason(err)
	}
	v.add("when", []string{e.text}, "", holds, problem)
}
