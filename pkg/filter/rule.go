package filter

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Rule is conditions on events. All that are given have to hold.
type Rule struct {
	// The resources to let through, in the notation of `watch[].resources`. Empty: all.
	Resources []string `yaml:"resources" pattern:"^[a-z0-9*?\\[\\]^-]+(\\.[a-z0-9.*?\\[\\]^-]*[a-z0-9*?\\[\\]^-])?$" example:"[pods, \"*.example.com\"]"`
	// The namespaces to let through, in the notation of `watch[].namespaces`. Empty: all.
	Namespaces []string `yaml:"namespaces" pattern:"^!?[a-z0-9*?\\[\\]^-]*$" example:"[\"team-*\", \"!team-test\"]"`
	// The operations to let through: `added`, `updated`, `deleted`; `restated`, which `added` and `updated` let through too,
	// for objects that are sent again (`resync`). Empty: all.
	Operations []string `yaml:"operations" entries:"added updated deleted restated" example:"[added, deleted]"`
	// A condition in CEL (https://cel.dev) over `object`, `old` (null except in updates) and `operation`. If it speaks
	// of `object` alone, an object that begins to meet it is added for this sink, and one that ceases to is deleted.
	// A condition that fails, for instance on a field that is not there, counts as met; `has(object.status)` and
	// `object.?status.?phase.orValue('')` ask in safety.
	When string `yaml:"when" default:"\"\"" example:"object.?status.?phase.orValue('') == 'Failed'"`
	// An update that touches nothing but these parts of the object is no event. Paths: `status`,
	// `metadata.annotations["example.com/at"]`, `spec.items[*].lastSeen`. Names that stand for several: `status`, `metadata`,
	// `managedFields` (what the API server alone counts: `resourceVersion` and `generation` are never a change where this
	// key or `onlyChanges` is given), `leases` (locks that are renewed by who holds them), `heartbeats` (times at which
	// somebody looked, in `status.conditions` and on endpoints).
	IgnoreChanges []string `yaml:"ignoreChanges" example:"[status, metadata.annotations]"`
	// An update is an event only if it touches one of these parts of the object; the notation of paths is that of
	// `ignoreChanges`, which wins where both name something. Empty: all.
	OnlyChanges []string `yaml:"onlyChanges" example:"[spec, metadata.labels]"`
	// `quiet`, for watches of everything: leaves out what only churns. That is Events, Endpoints and EndpointSlices as a
	// whole, and updates that are nothing but `managedFields`, `leases` and `heartbeats`. Empty: nothing.
	Preset string `yaml:"preset" enum:"quiet" example:"quiet"`
}

// Options are what Compile needs besides the rules.
type Options struct {
	// Slot is the first decision slot on object.Object that this filter may use; it uses Filter.Slots of them.
	// Two filters that see the same objects must not share a slot. Slots that an object does not have cost
	// evaluations, and nothing else.
	Slot int
	// OnError is called for each expression that failed on an object, every time, with the index of its rule. It
	// is for counting: it must be quick and safe for concurrent use. Nil: nobody counts.
	OnError func(rule int, err error)
	// Bytes gives what `when` sees of an object; nil: its Bytes. It must give the same for the same state at any time.
	Bytes func(schema.GroupVersionResource, *object.Object) ([]byte, error)
	// Logger gets a line about a failing expression, at most once a minute for each rule. Nil: slog.Default().
	Logger *slog.Logger
}

// RuleError is one mistake in a rule.
type RuleError struct {
	Rule  int    // index of the rule, from 0
	Field string // "when", "resources[1]", "namespaces[0]", "operations[2]"
	// Line and Column point into the text of `when`, from 1; both 0 if the mistake has no place. Column counts
	// characters, not bytes.
	Line, Column int
	Err          error
}

func (e *RuleError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("filters[%d].%s: %v", e.Rule, e.Field, e.Err)
	}
	return fmt.Sprintf("filters[%d].%s: %d:%d: %v", e.Rule, e.Field, e.Line, e.Column, e.Err)
}

// Unwrap returns Err.
func (e *RuleError) Unwrap() error { return e.Err }

// rule is a Rule compiled.
type rule struct {
	text       Rule              // as it was given, for Explain
	resources  []ResourcePattern // empty: all
	excluded   []ResourcePattern
	namespaces NamespaceMatcher
	operations operations
	changes    *changes // nil: any

	// The two forms of `when`; at most one is set.
	onObject *expression // a condition on the object: it decides whether it belongs
	onChange *expression // a condition on the change: it decides whether it is sent

	slot int // where the answer of onObject is remembered
}

// operations is a set of the event types that speak of an object; 0 stands for all. Who asks for states (added, updated) is
// told them once more, too.
type operations uint8

func (s operations) has(op event.Type) bool {
	wanted := operations(1) << op
	if op == event.Restated {
		wanted |= 1<<event.Added | 1<<event.Updated
	}
	return s == 0 || s&wanted != 0
}

// Compile makes a filter of the rules. It reports every mistake of every rule at once; then the filter is nil.
// Without rules the filter lets everything pass.
func Compile(rules []Rule, opts Options) (*Filter, []*RuleError) {
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	env, err := newEnv()
	if err != nil {
		return nil, []*RuleError{{Field: "when", Err: fmt.Errorf("set up CEL: %w", err)}}
	}
	c := compiler{env: env, opts: opts}
	f := &Filter{}
	for i, text := range rules {
		r := c.rule(i, text)
		if r.onObject != nil {
			r.slot = opts.Slot + f.slots
			f.slots++
		}
		f.rules = append(f.rules, r)
	}
	if len(c.mistakes) > 0 {
		return nil, c.mistakes
	}
	return f, nil
}

// compiler collects the mistakes of all rules.
type compiler struct {
	env      *env
	opts     Options
	mistakes []*RuleError
}

func (c *compiler) mistake(rule int, field string, index int, err error) {
	c.mistakes = append(c.mistakes, &RuleError{Rule: rule, Field: fmt.Sprintf("%s[%d]", field, index), Err: err})
}

func (c *compiler) rule(index int, text Rule) *rule {
	r := &rule{text: text}
	for i, resource := range text.Resources {
		pattern, err := ParsePattern(resource)
		if err != nil {
			c.mistake(index, "resources", i, fmt.Errorf("%q: %w", resource, err))
			continue
		}
		r.resources = append(r.resources, pattern)
	}

	namespaces, mistakes := parseNamespaces(text.Namespaces)
	for _, m := range mistakes {
		c.mistake(index, "namespaces", m.Index, m.Err)
	}
	r.namespaces = namespaces

	for i, name := range text.Operations {
		op, err := parseOperation(name)
		if err != nil {
			c.mistake(index, "operations", i, fmt.Errorf("%q: %w", name, err))
			continue
		}
		r.operations |= 1 << op
	}

	if text.When != "" {
		c.when(index, text.When, r)
	}
	c.changes(index, text, r)
	return r
}

// changes compiles what an update has to touch, and the preset.
func (c *compiler) changes(index int, text Rule, r *rule) {
	ignore := text.IgnoreChanges
	switch text.Preset {
	case "":
	case PresetQuiet:
		ignore = append(slices.Clip(ignore), quietChanges()...)
		for _, resource := range quietResources() {
			pattern, err := ParsePattern(resource)
			if err != nil {
				c.mistakes = append(c.mistakes, &RuleError{Rule: index, Field: "preset", Err: err})
				continue
			}
			r.excluded = append(r.excluded, pattern)
		}
	default:
		c.mistakes = append(c.mistakes, &RuleError{Rule: index, Field: "preset", Err: fmt.Errorf("%q is no preset: want %s", text.Preset, PresetQuiet)})
	}
	r.changes = parseChanges(ignore, text.OnlyChanges, func(field string, i int, err error) { c.mistake(index, field, i, err) })
}

// when compiles the expression into the one of r's two fields that what it speaks of calls for.
func (c *compiler) when(index int, text string, r *rule) {
	program, onChange, issues := c.env.compile(text)
	for _, issue := range issues {
		issue.Rule, issue.Field = index, "when"
		c.mistakes = append(c.mistakes, issue)
	}
	if len(issues) > 0 {
		return
	}
	e := &expression{rule: index, text: text, program: program, bytes: c.opts.Bytes, onError: c.opts.OnError, logger: c.opts.Logger}
	if onChange {
		r.onChange = e
	} else {
		r.onObject = e
	}
}

func parseOperation(name string) (event.Type, error) {
	for _, op := range []event.Type{event.Added, event.Updated, event.Deleted, event.Restated} {
		if op.String() == name {
			return op, nil
		}
	}
	return 0, errors.New("no operation: want added, updated, deleted or restated")
}
