package fleet

import (
	"context"
	"log/slog"
	"testing"

	"golang.org/x/time/rate"

	"github.com/deltabridge/deltabridge/pkg/informer"
)

// changedWatch is the state of a process with another `watch`.
type changedWatch struct{ informer.State }

func (changedWatch) Remembered() []informer.Source { return nil }
func (changedWatch) Resume(informer.Source) informer.Memory {
	return informer.Memory{At: "9", Scope: "with labels a=b"}
}
func (changedWatch) Record(informer.Source) informer.Record { return nil }

// If `watch` has changed, and an informer ends before it has delivered its list, its successor compares the known
// objects with the list in its place.
func TestSuccessorAfterAChangedWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so the informers do not run
	s := &Fleet{
		config: Config{State: changedWatch{}, OnStart: func(*informer.Informer) {}}, log: slog.New(slog.DiscardHandler),
		starts: rate.NewLimiter(1, 1), running: map[watchKey]*running{},
	}
	p := newPlan([]Scope{{Resources: Patterns(t, "widgets.example.com")}}, planCatalog)
	key := p.order()[0]
	launch := func() *informer.Informer {
		s.launch(ctx, key, p, s.running[key])
		s.group.Wait()
		return s.running[key].informer
	}
	for n := range 3 {
		if !launch().Relists() {
			t.Errorf("informer %d does not compare", n)
		}
	}
	if err := s.running[key].informer.Store().Replace(nil, "10"); err != nil {
		t.Fatal(err)
	}
	if launch().Relists() {
		t.Error("the list that shows the differences was delivered already")
	}
}
