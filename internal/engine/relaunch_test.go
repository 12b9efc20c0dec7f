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
