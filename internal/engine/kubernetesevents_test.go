package engine

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/stdout"
)

// kubeEvent returns a state of an Event. count is its member with the number of its occurrences.
func kubeEvent(t *testing.T, name string, rv int, count string) *object.Object {
	t.Helper()
	o, err := object.New(
		fmt.Appendf(nil, `{"metadata":{"namespace":"shop","name":%[1]q,"uid":%[1]q,"resourceVersion":"%[2]d"},`+
			`"reason":%[1]q,"type":"Warning"%[3]s}`, name, rv, count),
	)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func times(n int) string { return fmt.Sprintf(`,"count":%d`, n) }

// counting is a process that counts the Events of one source. Its sink settles nothing.
type counting struct {
	*Engine

	t        *testing.T
	informer *informer.Informer
}

func startCounting(t *testing.T, state string, m *metrics.Metrics) *counting {
	t.Helper()
	e := engineOf(t, openStore(t, state), state, map[string]sinks.Sink{"lines": stdout.New(io.Discard)}, func(o *Options) {
		o.KubernetesEvents, o.Metrics = true, m
	})
	if err := e.options.Store.BeginCluster("cluster"); err != nil {
		t.Fatal(err)
	}
	source := informer.Source{Name: "events", Resource: schema.GroupVersionResource{Version: "v1", Resource: "events"}}
	memory := e.tracker.Resume(source)
	c := &counting{Engine: e, t: t}
	c.informer = informer.New(informer.Config{
		Source: source, Known: memory.Known, ResumeAt: memory.At, Record: e.tracker.Record(source),
	})
	e.attach(c.informer)
	if memory.At != "" {
		c.list(memory.At)
	}
	return c
}

func (c *counting) list(rv string, objects ...*object.Object) {
	var items []any
	for _, o := range objects {
		items = append(items, o)
	}
	if err := c.informer.Store().Replace(items, rv); err != nil {
		c.t.Fatal(err)
	}
}

func (c *counting) change(o *object.Object) {
	if err := c.informer.Store().Add(o); err != nil {
		c.t.Fatal(err)
	}
	c.informer.Store().UpdateResourceVersion(o.ResourceVersion)
}

// commit does what the tracker does once a second.
func (c *counting) commit() {
	c.events.committed(c.tracker.Commit())
}

// expectCounts compares the metric with counts by reason.
func expectCounts(t *testing.T, m *metrics.Metrics, want map[string]int) {
	t.Helper()
	text := ""
	for _, reason := range []string{"a", "b", "c", "d"} {
		if n := want[reason]; n > 0 {
			text += fmt.Sprintf("deltabridge_kubernetes_events_total{event_namespace=\"shop\",reason=%q,type=\"Warning\"} %d\n",
				reason, n)
		}
	}
	if text != "" {
		text = "# HELP deltabridge_kubernetes_events_total Occurrences of Kubernetes Events, if metrics.kubernetesEvents is " +
			"true. other stands for the namespaces and reasons that have no series of their own.\n" +
			"# TYPE deltabridge_kubernetes_events_total counter\n" + text
	}
	err := testutil.GatherAndCompare(m.Registry, strings.NewReader(text), "deltabridge_kubernetes_events_total")
	if err != nil {
		t.Error(err)
	}
}

// Each occurrence is counted once, over kills, reloads and lists, although the sink settles nothing.
func TestKubernetesEventsAreCountedOnce(t *testing.T) {
	state, first := t.TempDir(), metrics.New("", "")
	c := startCounting(t, state, first)
	c.list("10", kubeEvent(t, "a", 5, times(3))) // occurred before
	c.change(kubeEvent(t, "b", 11, ""))
	c.change(kubeEvent(t, "a", 12, times(5)))
	c.change(kubeEvent(t, "a", 13, times(5)+`,"note":"same"`))
	c.commit()
	expectCounts(t, first, nil) // the commit may have begun earlier
	c.commit()
	expectCounts(t, first, map[string]int{"a": 2, "b": 1})
	c.change(kubeEvent(t, "a", 14, times(6))) // is not counted by this process
	endEngine(t, c.Engine)

	second := metrics.New("", "")
	c = startCounting(t, state, second)
	c.change(kubeEvent(t, "b", 11, ""))
	c.change(kubeEvent(t, "a", 12, times(5)))
	c.change(kubeEvent(t, "a", 13, times(5)+`,"note":"same"`))
	c.change(kubeEvent(t, "a", 14, times(6)))
	c.change(kubeEvent(t, "c", 15, times(4)))
	c.list("30", kubeEvent(t, "a", 20, times(9)), kubeEvent(t, "c", 15, times(4)), kubeEvent(t, "d", 21, times(2)))
	c.commit()
	c.events.finish(c.tracker.Commit())
	expectCounts(t, second, map[string]int{"a": 4, "c": 4, "d": 2})
	endEngine(t, c.Engine)

	c = startCounting(t, state, second)                                       // after a reload, in the same process
	c.list("40", kubeEvent(t, "a", 35, times(10)), kubeEvent(t, "b", 36, "")) // the sink is at 10
	c.change(kubeEvent(t, "a", 41, times(11)))
	c.list("8", kubeEvent(t, "a", 6, times(3)), kubeEvent(t, "d", 7, "")) // etcd was restored
	c.change(kubeEvent(t, "d", 9, times(2)))
	c.events.finish(c.tracker.Commit())
	expectCounts(t, second, map[string]int{"a": 5, "c": 4, "d": 3})
	endEngine(t, c.Engine)
}

// A failed commit counts nothing, because the next process would count it again.
func TestKubernetesEventsAfterAFailedCommit(t *testing.T) {
	m := metrics.New("", "")
	c := &eventCounter{
		total:  m.KubernetesEvents(),
		recent: occurrences{{Namespace: "shop", Reason: "a", Type: "Warning"}: 1},
	}
	c.finish(context.DeadlineExceeded)
	expectCounts(t, m, nil)
	c.finish(nil)
	expectCounts(t, m, map[string]int{"a": 1})
	(*eventCounter)(nil).finish(nil)
}

// The changes in a list are counted if everything that was counted before is known.
func TestKubernetesEventsInLists(t *testing.T) {
	gvr := schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
	series := func(n int) string { return fmt.Sprintf(`,"series":{"count":%d}`, n) }
	for name, c := range map[string]struct {
		resumeAt, floor string
		relist          bool
		want            map[string]int
	}{
		"the first list": {"", "", false, map[string]int{"a": 2, "c": 1}},
		"all sinks have settled what was counted": {"10", "10", false, map[string]int{"a": 3 + 2, "b": 1, "c": 1}},
		"a sink is behind":                        {"10", "12", false, map[string]int{"a": 2, "c": 1}},
		"nothing was counted before":              {"10", "", false, map[string]int{"a": 3 + 2, "b": 1, "c": 1}},
		"another scope":                           {"10", "10", true, map[string]int{"a": 2, "c": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			m := metrics.New("", "")
			counter := &eventCounter{total: m.KubernetesEvents()}
			config := informer.Config{
				Source: informer.Source{Name: "e", Resource: gvr}, ResumeAt: c.resumeAt, Relist: c.relist,
			}
			if c.resumeAt != "" {
				config.Known = []*object.Object{kubeEvent(t, "a", 5, `,"deprecatedCount":3`)}
			}
			i := informer.New(config)
			counter.attach(i, c.floor)
			s := i.Store()
			if err := s.Replace([]any{kubeEvent(t, "a", 14, series(6)), kubeEvent(t, "b", 15, "")}, "20"); err != nil {
				t.Fatal(err)
			}
			for _, o := range []*object.Object{kubeEvent(t, "a", 21, series(8)), kubeEvent(t, "c", 22, "")} {
				if err := s.Add(o); err != nil {
					t.Fatal(err)
				}
				s.UpdateResourceVersion(o.ResourceVersion)
			}
			counter.finish(nil)
			expectCounts(t, m, c.want)
		})
	}
	counter := &eventCounter{}
	pods := informer.New(informer.Config{Source: informer.Source{Resource: pods}})
	if counter.attach(pods, ""); len(pods.Handlers()) > 0 {
		t.Error("Pods are counted")
	}
}
