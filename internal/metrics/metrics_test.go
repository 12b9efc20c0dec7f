package metrics

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// message returns an event of a Pod that was seen at a time.
func message(at time.Time, data string) *event.Message {
	return &event.Message{
		Type:     event.Added,
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		Time:     at,
		Data:     []byte(data),
	}
}

func expect(t *testing.T, name string, c prometheus.Collector, want float64) {
	t.Helper()
	if got := testutil.ToFloat64(c); got != want {
		t.Errorf("%s: %v, want %v", name, got, want)
	}
}

// Every event that leaves the queue is counted once where it ends, and leaves the gauges, whichever way it ends.
func TestWhereEventsEnd(t *testing.T) {
	m := New("1.2.3", "abc")
	s := m.ForSink("s")
	c, hooks := s.Resource(schema.GroupResource{Resource: "pods"}), s.Hooks()
	now := m.started.Add(time.Second)
	for range 6 {
		c.Queue(message(now, "data"))
	}
	hooks.OnRetry(message(now, "data"))
	hooks.OnRetry(message(now, "data"))
	hooks.OnSettled(message(now, "data"), now.Add(time.Second), time.Millisecond)
	hooks.OnRejected(message(now, "data"), sinks.Rejection{Reason: event.ReasonOversize, Outcome: sinks.OutcomeMetadata})
	hooks.OnSettled(message(now, "data"), now.Add(time.Second), time.Millisecond) // in its other form
	hooks.OnRejected(message(now, "data"), sinks.Rejection{Reason: event.ReasonRefused, Outcome: sinks.OutcomeGap})
	hooks.OnRejected(message(now, "data"), sinks.Rejection{Reason: event.ReasonRefused, Outcome: sinks.OutcomeLost})
	hooks.OnRejected(message(now, "data"), sinks.Rejection{Reason: event.ReasonOversize, Outcome: sinks.OutcomeDeadLetter})
	gap := message(now, "data")
	gap.Type, gap.GapInfo = event.Gap, &event.GapInfo{Reason: event.ReasonRelist}
	hooks.OnSettled(gap, now.Add(time.Second), time.Millisecond)

	expect(t, "retried", c.Retried, 2)
	expect(t, "acknowledged", c.Acknowledged, 3)
	expect(t, "gaps", c.Gaps, 3)
	expect(t, "events in the queue", c.Events, 0)
	expect(t, "bytes in the queue", c.Bytes, 0)
	if n := c.NotSent.Load(); n != 3 {
		t.Errorf("%d events are in the stream in no form", n)
	}
	want := map[string]bool{event.ReasonRelist: true, event.ReasonRefused: true}
	if diff := cmp.Diff(want, lastGaps(t, m)); diff != "" {
		t.Errorf("reasons of the last gaps (-want +got):\n%s", diff)
	}
}

// lastGaps gives the reasons of the gaps in the last minute, as a scrape sees them. An older gap is false.
func lastGaps(t *testing.T, m *Metrics) map[string]bool {
	t.Helper()
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]bool{}
	for _, f := range families {
		for _, row := range f.GetMetric() {
			if f.GetName() == "deltabridge_last_gap_timestamp_seconds" {
				at := time.Unix(int64(row.GetGauge().GetValue()), 0)
				reasons[row.GetLabel()[0].GetValue()] = time.Since(at) < time.Minute
			}
		}
	}
	return reasons
}

// The time of a gap is there at the first scrape after it, also if the process ended before. A sink or resource that
// had no gap has no series. A damaged file is reported, and replaced at the next gap.
func TestLastGapOverARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gaps.json")
	begin := func(damaged bool) (*Metrics, *Resource) {
		t.Helper()
		m := New("", "")
		if err := m.KeepGaps(path); (err != nil) != damaged {
			t.Fatal(err)
		}
		m.ForSink("another").Resource(schema.GroupResource{Resource: "pods"})
		s := m.ForSink("s")
		s.Resource(schema.GroupResource{Resource: "nodes"})
		return m, s.Resource(schema.GroupResource{Resource: "pods"})
	}
	want := func(m *Metrics, want map[string]bool) {
		t.Helper()
		if diff := cmp.Diff(want, lastGaps(t, m)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	m, c := begin(false)
	want(m, map[string]bool{})
	c.gap(event.ReasonRelist)
	m, c = begin(false)
	want(m, map[string]bool{event.ReasonRelist: true})
	c.gap(event.ReasonOverflow)
	m, _ = begin(false)
	want(m, map[string]bool{event.ReasonRelist: true, event.ReasonOverflow: true})
	for _, content := range []string{"", "{", "null", "[]"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		m, c = begin(content != "null")
		want(m, map[string]bool{})
		c.gap(event.ReasonRelist)
		m, _ = begin(false)
		want(m, map[string]bool{event.ReasonRelist: true})
	}
}

// An event of a previous process comes from the spill. The gauges never had it.
func TestAnEventOfAPreviousProcess(t *testing.T) {
	m := New("", "")
	s := m.ForSink("s")
	s.Hooks().OnSettled(message(m.started.Add(-time.Minute), "data"), time.Now(), time.Millisecond)
	c := s.Resource(schema.GroupResource{Resource: "pods"})
	expect(t, "acknowledged", c.Acknowledged, 1)
	expect(t, "events in the queue", c.Events, 0)
}

// All counters of a sink exist from the start: increase() does not see the first step of one that appears later.
func TestCountersExistFromTheStart(t *testing.T) {
	s := New("", "").ForSink("s")
	for _, reason := range []string{event.ReasonOversize, event.ReasonRefused} {
		if n := len(sinks.Outcomes(reason)); n == 0 {
			t.Fatalf("no outcomes of %s", reason)
		}
	}
	if n := testutil.CollectAndCount(
		s.refusals,
	); n != len(
		sinks.Outcomes(event.ReasonOversize),
	)+len(
		sinks.Outcomes(event.ReasonRefused),
	) {
		t.Errorf("%d rows of refusals", n)
	}
}

// The sums of a sink are those of its counters, over all resources and engines, and no other sink.
func TestTotals(t *testing.T) {
	m := New("", "")
	s := m.ForSink("s")
	for n, resource := range []string{"pods", "nodes"} {
		c := s.Resource(schema.GroupResource{Resource: resource})
		for _, counter := range []struct {
			counter interface{ Inc() }
			times   int
		}{{c.Received, 4}, {c.Filtered, 3}, {c.Acknowledged, 2}, {c.Dropped, 1 + n}} {
			for range counter.times {
				counter.counter.Inc()
			}
		}
		expect(t, "received", c.Received, 4)
	}
	m.ForSink("other").Resource(schema.GroupResource{Resource: "pods"}).Received.Inc()
	if got, want := m.ForSink("s").Totals(), (Totals{8, 6, 4, 3}); got != want { // also for the next engine
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Gaps are those of one sink, the latest first.
func TestGaps(t *testing.T) {
	m := New("", "")
	path := filepath.Join(t.TempDir(), "gaps.json")
	text := `{"s pods relist": "2026-01-01T00:00:00Z", "s jobs.batch refused": "2026-01-02T00:00:00Z", "s2 pods relist": "2026-01-03T00:00:00Z"}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.KeepGaps(path); err != nil {
		t.Fatal(err)
	}
	at := func(day int) time.Time { return time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC) }
	want := []Gap{{"jobs.batch", "refused", at(2)}, {"pods", "relist", at(1)}}
	if diff := cmp.Diff(want, m.Gaps("s")); diff != "" {
		t.Error(diff)
	}
}
