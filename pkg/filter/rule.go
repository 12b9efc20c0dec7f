package filter

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/pattern"
)

// Rule configures conditions on events. An event passes if all conditions that are set hold.
type Rule struct {
	// The resources whose events pass, in the notation of `watch[].resources`. If empty, all resources pass.
	Resources []string `yaml:"resources" pattern:"^[a-z0-9*?\\[\\]^-]+(\\.[a-z0-9.*?\\[\\]^-]*[a-z0-9*?\\[\\]^-])?$" example:"[pods, \"*.example.com\"]"`
	// The namespaces whose events pass, in the notation of `watch[].namespaces`. If empty, all namespaces pass.
	Namespaces []string `yaml:"namespaces" pattern:"^!?[a-z0-9*?\\[\\]^-]*$" example:"[\"team-*\", \"!team-test\"]"`
	// Selects namespaces by their labels, as in `kubectl get namespaces -l`. Events of objects in these namespaces pass;
	// events of cluster-scoped objects do not. When the labels of a namespace change, the sink receives additions of the
	// objects in it, or deletions, as with `when`. The bridge requires list and watch on `namespaces` in the whole
	// cluster. If empty, all namespaces are selected.
	NamespaceSelector string `yaml:"namespaceSelector" json:",omitempty" default:"\"\"" example:"team in (a, b), env!=test"`
	// Selected contains the names of the namespaces that NamespaceSelector selects, sorted. It is not part of the
	// configuration, but of a filter's string form: see Filter.WithNamespaces.
	Selected []string `json:",omitempty"`
	// The operations that pass: `added`, `updated`, `deleted`, and `restated` for objects that a resync re-sends. `added`
	// and `updated` also let restated objects pass. If empty, all operations pass.
	Operations []string `yaml:"operations" entries:"added updated deleted restated" example:"[added, deleted]"`
	// A condition in CEL (https://cel.dev) that can use `object`, `old` (null except for updates) and `operation`. In a sink
	// with `events: audit`, it can use only `event`, the audit event, such as `event.user.username != 'system:apiserver'`. If the
	// condition uses only `object`, the sink receives an addition when an object starts to satisfy the condition, and a
	// deletion when the object no longer satisfies it. If the evaluation fails, for example because a field is missing,
	// the condition counts as true. `has(object.status)` and `object.?status.?phase.orValue('')` are safe for missing
	// fields.
	When string `yaml:"when" default:"\"\"" example:"object.?status.?phase.orValue('') == 'Failed'"`
	// Updates that change only these parts of an object are not sent. An entry is a path, such as `status`,
	// `metadata.annotations["example.com/at"]` or `spec.items[*].lastSeen`, or one of these names: `metadata`; `leases`,
	// which are locks that their holder renews; `heartbeats`, which are timestamps of checks, in `status.conditions` and
	// on endpoints; and `managedFields`, which has no effect of its own, because changes to `metadata.managedFields`,
	// `metadata.resourceVersion` and `metadata.generation` alone are never sent if a filter has this key or `onlyChanges`.
	IgnoreChanges []string `yaml:"ignoreChanges" example:"[status, metadata.annotations]"`
	// Updates are sent only if they change at least one of these parts of the object. Entries are paths as in
	// `ignoreChanges`. If both keys match a part, `ignoreChanges` takes precedence. If empty, all changes are sent.
	OnlyChanges []string `yaml:"onlyChanges" example:"[spec, metadata.labels]"`
	// An update waits for this time, and then the latest state is sent, so that at most one update of an object is sent in
	// this time. Additions and deletions are sent at once. An update that passes several filters waits for the shortest
	// `debounce` of these. With 0s, updates do not wait.
	Debounce time.Duration `yaml:"debounce" json:",omitempty" default:"0s" min:"0s" max:"1m" example:"10s"`
	// The preset `quiet` is useful if all resources are watched. It filters out frequent changes that carry little
	// information: all Events, Endpoints and EndpointSlices, and updates that change only `managedFields`, `leases` and
	// `heartbeats`. If empty, no preset applies.
	Preset string `yaml:"preset" enum:"quiet" example:"quiet"`
}

// Options configures Compile.
type Options struct {
	// Slot is the first decision slot of object.Object that the filter uses; Filter.Slots returns how many slots it uses.
	// Filters for the same objects must not share slots. If a slot number is beyond object.Slots, decisions are not cached
	// and the expression is evaluated again.
	Slot int
	// OnError is called with the index of the rule whenever an expression fails. OnError must return quickly and be safe
	// for concurrent use. It may be nil.
	OnError func(rule int, err error)
	// Bytes returns the JSON of an object that `when` can access. It must always return the same bytes for the same state.
	// If Bytes is nil, `when` can access the whole object.
	Bytes func(schema.GroupVersionResource, *object.Object) ([]byte, error)
	// Logger logs failed evaluations, at most once a minute per rule. If Logger is nil, slog.Default() is used.
	Logger *slog.Logger
}

// allBytes is the default of Options.Bytes.
func allBytes(_ schema.GroupVersionResource, o *object.Object) ([]byte, error) { return o.Bytes() }

// RuleError describes a mistake in a rule.
type RuleError struct {
	Rule  int    // index of the rule, from 0
	Field string // "when", "resources[1]", "namespaces[0]", "namespaceSelector", "operations[2]"
	// Line and Column are the position in the text of `when`, counted from 1. They are 0 if the mistake has no position.
	// Column counts characters, not bytes.
	Line, Column int
	Err          error
}

func (e *RuleError) Error() string {
	place := ""
	if e.Line > 0 {
		place = fmt.Sprintf("%d:%d: ", e.Line, e.Column)
	}
	return fmt.Sprintf("filters[%d].%s: %s%v", e.Rule, e.Field, place, e.Err)
}

// Unwrap returns Err.
func (e *RuleError) Unwrap() error { return e.Err }

// rule is a compiled Rule.
type rule struct {
	text       Rule              // the configured rule, for Explain
	resources  pattern.Resources // if empty, all resources match
	excluded   pattern.Resources // by the preset
	namespaces pattern.Namespaces
	selector   labels.Selector  // of namespaces; nil if all are selected
	selected   sets.Set[string] // the namespaces that selector selects
	operations operations
	changes    *changes // nil if there are no such conditions

	// At most one of onObject and onChange is set, depending on the variables in `when`.
	onObject *expression // decides whether an object belongs
	onChange *expression // decides whether a change is sent

	slot int // the slot in which objects cache the result of onObject
}

// operations is a set of the event types that report objects. 0 means all operations. A set that contains additions or
// updates also contains restated objects.
type operations uint8

func (s operations) has(op event.Type) bool {
	wanted := operations(1) << op
	if op == event.Restated {
		wanted |= 1<<event.Added | 1<<event.Updated
	}
	return s == 0 || s&wanted != 0
}

// Compile compiles rules. If there are mistakes, it returns a nil filter and all mistakes in all rules. If rules is
// empty, every event passes the filter.
func Compile(rules []Rule, opts Options) (*Filter, []*RuleError) {
	compiled, mistakes := compileRules(rules, varObject, opts)
	if len(mistakes) > 0 {
		return nil, mistakes
	}
	return &Filter{compiled}, nil
}

// compileRules compiles rules, in whose expressions the variable is the object.
func compileRules(rules []Rule, variable string, opts Options) (compiled []*rule, mistakes []*RuleError) {
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	if opts.Bytes == nil {
		opts.Bytes = allBytes
	}
	env, err := newEnv(variable)
	if err != nil {
		return nil, []*RuleError{{Field: "when", Err: fmt.Errorf("set up CEL: %w", err)}}
	}
	for i, text := range rules {
		c := compiler{rule: rule{text: text, slot: opts.Slot}, index: i}
		c.compile(env, &opts)
		if c.rule.onObject != nil {
			opts.Slot++
		}
		compiled = append(compiled, &c.rule)
		mistakes = append(mistakes, c.mistakes...)
	}
	return compiled, mistakes
}

// compiler compiles one rule and collects all mistakes in the rule.
type compiler struct {
	rule     rule
	index    int
	mistakes []*RuleError
}

// report records a mistake in an entry of a list. It does nothing if err is nil.
func (c *compiler) report(field string, entry int, err error) {
	if err != nil {
		c.mistakes = append(c.mistakes, &RuleError{Rule: c.index, Field: fmt.Sprintf("%s[%d]", field, entry), Err: err})
	}
}

func (c *compiler) compile(env environment, opts *Options) {
	r, text := &c.rule, &c.rule.text
	for i, resource := range text.Resources {
		parsed, err := pattern.ParseResource(resource)
		if err != nil {
			err = fmt.Errorf("%q: %w", resource, err)
		}
		c.report("resources", i, err)
		r.resources = append(r.resources, parsed)
	}
	for i, namespace := range text.Namespaces {
		c.report("namespaces", i, r.namespaces.Add(namespace))
	}
	c.compileSelector()
	operations := []event.Type{event.Added, event.Updated, event.Deleted, event.Restated}
	for i, name := range text.Operations {
		n := slices.IndexFunc(operations, func(op event.Type) bool { return op.String() == name })
		if n < 0 {
			c.report("operations", i, fmt.Errorf("%q: not an operation: must be added, updated, deleted or restated", name))
			continue
		}
		r.operations |= 1 << operations[n]
	}
	if text.When != "" {
		c.compileWhen(env, opts)
	}
	ignore := text.IgnoreChanges
	switch text.Preset {
	case "":
	case PresetQuiet:
		ignore = slices.Concat(ignore, quietChanges())
		r.excluded = quietResources()
	default:
		err := fmt.Errorf("%q is not a preset: must be %s", text.Preset, PresetQuiet)
		c.mistakes = append(c.mistakes, &RuleError{Rule: c.index, Field: "preset", Err: err})
	}
	r.changes = parseChanges(ignore, text.OnlyChanges, c.report)
	if text.Debounce > 0 && !r.operations.has(event.Updated) {
		err := errors.New("has no effect without updated in operations: add it, or remove debounce")
		c.mistakes = append(c.mistakes, &RuleError{Rule: c.index, Field: "debounce", Err: err})
	}
}

// compileSelector compiles the rule's selector of namespaces.
func (c *compiler) compileSelector() {
	r, text := &c.rule, c.rule.text.NamespaceSelector
	if text == "" {
		return
	}
	var err error
	if r.selector, err = labels.Parse(text); err != nil {
		c.mistakes = append(c.mistakes, &RuleError{Rule: c.index, Field: "namespaceSelector", Err: err})
	}
	r.selected = sets.New(r.text.Selected...)
}

// compileWhen compiles the rule's `when` expression.
func (c *compiler) compileWhen(env environment, opts *Options) {
	text := c.rule.text.When
	program, onChange := env.compile(text, func(line, column int, err error) {
		c.mistakes = append(c.mistakes, &RuleError{c.index, "when", line, column, err})
	})
	e := &expression{
		rule: c.index, text: text, program: program, bytes: opts.Bytes, onError: opts.OnError, logger: opts.Logger,
		log: rate.Sometimes{Interval: logInterval},
	}
	if onChange {
		c.rule.onChange = e
	} else {
		c.rule.onObject = e
	}
}
