package filter

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// AuditFilter contains the compiled rules of a sink that is sent audit events. It is safe for concurrent use.
type AuditFilter struct {
	rules []*rule // if empty, every event passes
}

// ErrOnChanges is the mistake in a rule for audit events that has a condition on changes.
var ErrOnChanges = errors.New("is a condition on changes, and the sink is sent audit events")

// CompileAudit is like Compile for rules that select audit events. Of the rules, only Resources, Namespaces and When
// can be set. When has one variable, event: the audit event as the sink is sent it. Options.Bytes and Options.Slot are
// not used.
func CompileAudit(rules []Rule, opts Options) (*AuditFilter, []*RuleError) {
	var mistakes []*RuleError
	var selecting []Rule
	for i, text := range rules {
		for field, set := range map[string]bool{
			"namespaceSelector": text.NamespaceSelector != "", "operations": len(text.Operations) > 0,
			"ignoreChanges": len(text.IgnoreChanges) > 0, "onlyChanges": len(text.OnlyChanges) > 0,
			"debounce": text.Debounce > 0, "preset": text.Preset != "",
		} {
			if set {
				mistakes = append(mistakes, &RuleError{Rule: i, Field: field, Err: ErrOnChanges})
			}
		}
		selecting = append(selecting, Rule{Resources: text.Resources, Namespaces: text.Namespaces, When: text.When})
	}
	opts.Bytes = nil
	compiled, others := compileRules(selecting, varEvent, opts)
	if mistakes = append(mistakes, others...); len(mistakes) > 0 {
		return nil, mistakes
	}
	return &AuditFilter{compiled}, nil
}

// Passes reports whether all conditions of at least one rule hold for an audit event. resource, namespace and name are
// those in its objectRef. A request that is not about a resource passes only rules without resources. data is the event
// as the sink is sent it. If it is nil, the conditions in CEL count as true, so that a caller can find out first
// whether it must encode the event.
func (f *AuditFilter) Passes(resource schema.GroupVersionResource, namespace, name string, data []byte) bool {
	o := &object.Object{Raw: data, Identity: object.Identity{Namespace: namespace, Name: name}}
	return len(f.rules) == 0 || slices.ContainsFunc(f.rules, func(r *rule) bool {
		if len(r.resources) > 0 && (resource.Resource == "" || !r.resources.Match(resource)) {
			return false
		}
		return r.namespaces.Matches(namespace) && (data == nil || r.onObject.holds(change{now: o}))
	})
}
