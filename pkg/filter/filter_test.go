package filter

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/google/go-cmp/cmp"
)

func mustCompile(t testing.TB, rules []Rule, opts Options) *Filter {
	t.Helper()
	f, errs := Compile(rules, opts)
	if len(errs) > 0 {
		t.Fatalf("compile: %v", errs)
	}
	return f
}

func newObject(namespace, name, json string) *object.Object {
	return &object.Object{Identity: object.Identity{Namespace: namespace, Name: name}, Raw: []byte(json)}
}

// Sends reports whether a change of an object that belongs is sent.
func (r *ResourceFilter) Sends(op event.Type, old, obj *object.Object) bool {
	return r.Refusal(op, old, obj) == ""
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// counter counts the failures of each rule.
type counter struct {
	mu     sync.Mutex
	counts map[int]int
}

func (c *counter) onError(rule int, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = make(map[int]int)
	}
	c.counts[rule]++
}

func TestDecisions(t *testing.T) {
	const (
		running = `{"status":{"phase":"Running"},"spec":{"n":1}}`
		failed  = `{"status":{"phase":"Failed"},"spec":{"n":1}}`
		scaled  = `{"status":{"phase":"Failed"},"spec":{"n":2}}`
		bare    = `{"metadata":{}}`
	)
	const isFailed = "object.?status.?phase.orValue('') == 'Failed'"
	tests := []struct {
		name      string
		rules     []Rule
		namespace string
		old       string // empty: none
		object    string
		op        event.Type
		belongs   bool
		sends     bool // looked at only if it belongs
	}{
		{name: "no rules", object: running, op: event.Added, belongs: true, sends: true},
		{name: "an empty rule", rules: []Rule{{}}, object: running, op: event.Deleted, belongs: true, sends: true},

		{
			name:    "resource",
			rules:   []Rule{{Resources: []string{"pods"}}},
			object:  running,
			op:      event.Added,
			belongs: true,
			sends:   true,
		},
		{name: "another resource", rules: []Rule{{Resources: []string{"services"}}}, object: running, op: event.Added},
		{
			name:    "one of two resources",
			rules:   []Rule{{Resources: []string{"services", "pods"}}},
			object:  running,
			op:      event.Added,
			belongs: true,
			sends:   true,
		},

		{
			name:      "namespace",
			rules:     []Rule{{Namespaces: []string{"team-*"}}},
			namespace: "team-a",
			object:    running,
			op:        event.Added,
			belongs:   true,
			sends:     true,
		},
		{
			name:      "another namespace",
			rules:     []Rule{{Namespaces: []string{"team-*"}}},
			namespace: "default",
			object:    running,
			op:        event.Added,
		},
		{name: "cluster-scoped", rules: []Rule{{Namespaces: []string{"team-*"}}}, object: running, op: event.Added},

		{name: "when", rules: []Rule{{When: isFailed}}, object: failed, op: event.Added, belongs: true, sends: true},
		{name: "when not", rules: []Rule{{When: isFailed}}, object: running, op: event.Added},
		{
			name:      "when and namespace",
			rules:     []Rule{{When: isFailed, Namespaces: []string{"a"}}},
			namespace: "b",
			object:    failed,
			op:        event.Added,
		},

		{
			name:    "operation",
			rules:   []Rule{{Operations: []string{"deleted", "updated"}}},
			object:  running,
			op:      event.Deleted,
			belongs: true,
			sends:   true,
		},
		{
			name:    "told once more, to who asks for additions",
			rules:   []Rule{{Operations: []string{"added"}}},
			object:  running,
			op:      event.Restated,
			belongs: true,
			sends:   true,
		},
		{
			name:    "told once more, to who asks for updates",
			rules:   []Rule{{Operations: []string{"deleted", "updated"}}},
			object:  running,
			op:      event.Restated,
			belongs: true,
			sends:   true,
		},
		{
			name:    "told once more, to who asks for deletions",
			rules:   []Rule{{Operations: []string{"deleted"}}},
			object:  running,
			op:      event.Restated,
			belongs: true,
		},
		{
			name:    "told once more, to who asks for that alone",
			rules:   []Rule{{Operations: []string{"restated"}}},
			object:  running,
			op:      event.Restated,
			belongs: true,
			sends:   true,
		},
		{
			name:    "added, to who asks to be told once more",
			rules:   []Rule{{Operations: []string{"restated"}}},
			object:  running,
			op:      event.Added,
			belongs: true,
		},
		{
			name:    "told once more, with a condition on the operation",
			rules:   []Rule{{When: "operation == 'restated'"}},
			object:  running,
			op:      event.Restated,
			belongs: true,
			sends:   true,
		},
		{
			name:    "another operation",
			rules:   []Rule{{Operations: []string{"deleted", "updated"}}},
			object:  running,
			op:      event.Added,
			belongs: true,
		},

		{
			name:    "old",
			rules:   []Rule{{When: "old == null || object.spec != old.spec"}},
			old:     failed,
			object:  scaled,
			op:      event.Updated,
			belongs: true,
			sends:   true,
		},
		{
			name:    "old, nothing changed",
			rules:   []Rule{{When: "old == null || object.spec != old.spec"}},
			old:     running,
			object:  failed,
			op:      event.Updated,
			belongs: true,
		},
		{
			name:    "old is null",
			rules:   []Rule{{When: "old == null"}},
			object:  running,
			op:      event.Added,
			belongs: true,
			sends:   true,
		},
		{
			name:    "operation in an expression",
			rules:   []Rule{{When: "operation == 'deleted'"}},
			object:  running,
			op:      event.Deleted,
			belongs: true,
			sends:   true,
		},
		{
			name:    "another operation in an expression",
			rules:   []Rule{{When: "operation == 'deleted'"}},
			old:     failed,
			object:  running,
			op:      event.Updated,
			belongs: true,
		},
		{
			name:    "object and operation are together a condition on the change",
			rules:   []Rule{{When: isFailed + " && operation == 'added'"}},
			object:  running,
			op:      event.Added,
			belongs: true,
		},

		{
			name:   "any rule",
			rules:  []Rule{{Resources: []string{"services"}}, {When: isFailed}, {Namespaces: []string{"b"}}},
			object: failed, op: event.Added, belongs: true, sends: true,
		},
		{
			name:   "no rule",
			rules:  []Rule{{Resources: []string{"services"}}, {When: isFailed}, {Namespaces: []string{"b"}}},
			object: running, op: event.Added,
		},
		{
			name: "conditions are not mixed between rules",
			rules: []Rule{
				{When: isFailed, Operations: []string{"deleted"}},
				{Namespaces: []string{"b"}, Operations: []string{"added"}},
			},
			object:  failed,
			op:      event.Added,
			belongs: true,
		},
		{
			name: "a second rule sends",
			rules: []Rule{
				{When: isFailed, Operations: []string{"deleted"}},
				{Namespaces: []string{"b"}, Operations: []string{"added"}},
			},
			namespace: "b",
			object:    failed,
			op:        event.Added,
			belongs:   true,
			sends:     true,
		},
		{
			name:   "the rule of another resource sends nothing",
			rules:  []Rule{{When: isFailed, Operations: []string{"deleted"}}, {Resources: []string{"services"}}},
			object: failed, op: event.Added, belongs: true,
		},
		{
			name:   "a rule without conditions on the change sends all",
			rules:  []Rule{{When: isFailed}, {Operations: []string{"deleted"}}},
			object: failed, op: event.Added, belongs: true, sends: true,
		},

		{
			name:    "an expression that fails passes",
			rules:   []Rule{{When: "object.status.phase == 'Failed'"}},
			object:  bare,
			op:      event.Added,
			belongs: true,
			sends:   true,
		},
		{
			name:    "an expression on the change that fails passes",
			rules:   []Rule{{When: "old.status.phase == 'Failed'"}},
			object:  bare,
			op:      event.Added,
			belongs: true,
			sends:   true,
		},
		{
			name:    "no bool passes",
			rules:   []Rule{{When: "object.status.phase"}},
			object:  running,
			op:      event.Added,
			belongs: true,
			sends:   true,
		},
		{
			name:    "no JSON passes",
			rules:   []Rule{{When: "object.a == 1"}},
			object:  `{"a":`,
			op:      event.Added,
			belongs: true,
			sends:   true,
		},

		{
			name:    "control events pass",
			rules:   []Rule{{Operations: []string{"added"}}},
			object:  bare,
			op:      event.Synced,
			belongs: true,
			sends:   true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := mustCompile(t, tt.rules, Options{Logger: quiet()}).For(gvr(t, "/v1/pods"))
			o := newObject(tt.namespace, "a", tt.object)
			var old *object.Object
			if tt.old != "" {
				old = newObject(tt.namespace, "a", tt.old)
			}
			for _, again := range []string{"", ", asked again"} {
				if got := r.Belongs(o); got != tt.belongs {
					t.Errorf("Belongs = %v%s", got, again)
				}
				if !tt.belongs {
					continue
				}
				if got := r.Sends(tt.op, old, o); got != tt.sends {
					t.Errorf("Sends = %v%s", got, again)
				}
			}
		})
	}
}

func TestNever(t *testing.T) {
	f := mustCompile(t, []Rule{
		{Resources: []string{"pods", "*.example.com"}, When: "object.a == 1"},
		{Resources: []string{"deployments.apps"}},
	}, Options{})
	for text, never := range map[string]bool{
		"/v1/pods": false, "/v1/services": true, "apps/v1/deployments": false, "example.com/v1/widgets": false, "apps/v1/pods": true,
	} {
		if got := f.For(gvr(t, text)).Never(); got != never {
			t.Errorf("%s: Never = %v", text, got)
		}
	}
	if mustCompile(t, nil, Options{}).For(gvr(t, "/v1/pods")).Never() {
		t.Error("without rules: Never")
	}
	never := f.For(gvr(t, "/v1/services"))
	if never.Belongs(newObject("", "a", `{"a":1}`)) {
		t.Error("an object of a resource that no rule names belongs")
	}
}

func TestNilPassesEverything(t *testing.T) {
	r := (*Filter)(nil).For(gvr(t, "/v1/pods"))
	o := newObject("", "a", "{}")
	if r.Never() || !r.Belongs(o) || !r.Sends(event.Deleted, nil, o) {
		t.Error("a nil filter refuses something")
	}
}

// Each expression is evaluated at most once for a state (object) and once for a change (old, operation), however
// many rules there are. The expressions fail, so that OnError counts the evaluations.
func TestEvaluatedOnce(t *testing.T) {
	var c counter
	f := mustCompile(t, []Rule{
		{When: "object.no.field", Operations: []string{"deleted"}},
		{When: "object.no.field", Namespaces: []string{"other"}},
		{When: "object.no.field", Operations: []string{"added"}},
		{When: "old.no.field"},
		{When: "operation + object.no.field == ''"},
	}, Options{OnError: c.onError, Logger: quiet()})
	r := f.For(gvr(t, "/v1/pods"))
	first, second := newObject("a", "a", "{}"), newObject("a", "a", `{"x":1}`)

	for _, step := range []struct {
		name string
		do   func() bool
		want map[int]int
	}{
		{"first belongs", func() bool { return r.Belongs(first) }, map[int]int{0: 1}},
		{"first is sent", func() bool { return r.Sends(event.Added, nil, first) }, map[int]int{0: 1, 2: 1}},
		{"second belongs", func() bool { return r.Belongs(second) }, map[int]int{0: 2, 2: 1}},
		{"first is remembered", func() bool { return r.Belongs(first) }, map[int]int{0: 2, 2: 1}},
		{"second is sent", func() bool { return r.Sends(event.Updated, first, second) }, map[int]int{0: 2, 2: 1, 3: 1}},
	} {
		if !step.do() {
			t.Errorf("%s: no", step.name)
		}
		if diff := cmp.Diff(step.want, c.counts); diff != "" {
			t.Errorf("%s: evaluations so far (-want +got):\n%s", step.name, diff)
		}
	}
}

// Two sinks see the same object; what one decided is not what the other is told.
func TestSinksDoNotShareDecisions(t *testing.T) {
	first := mustCompile(t, []Rule{{When: "object.n == 1"}, {When: "object.n == 2"}}, Options{})
	second := mustCompile(t, []Rule{{When: "object.n == 3"}}, Options{Slot: first.Slots()})
	pods := gvr(t, "/v1/pods")
	for json, want := range map[string][2]bool{
		`{"n":1}`: {true, false}, `{"n":2}`: {true, false}, `{"n":3}`: {false, true}, `{"n":4}`: {false, false},
	} {
		o := newObject("", "a", json)
		for range 2 {
			if got := [2]bool{first.For(pods).Belongs(o), second.For(pods).Belongs(o)}; got != want {
				t.Errorf("%s: belongs %v, want %v", json, got, want)
			}
		}
	}
}

// More expressions than an object has room for are still decided rightly.
func TestMoreSlotsThanAnObjectHas(t *testing.T) {
	rules := []Rule{}
	for range 200 {
		rules = append(rules, Rule{When: "object.n == 1"})
	}
	rules = append(rules, Rule{When: "object.n == 2", Operations: []string{"deleted"}})
	r := mustCompile(t, rules, Options{}).For(gvr(t, "/v1/pods"))
	for range 2 {
		if r.Belongs(newObject("", "a", `{"n":3}`)) || !r.Belongs(newObject("", "a", `{"n":2}`)) {
			t.Fatal("decided wrongly")
		}
	}
	o := newObject("", "a", `{"n":2}`)
	if !r.Belongs(o) || r.Sends(event.Added, nil, o) || !r.Sends(event.Deleted, nil, o) {
		t.Error("decided wrongly")
	}
}

func TestConcurrentUse(t *testing.T) {
	var failures atomic.Int64
	r := mustCompile(t, []Rule{{When: "object.n == 1 && object.list.all(x, x < 4)"}, {When: "old.n == object.n"}},
		Options{OnError: func(int, error) { failures.Add(1) }, Logger: quiet()}).For(gvr(t, "/v1/pods"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				yes, no := newObject("", "a", `{"n":1,"list":[1,2,3]}`), newObject("", "b", `{"n":2,"list":[1,2,3]}`)
				if !r.Belongs(yes) || !r.Sends(event.Updated, no, yes) || r.Sends(event.Updated, yes, no) {
					t.Error("decided wrongly")
				}
			}
		})
	}
	wg.Wait()
	if n := failures.Load(); n != 0 {
		t.Errorf("%d failures", n)
	}
}
