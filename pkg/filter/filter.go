package filter

import (
	"cmp"
	"slices"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Filter is the compiled rules of one sink. It is safe for concurrent use. It notes on an object what its expressions decided of it
// (object.Object.SetDecision).
type Filter struct {
	rules []*rule // none: everything passes
	slots int
}

// Slots is how many decision slots the filter uses, from Options.Slot on. 0 for a nil Filter.
func (f *Filter) Slots() int {
	if f == nil {
		return 0
	}
	return f.slots
}

// For narrows the filter to one resource: rules that do not name it fall away. The result is safe to use even if
// it is nil, which it is for a nil Filter: then everything passes.
func (f *Filter) For(gvr schema.GroupVersionResource) *ResourceFilter {
	if f == nil {
		return nil
	}
	r := &ResourceFilter{resource: gvr, all: len(f.rules) == 0, sendsAll: true}
	for _, rule := range f.rules {
		if !rule.names(gvr) {
			continue
		}
		r.rules = append(r.rules, rule)
		r.all = r.all || rule.isTrue()
		r.sendsAll = r.sendsAll && !rule.hasChangeConditions()
	}
	return r
}

// ResourceFilter is a Filter for the objects of one resource, and as safe for concurrent use. A nil ResourceFilter
// lets everything pass.
type ResourceFilter struct {
	resource schema.GroupVersionResource
	rules    []*rule
	// Two shortcuts, so that objects and changes that no condition can refuse are not looked at.
	all      bool // each object belongs and each of its changes is sent
	sendsAll bool // no rule has a condition on the change
}

// Never reports that no rule names the resource, so that nothing of it can pass and no handler is needed.
func (r *ResourceFilter) Never() bool { return r != nil && !r.all && len(r.rules) == 0 }

// Belongs reports whether the object conditions of any rule hold. It is the FilterFunc of
// cache.FilteringResourceEventHandler: obj is an *object.Object, never a tombstone. Expressions over the object
// are evaluated at most once for each state, and remembered on it. What is no object passes, so that the mistake
// shows where objects are used.
func (r *ResourceFilter) Belongs(obj any) bool {
	if r == nil || r.all {
		return true
	}
	o, ok := obj.(*object.Object)
	if !ok || o == nil {
		return true
	}
	for _, rule := range r.rules {
		if rule.belongs(r.resource, o) {
			return true
		}
	}
	return false
}

// Sends reports whether a change of an object that belongs is sent: whether the conditions on the change hold
// in a rule whose object conditions hold. op is the operation as the sink sees it: Added with the new state for
// an object that moved into the filter, Deleted with the state before the change for one that left it. old is
// nil unless op is Updated. Control events always pass.
func (r *ResourceFilter) Sends(op event.Type, old, obj *object.Object) bool {
	return r.Refusal(op, old, obj) == ""
}

// Refusal says why Sends is false, in a word for metrics: ReasonOperations, ReasonWhen, ReasonOnlyChanges, or the entry of
// ignoreChanges that names what changed. Of several rules it is that of the first one that asks for this operation. Empty:
// the change is sent.
func (r *ResourceFilter) Refusal(op event.Type, old, obj *object.Object) string {
	if r == nil || r.all || r.sendsAll || op.IsControl() {
		return ""
	}
	first := ""
	for _, rule := range r.rules {
		// In the order of what they cost: the set, the object's remembered answer, the bytes, the expression.
		if !rule.operations.has(op) || !rule.belongs(r.resource, obj) {
			continue
		}
		reason := rule.refusal(r.resource, op, old, obj)
		if reason == "" {
			return ""
		}
		first = cmp.Or(first, reason)
	}
	return cmp.Or(first, ReasonOperations)
}

// refusal is what the rule's conditions on a change say of one whose operation it asks for.
func (r *rule) refusal(gvr schema.GroupVersionResource, op event.Type, old, obj *object.Object) string {
	if r.changes != nil && op == event.Updated && old != nil {
		// A state that can't be had counts as changed: an event too many is better than one lost.
		if reason, err := r.changes.refusal(old, obj); err == nil && reason != "" {
			return reason
		}
	}
	if !r.onChange.holds(gvr, op, old, obj) {
		return ReasonWhen
	}
	return ""
}

func (r *rule) names(gvr schema.GroupVersionResource) bool {
	if r.excludes(gvr) {
		return false
	}
	for _, pattern := range r.resources {
		if pattern.Matches(gvr) {
			return true
		}
	}
	return len(r.resources) == 0
}

func (r *rule) excludes(gvr schema.GroupVersionResource) bool {
	return slices.ContainsFunc(r.excluded, func(p ResourcePattern) bool { return p.Matches(gvr) })
}

// isTrue reports that the rule lets everything pass of the resources that it names.
func (r *rule) isTrue() bool {
	return r.namespaces.All() && r.onObject == nil && !r.hasChangeConditions()
}

func (r *rule) hasChangeConditions() bool {
	return r.operations != 0 || r.changes != nil || r.onChange != nil
}

// belongs reports whether the rule's conditions on the object hold. The answer of the expression alone is
// remembered: the namespace is cheaper to compare than to remember.
func (r *rule) belongs(resource schema.GroupVersionResource, o *object.Object) bool {
	if !r.namespaces.Matches(o.Namespace) {
		return false
	}
	if r.onObject == nil {
		return true
	}
	if belongs, known := o.Decision(r.slot); known {
		return belongs
	}
	belongs := r.onObject.holds(resource, 0, nil, o)
	o.SetDecision(r.slot, belongs)
	return belongs
}
