package observe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/test/poll"
)

// Soon is how long a test waits for what should happen at once or within seconds. It is long for a machine that does
// much else at the same time.
const Soon = 2 * time.Minute

// Eventually waits until check returns no error, for at most Soon.
func Eventually(t testing.TB, check func() error) {
	t.Helper()
	EventuallyWithin(t, Soon, check)
}

// EventuallyWithin waits until check returns no error.
func EventuallyWithin(t testing.TB, limit time.Duration, check func() error) {
	t.Helper()
	if err := poll.Until(context.WithoutCancel(t.Context()), 5*time.Millisecond, limit, check); err != nil {
		t.Fatal(err)
	}
}

// Must ends the test at an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Change is one call of a handler.
type Change struct {
	Verb      string // add, update, delete, synced, gap
	Namespace string
	Name      string
	UID       string
	RV        string
	Initial   bool
	Unseen    bool
	Raw       string
}

// String leaves out what differs from run to run.
func (c Change) String() string {
	s := c.Verb
	if c.Name != "" {
		s += " " + c.Name
	}
	if c.Initial {
		s += " initially"
	}
	if c.Unseen {
		s += " unseen"
	}
	return s
}

// Record is a handler that writes down what it is given. It may be read at any time.
type Record struct {
	mu      sync.Mutex
	changes []Change
}

func (r *Record) note(verb string, obj any, edit func(*Change)) {
	c := Change{Verb: verb}
	if o, ok := obj.(*object.Object); ok {
		c.Namespace, c.Name, c.UID, c.RV, c.Unseen, c.Raw = o.Namespace, o.Name, string(
			o.UID,
		), o.ResourceVersion, o.FinalStateUnknown, string(
			o.Raw,
		)
	}
	if edit != nil {
		edit(&c)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, c)
}

// OnAdd implements cache.ResourceEventHandler.
func (r *Record) OnAdd(obj any, initial bool) {
	r.note("add", obj, func(c *Change) { c.Initial = initial })
}

// OnUpdate implements cache.ResourceEventHandler.
func (r *Record) OnUpdate(_, obj any) { r.note("update", obj, nil) }

// OnDelete implements cache.ResourceEventHandler.
func (r *Record) OnDelete(obj any) { r.note("delete", obj, nil) }

// OnLeave implements informer.Leaver.
func (r *Record) OnLeave(last, now *object.Object) {
	r.note("leave", last, func(c *Change) { c.RV = now.ResourceVersion })
}

// OnSynced implements informer.Observer.
func (r *Record) OnSynced(rv string, _ int) {
	r.note("synced", nil, func(c *Change) { c.RV = rv })
}

// OnGap implements informer.Observer.
func (r *Record) OnGap(from, to, _ string) {
	r.note("gap", nil, func(c *Change) { c.RV = from + ".." + to })
}

// All returns the changes so far.
func (r *Record) All() []Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.changes)
}

// Lines describes the changes, without those of other objects where names are given.
func (r *Record) Lines(names ...string) []string {
	lines := []string{}
	for _, c := range r.All() {
		if len(names) == 0 || slices.Contains(names, c.Name) {
			lines = append(lines, c.String())
		}
	}
	return lines
}

// Count returns how often a line is there.
func (r *Record) Count(line string) (n int) {
	for _, l := range r.Lines() {
		if l == line {
			n++
		}
	}
	return n
}

// WaitFor waits until a line is there.
func (r *Record) WaitFor(t testing.TB, line string) {
	t.Helper()
	Eventually(t, func() error {
		if r.Count(line) == 0 {
			return fmt.Errorf("no %q among %q", line, r.Lines())
		}
		return nil
	})
}

// LogBuffer is a log that may be read while it is written.
type LogBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *LogBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns what was written so far.
func (l *LogBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// CheckLog compares lines.
func CheckLog(t testing.TB, what string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: -want +got\n%s", what, diff)
	}
}

// Gate is a handler that blocks in each call until it is opened.
type Gate struct {
	*Record
	Calls atomic.Int64 // so far
	Open  chan struct{}
}

// NewGate returns a closed gate. Close Open to open it.
func NewGate() *Gate { return &Gate{Record: &Record{}, Open: make(chan struct{})} }

func (g *Gate) pass() {
	g.Calls.Add(1)
	<-g.Open
}

// OnAdd implements cache.ResourceEventHandler.
func (g *Gate) OnAdd(obj any, initial bool) { g.pass(); g.Record.OnAdd(obj, initial) }

// OnUpdate implements cache.ResourceEventHandler.
func (g *Gate) OnUpdate(o, n any) { g.pass(); g.Record.OnUpdate(o, n) }

// OnDelete implements cache.ResourceEventHandler.
func (g *Gate) OnDelete(obj any) { g.pass(); g.Record.OnDelete(obj) }

// WaitBlocked waits for the first call.
func (g *Gate) WaitBlocked(t testing.TB) {
	t.Helper()
	Eventually(t, func() error {
		if g.Calls.Load() == 0 {
			return errors.New("the handler is not called")
		}
		return nil
	})
}
