package filter

import (
	"cmp"
	"slices"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Filter is the compiled rules of one sink. It is safe for concurrent use. Objects remember the results of its
// expressions (object.Object.SetDecision).
type Filter struct {
	rules []*rule // empty: everything passes
	slots int
}

// Slots returns how many decision slots the filter uses, from Options.Slot on. It returns 0 for a nil Filter.
func (f *Filter) Slots() int {
	if f == nil {
		return 0
	}
	return f.slots
}

// For returns the filter for one resource, without the rules that do not include the resource. It returns nil for a nil
// Filter.
func (f *Filter) For(gvr schema.GroupVersionResource) *ResourceFilter {
	if f == nil {
		return nil
	}
	r := &ResourceFilter{resource: gvr, all: len(f.rules) == 0, sendsAll: true}
	for _, rule := range f.rules {
		if !rule.names(gvr) {
			continue
		}
		onChange := rule.operations != 0 || rule.changes != nil || rule.onChange != nil
		r.rules = append(r.rules, rule)
		r.all = r.all || !onChange && rule.onObject == nil && rule.namespaces.All()
		r.sendsAll = r.sendsAll && !onChange
	}
	return r
}

// ResourceFilter is a Filter for the objects of one resource. It is safe for concurrent use. A nil ResourceFilter lets
// everything pass.
type ResourceFilter struct {
	resource schema.GroupVersionResource
	rules    []*rule
	all      bool // a rule has no conditions: everything passes, without a look at objects
	sendsAll bool // no rule has a condition on the change
}

// Never reports whether no rule includes the resource, so that no event of the resource can pass.
func (r *ResourceFilter) Never() bool { return r != nil && !r.all && len(r.rules) == 0 }

// Belongs reports whether the object conditions of any rule hold. It is the FilterFunc of
// cache.FilteringResourceEventHandler: obj is an *object.Object and never a tombstone. Expressions on the object are
// evaluated at most once for each state.
func (r *ResourceFilter) Belongs(obj any) bool {
	if r == nil || r.all {
		return true
	}
	o, ok := obj.(*object.Object)
	if !ok || o == nil {
		return true // let the mistake appear where the object is used
	}
	for _, rule := range r.rules {
		if rule.belongs(r.resource, o) {
			return true
		}
	}
	return false
}

// ReasonOnlyChanges, ReasonOperations and ReasonWhen are reasons that Refusal returns.
const (
	ReasonOnlyChanges = "onlyChanges"
	ReasonOperations  = "operations"
	ReasonWhen        = "when"
)

// Refusal returns why a change of an object that belongs is suppressed: ReasonOperations, ReasonWhen,
// ReasonOnlyChanges, or the entry of ignoreChanges that names what changed. It returns an empty string if the change is
// sent: if the conditions on the change hold in a rule whose object conditions hold. If several rules suppress the
// change, the reason is that of the first rule that includes the operation.
//
// op is the operation of the sink: Added with the new state for an object that enters the filter, Deleted with the
// state before the change for one that leaves it. old is nil unless op is Updated. Control events always pass.
func (r *ResourceFilter) Refusal(op event.Type, old, obj *object.Object) string {
	if r == nil || r.all || r.sendsAll || op.IsControl() {
		return ""
	}
	first := ""
	for _, rule := range r.rules {
		// In the order of their costs: the operations, the object's remembered decision, the bytes, the expression.
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

// refusal returns why the rule suppresses a change whose operation it includes, or an empty string.
func (r *rule) refusal(gvr schema.GroupVersionResource, op event.Type, old, obj *object.Object) string {
	if r.changes != nil && op == event.Updated && old != nil {
		// If a state cannot be read, it counts as changed: an event too many is better than a lost event.
		if reason, err := r.changes.refusal(old, obj); err == nil && reason != "" {
			return reason
		}
	}
	if !r.onChange.holds(gvr, op, old, obj) {
		return ReasonWhen
	}
	return ""
}

// names reports whether the rule includes a resource.
func (r *rule) names(gvr schema.GroupVersionResource) bool {
	matches := func(p ResourcePattern) bool { return p.Matches(gvr) }
	return !r.excludes(gvr) && (len(r.resources) == 0 || slices.ContainsFunc(r.resources, matches))
}

// excludes reports whether the rule's preset leaves out a resource.
func (r *rule) excludes(gvr schema.GroupVersionResource) bool {
	return slices.ContainsFunc(r.excluded, func(p ResourcePattern) bool { return p.Matches(gvr) })
}

// belongs reports whether the rule's conditions on the object hold. Only the result of the expression is remembered,
// because comparing the namespace costs less.
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
