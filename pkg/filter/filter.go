package filter

import (
	"cmp"
	"slices"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Filter contains the compiled rules of one sink. It is safe for concurrent use. Objects cache the results of the
// filter's expressions (object.Object.SetDecision).
type Filter struct {
	rules []*rule // if empty, every event passes
}

// Slots returns the number of decision slots that the filter uses, starting at Options.Slot. For a nil Filter it
// returns 0.
func (f *Filter) Slots() (n int) {
	if f == nil {
		return 0
	}
	for _, r := range f.rules {
		if r.onObject != nil {
			n++
		}
	}
	return n
}

// For returns the filter for one resource. Rules that do not include the resource are left out. For a nil Filter and a
// Filter without rules it returns nil.
func (f *Filter) For(gvr schema.GroupVersionResource) *ResourceFilter {
	if f == nil || len(f.rules) == 0 {
		return nil
	}
	r := &ResourceFilter{resource: gvr}
	for _, rule := range f.rules {
		if rule.names(gvr) {
			r.rules = append(r.rules, rule)
		}
	}
	return r
}

// ResourceFilter is a Filter for the objects of one resource. It is safe for concurrent use. If it is nil, every event
// passes.
type ResourceFilter struct {
	resource schema.GroupVersionResource
	rules    []*rule
}

// Never reports whether no rule includes the resource. In this case no event of the resource can pass.
func (r *ResourceFilter) Never() bool { return r != nil && len(r.rules) == 0 }

// Belongs reports whether the object conditions of at least one rule hold. For each state of an object, Belongs
// evaluates an expression on the object at most once.
func (r *ResourceFilter) Belongs(o *object.Object) bool {
	belongs := func(rule *rule) bool { return rule.belongs(r.resource, o) }
	return r == nil || slices.ContainsFunc(r.rules, belongs)
}

// Reasons that Refusal returns, in addition to the entries of ignoreChanges.
const (
	ReasonOnlyChanges = "onlyChanges"
	ReasonOperations  = "operations"
	ReasonWhen        = "when"
)

// Refusal returns the reason why a change to an object that belongs to the sink is suppressed: ReasonOperations,
// ReasonWhen, ReasonOnlyChanges, or the entry of ignoreChanges that matches the changed part of the object. It returns
// an empty string if the change is sent, that is, if all conditions of at least one rule hold. If several rules
// suppress the change, Refusal returns the reason of the first rule that includes the operation.
//
// op is the operation from the sink's point of view. For an object that enters the filter, op is Added and obj is the
// new state. For an object that leaves the filter, op is Deleted and obj is the state before the change. old is nil
// unless op is Updated. Control events always pass.
func (r *ResourceFilter) Refusal(op event.Type, old, obj *object.Object) string {
	if r == nil || op.IsControl() {
		return ""
	}
	first := ""
	for _, rule := range r.rules {
		// Check the cheapest condition first: operations, then the cached decision, the changed bytes and the expression.
		if !rule.operations.has(op) || !rule.belongs(r.resource, obj) {
			continue
		}
		reason := rule.refusal(change{r.resource, op, old, obj})
		if reason == "" {
			return ""
		}
		first = cmp.Or(first, reason)
	}
	return cmp.Or(first, ReasonOperations)
}

// Debounces reports whether a rule has a debounce.
func (f *Filter) Debounces() bool { return f != nil && slices.ContainsFunc(f.rules, debounces) }

func debounces(r *rule) bool { return r.text.Debounce > 0 }

// Debounce returns how long an update waits that the filter sends: the shortest debounce of the rules that send it. The
// arguments are the same as for Refusal.
func (r *ResourceFilter) Debounce(old, obj *object.Object) (shortest time.Duration) {
	if r == nil || !slices.ContainsFunc(r.rules, debounces) {
		return 0
	}
	for _, rule := range r.rules {
		sends := rule.operations.has(event.Updated) && rule.belongs(r.resource, obj) &&
			rule.refusal(change{r.resource, event.Updated, old, obj}) == ""
		switch debounce := rule.text.Debounce; {
		case !sends:
		case debounce == 0:
			return 0
		case shortest == 0 || debounce < shortest:
			shortest = debounce
		}
	}
	return shortest
}

// refusal returns the reason why the rule suppresses a change, or an empty string. The rule must include the operation
// of the change.
func (r *rule) refusal(c change) string {
	// If a state cannot be read, assume a relevant change: a superfluous event is better than a missing one.
	if reason, err := r.changes.refusal(c); err == nil && reason != "" {
		return reason
	}
	if !r.onChange.holds(c) {
		return ReasonWhen
	}
	return ""
}

// names reports whether the rule includes the resource.
func (r *rule) names(gvr schema.GroupVersionResource) bool {
	return !r.excluded.Match(gvr) && (len(r.resources) == 0 || r.resources.Match(gvr))
}

// belongs reports whether the rule's conditions on the object hold. It caches only the result of the expression,
// because namespaces are cheap to compare.
func (r *rule) belongs(resource schema.GroupVersionResource, o *object.Object) bool {
	if !r.namespaces.Matches(o.Namespace) || !r.selects(o.Namespace) {
		return false
	}
	if r.onObject == nil {
		return true
	}
	if belongs, known := o.Decision(r.slot); known {
		return belongs
	}
	belongs := r.onObject.holds(change{resource: resource, now: o})
	o.SetDecision(r.slot, belongs)
	return belongs
}
