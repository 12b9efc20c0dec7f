package engine

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/test/scale"
)

// debounceHistory is an API server with a few objects, and what a consumer has.
type debounceHistory struct {
	t       *testing.T
	rv      int
	objects map[string]*object.Object
	changes []debounceChange

	process *tracked
	stop    func()
	found   sinks.Found
	written []*event.Message
	kills   int
	last    map[types.UID]debounceSent
	// stopping is set while the process sends everything that waits.
	stopping bool
}

type debounceChange struct {
	object  *object.Object
	deleted bool
}

// debounceSent is the last event about an object.
type debounceSent struct {
	version string
	updated time.Time
	ended   bool
	kills   int
}

// alter changes an object at random.
func (h *debounceHistory) alter(name string) {
	h.rv++
	known := h.objects[name]
	switch {
	case known == nil:
		h.objects[name] = box(h.t, name, fmt.Sprint(name, "-", h.rv), h.rv, rand.IntN(4) > 0)
	case rand.IntN(4) == 0:
		delete(h.objects, name)
		o := *known
		o.ResourceVersion = fmt.Sprint(h.rv)
		h.changes = append(h.changes, debounceChange{&o, true})
		return
	default:
		h.objects[name] = box(h.t, name, string(known.UID), h.rv, rand.IntN(3) > 0)
	}
	h.changes = append(h.changes, debounceChange{h.objects[name], false})
}

// restart kills or stops the process, and starts another one.
func (h *debounceHistory) restart(dir string) {
	graceful := rand.IntN(3) == 0
	if graceful {
		h.settle()
	}
	h.kill()
	for range rand.IntN(6) {
		h.alter([]string{"a", "b"}[rand.IntN(2)])
	}
	h.run(dir, graceful)
	if graceful { // otherwise the next process would list again
		h.settle()
	}
}

// settle sends what waits, as a process does that stops, and commits it.
func (h *debounceHistory) settle() {
	h.stopping = true
	h.process.pipeline.pushDue(true)
	h.deliver()
	h.process.must(h.process.engine.tracker.Commit())
	h.stopping = false
	if n, _ := h.process.engine.tracker.Unsettled("test"); n > 0 {
		h.t.Errorf("%d events are not settled", n)
	}
}

func (h *debounceHistory) kill() {
	h.stop()
	h.process.kill()
	h.kills++
}

// run starts a process. It continues the watch, or lists, as if the watch configuration had changed.
func (h *debounceHistory) run(dir string, relist bool) {
	h.process, h.stop = startDebouncing(h.t, dir, relist, filter.Rule{When: "object.inside", Debounce: 10 * time.Second})
	h.found = sinks.Found{Writer: "w", Logger: slog.New(slog.DiscardHandler)}
	for _, m := range h.written {
		h.found.Note(sinks.RecordOf("w", m))
	}
	if h.process.at == "" || relist {
		var list []any
		for _, o := range h.objects {
			list = append(list, o)
		}
		h.process.must(h.process.informer.Store().Replace(list, fmt.Sprint(h.rv)))
	} else {
		for _, c := range h.changes {
			if past(h.process.at, c.object.ResourceVersion) {
				h.process.change(c.object, c.deleted)
			}
		}
	}
	h.deliver()
}

// deliver writes what waits in the queue, except what the destination has.
func (h *debounceHistory) deliver() {
	synctest.Wait()
	q := h.process.pipeline.Queue
	if q.Stats().Items == 0 {
		return
	}
	batch, err := q.Take(h.t.Context(), nil, 1000, 1<<30)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, m := range batch {
		if m.Type.IsControl() || h.found.Has(m, "") {
			continue
		}
		h.judge(m)
		h.written = append(h.written, m)
	}
	q.Ack(len(batch))
}

// judge compares an event with the last one about the object.
func (h *debounceHistory) judge(m *event.Message) {
	uid, version := m.Identity.UID, m.Identity.ResourceVersion
	before, known := h.last[uid]
	next := debounceSent{version: version, kills: h.kills, updated: before.updated}
	switch {
	case m.FinalStateUnknown: // has the version of the state that the checkpoint has
	case known && past(version, before.version):
		h.t.Errorf("%s follows %s", m.ID, before.version)
	case known && before.ended && m.Type != event.Added && before.kills == h.kills:
		h.t.Errorf("%s follows the end of the object", m.ID)
	case m.Type == event.Updated:
		if pause := m.Time.Sub(before.updated); pause < 10*time.Second && !h.stopping {
			h.t.Errorf("%s is sent %v after the update before", m.ID, pause)
		}
		if old := oldOf(h.t, m); before.kills == h.kills && old != before.version {
			h.t.Errorf("%s has the old state %s, but %s was sent", m.ID, old, before.version)
		}
		next.updated = m.Time
	}
	next.ended = m.Type == event.Deleted
	h.last[uid] = next
}

// end compares what a consumer has with the objects that pass the filter.
func (h *debounceHistory) end() {
	want, got := map[string]string{}, map[string]string{}
	for name, o := range h.objects {
		if strings.Contains(string(o.Raw), `"inside":true`) {
			want[name] = o.ResourceVersion
		}
	}
	for _, m := range h.written {
		if got[m.Identity.Name] = m.Identity.ResourceVersion; m.Type == event.Deleted {
			delete(got, m.Identity.Name)
		}
	}
	if !maps.Equal(want, got) {
		h.t.Errorf("a consumer has %v, want %v", got, want)
	}
	h.stop()
	h.process.kill()
}

// Objects change at random, and the process is killed: the last state of each object arrives, in order, with at most one
// update in ten seconds. What ends is sent at once.
func TestDebounceOverKills(t *testing.T) {
	for range scale.Of(5, 50) {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			h := &debounceHistory{t: t, objects: map[string]*object.Object{}, last: map[types.UID]debounceSent{}, rv: 1}
			h.run(dir, false)
			h.process.must(h.process.engine.tracker.Commit()) // the initial list is settled
			for range 150 {
				time.Sleep(time.Duration(rand.IntN(2500)) * time.Millisecond)
				h.deliver()
				h.alter([]string{"a", "b", "c"}[rand.IntN(3)])
				c := h.changes[len(h.changes)-1]
				h.process.change(c.object, c.deleted)
				if rand.IntN(4) > 0 { // otherwise it waits in the queue, and may be lost with the process
					h.deliver()
				} else if rand.IntN(2) == 0 {
					time.Sleep(time.Duration(rand.IntN(20)) * time.Second)
				}
				waits := h.process.pipeline.Queue.Stats().Items > 0
				if last := h.last[c.object.UID]; !waits && c.deleted && last.version != "" && !last.ended {
					t.Errorf("the deletion of %s waits", c.object.UID)
				}
				if rand.IntN(3) == 0 {
					h.process.must(h.process.engine.tracker.Commit())
				}
				if rand.IntN(8) == 0 {
					h.restart(dir)
				}
			}
			time.Sleep(11 * time.Second) // what waited is in the queue, and is lost with the process
			h.process.must(h.process.engine.tracker.Commit())
			h.kill()
			h.run(dir, false)
			time.Sleep(11 * time.Second)
			h.deliver()
			h.end()
		})
	}
}
