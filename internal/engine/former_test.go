package engine

import (
	"testing"

	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
)

// A source is watched by another informer, because its version is no longer served, before it has brought everything
// that the process before may have sent with another filter. The difference between the filters is not sent again.
func TestAnotherInformerAfterTheDifference(t *testing.T) {
	dir := t.TempDir()
	s := startSelecting(t, dir, filter.Namespaces{"a": picked, "b": picked})
	s.must(s.informer.Store().Replace([]any{in(t, "a", 1), in(t, "b", 2)}, "3"))
	s.expect("added a.1 initial", "added b.2 initial", "synced synced.c.pods.3")
	s.kill()

	s = resume(t, dir, filter.Namespaces{"a": picked, "b": {}})
	name := filterChange(t, s)
	s.expect("deleted b.2.left.filter."+name+" left at 2", "synced synced.c.pods.4")
	source := s.informer.Source()
	i := informer.New(informer.Config{Source: source, Record: s.engine.tracker.Record(source)})
	i.Succeed(s.informer)
	s.engine.attach(i)
	s.must(i.Store().Replace([]any{in(t, "a", 1), in(t, "b", 2)}, "5"))
	s.expect("gap gap.c.pods.relist.4.5")
	s.kill()
}

// The filter changes again before the source has brought everything that was sent with the first filter: what the sink
// was sent in the first difference is not sent again, and what was sent before it gets its leave.
func TestAnotherChangeAfterTheDifference(t *testing.T) {
	dir := t.TempDir()
	s := startSelecting(t, dir, filter.Namespaces{"a": picked, "d": picked})
	s.must(s.informer.Store().Replace([]any{in(t, "a", 1), in(t, "b", 2), in(t, "c", 3)}, "3"))
	s.expect("added a.1 initial", "synced synced.c.pods.3")
	s.change(in(t, "d", 5), false)
	expectTaken(t, s.pipeline, "added d.5")
	s.kill()

	s = resume(t, dir, filter.Namespaces{"a": picked, "b": picked, "c": {}, "d": {}})
	name := filterChange(t, s)
	s.expect("added b.2.filter."+name+" initial", "synced synced.c.pods.4")
	s.kill()

	for n := range 2 {
		s = resume(t, dir, filter.Namespaces{"a": picked, "b": picked, "c": picked, "d": {}})
		name = filterChange(t, s)
		if n == 0 {
			s.expect("added c.3.filter."+name+" initial", "synced synced.c.pods.4")
		}
		s.pipeline.attached["pods"].OnAdd(in(t, "d", 5), false)
		expectTaken(t, s.pipeline, "deleted d.5.left.filter."+name+" left at 5 if found")
		s.kill()
	}
}
