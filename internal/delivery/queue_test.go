package delivery

import (
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/ledger"
)

// A gap event that replaces dropped events keeps the position of the first dropped event of each source. After a crash,
// all of them are delivered again. Otherwise, the events of one source would be lost without a gap event.
func TestDroppedEventsAreHeldBySource(t *testing.T) {
	ledgers := map[string]*ledger.Ledger{}
	for _, source := range []string{"pods in a", "pods in b"} {
		ledgers[source] = ledger.New(ledger.Source{}, ledger.State{}, []string{"test"}, 0)
	}
	settle := func(m *event.Message) { ledgers[m.Origin.Source].Settle("test", m.Origin.Seq) }
	d := New(Options{Sink: "test", Metrics: metrics.New("", "").ForSink("test")})
	d.Use(User{Settle: settle})
	gaps := map[string]*event.Message{}
	for n := range 10 {
		for source, l := range ledgers {
			m := &event.Message{
				Type: event.Updated, Origin: event.Origin{Source: source, Seq: l.Track("test")},
				Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
			}
			m.Identity.ResourceVersion = strconv.Itoa(n)
			for other, gap := range gaps {
				if other == source {
					continue
				}
				if _, ok := d.foldGap(gap, m); ok {
					t.Fatalf("the gap of %s takes an event of %s", other, source)
				}
			}
			gap, ok := d.foldGap(gaps[source], m)
			if !ok {
				t.Fatalf("no gap stands for event %d of %s", n, source)
			}
			gaps[source] = gap
		}
	}
	for source, l := range ledgers {
		g := gaps[source]
		if open, _ := l.Unsettled("test"); open != 1 || g.GapInfo.Events != 10 {
			t.Errorf("%s: %d events are not settled; the gap stands for %d", source, open, g.GapInfo.Events)
		}
		settle(g)
		if open, _ := l.Unsettled("test"); open > 0 {
			t.Errorf("%s: the gap event does not settle the first event", source)
		}
	}
}
