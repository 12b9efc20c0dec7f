package filter

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// Rule has conditions on events. All conditions that are set must hold.
type Rule struct {
	// The resources that pass, in the notation of `watch[].resources`. Empty: all.
	Resources []string `yaml:"resources" pattern:"^[a-z0-9*?\\[\\]^-]+(\\.[a-z0-9.*?\\[\\]^-]*[a-z0-9*?\\[\\]^-])?$" example:"[pods, \"*.example.com\"]"`
	// The namespaces that pass, in the notation of `watch[].namespaces`. Empty: all.
	Namespaces []string `yaml:"namespaces" pattern:"^!?[a-z0-9*?\\[\\]^-]*$" example:"[\"team-*\", \"!team-test\"]"`
	// The operations that pass: `added`, `updated`, `deleted`, and `restated` for objects that a resync re-sends. `added`
	// and `updated` also let restated objects pass. Empty: all.
	Operations []string `yaml:"operations" entries:"added updated deleted restated" example:"[added, deleted]"`
	// A condition in CEL (https://cel.dev) over `object`, `old` (null except in updates) and `operation`. If it uses only
	// `object`, an object that begins to satisfy it is added for this sink, and one that ceases to is deleted. A condition
	// that fails, for example because a field is missing, counts as true; `has(object.status)` and
	// `object.?status.?phase.orValue('')` are safe.
	When string `yaml:"when" default:"\"\"" example:"object.?status.?phase.orValue('') == 'Failed'"`
	// An update that changes only these parts of the object is not sent. Paths: `status`,
	// `metadata.annotations["example.com/at"]`, `spec.items[*].lastSeen`. Names that stand for several paths: `status`,
	// `metadata`, `managedFields` (`metadata.managedFields`, `resourceVersion` and `generation`, which this key and
	// `onlyChanges` always ignore), `leases` (locks that their holder renews), `heartbeats` (times of checks, in
	// `status.conditions` and on endpoints).
	IgnoreChanges []string `yaml:"ignoreChanges" example:"[status, metadata.annotations]"`
	// An update is sent only if it changes one of these parts of the object. Paths are as in `ignoreChanges`, which wins
	// if both name a part. Empty: all.
	OnlyChanges []string `yaml:"onlyChanges" example:"[spec, metadata.labels]"`
	// `quiet`, for a watch of everything, leaves out frequent changes that mean little: all Events, Endpoints and
	// EndpointSlices, and updates that change only `managedFields`, `leases` and `heartbeats`. Empty: nothing.
	Preset string `yaml:"preset" enum:"quiet" example:"quiet"`
}

// Options are the options of Compile.
type Options struct {
	// Slot is the first decision slot of object.Object that the filter may use; it uses Filter.Slots of them. Filters
	// that see the same objects must not share a slot. A slot that objects do not have only means that expressions are
	// evaluated again.
	Slot int
	// OnError is called with the index of the rule each time an expression fails. It must be fast and safe for
	// concurrent use. Nil is allowed.
	OnError func(rule int, err error)
	// Bytes returns what `when` sees of an object, and must always return the same bytes for the same state. If it is nil,
	// `when` sees the whole object.
	Bytes func(schema.GroupVersionResource, *object.Object) ([]byte, error)
	// Logger logs failing expressions, at most once a minute for each rule. Nil means slog.Default().
	Logger *slog.Logger
}

// allBytes is the default of Options.Bytes.
func allBytes(_ schema.GroupVersionResource, o *object.Object) ([]byte, error) { return o.Bytes() }

// RuleError is a mistake in a rule.
type RuleError struct {
	Rule  int    // index of the rule, from 0
	Field string // "when", "resources[1]", "namespaces[0]", "operations[2]"
	// Line and Column are the place in the text of `when`, from 1, or 0 for a mistake without a place. Column counts
	// characters, not bytes.
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
	text       Rule              // the source, for Explain
	resources  []ResourcePattern // empty: all
	excluded   []ResourcePattern
	namespaces NamespaceMatcher
	operations operations
	changes    *changes // nil: none

	// At most one of the two is set, depending on the variables that `when` uses.
	onObject *expression // decides whether an object belongs
	onChange *expression // decides whether a change is sent

	slot int // where objects remember the result of onObject
}

// operations is a set of event types about objects. 0 means all. A set with additions or updates includes restated
// objects.
type operations uint8

func (s operations) has(op event.Type) bool {
	wanted := operations(1) << op
	if op == event.Restated {
		wanted |= 1<<event.Added | 1<<event.Updated
	}
	return s == 0 || s&wanted != 0
}

// Compile compiles rules. It returns every mistake of every rule, and a nil filter if there are any. Without rules the
// filter lets everything pass.
func Compile(rules []Rule, opts Options) (*Filter, []*RuleError) {
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	if opts.Bytes == nil {
		opts.Bytes = allBytes
	}
	env, err := newEnv()
	if err != nil {
		return nil, []*RuleError{{Field: "when", Err: fmt.Errorf("set up CEL: %w", err)}}
	}
	f := &Filter{}
	var mistakes []*RuleError
	for i, text := range rules {
		c := compiler{rule: rule{text: text, slot: opts.Slot + f.slots}, index: i}
		c.compile(env, &opts)
		if c.rule.onObject != nil {
			f.slots++
		}
		f.rules = append(f.rules, &c.rule)
		mistakes = append(mistakes, c.mistakes...)
	}
	if len(mistakes) > 0 {
		return nil, mistakes
	}
	return f, nil
}

// compiler compiles a rule, and collects all mistakes in it.
type compiler struct {
	rule     rule
	index    int
	mistakes []*RuleError
}

// report collects the mistake in an entry of a list. err may be nil.
func (c *compiler) report(field string, entry int, err error) {
	if err != nil {
		c.mistakes = append(c.mistakes, &RuleError{Rule: c.index, Field: fmt.Sprintf("%s[%d]", field, entry), Err: err})
	}
}

func (c *compiler) compile(env environment, opts *Options) {
	r, text := &c.rule, &c.rule.text
	for i, resource := range text.Resources {
		pattern, err := ParsePattern(resource)
		if err != nil {
			err = fmt.Errorf("%q: %w", resource, err)
		}
		c.report("resources", i, err)
		r.resources = append(r.resources, pattern)
	}
	for i, namespace := range text.Namespaces {
		c.report("namespaces", i, r.namespaces.Add(namespace))
	}
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
		c.when(env, opts)
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
}

// when compiles the expression.
func (c *compiler) when(env environment, opts *Options) {
	text := c.rule.text.When
	program, onChange, mistakes := env.compile(text)
	for _, m := range mistakes {
		m.Rule, m.Field = c.index, "when"
	}
	c.mistakes = append(c.mistakes, mistakes...)
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
