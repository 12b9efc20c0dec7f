package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/delivery"
	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks/stdout"
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

func pod(t *testing.T, rv int, phase string) *object.Object {
	t.Helper()
	o, err := object.New(
		fmt.Appendf(
			nil,
			`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"shop","uid":"u1","resourceVersion":"%d"},"status":{"phase":%q}}`,
			rv,
			phase,
		),
	)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// pipelineFor builds a pipeline without its sink.
func pipelineFor(t *testing.T, buffer delivery.Buffer, rules ...filter.Rule) *pipeline {
	t.Helper()
	p, end := pipelineIn(t, t.TempDir(), buffer, rules...)
	t.Cleanup(end)
	return p
}

// pipelineIn is pipelineFor with the directory of its files. end ends the queue.
func pipelineIn(t *testing.T, dir string, buffer delivery.Buffer, rules ...filter.Rule) (p *pipeline, end func()) {
	t.Helper()
	s := Sink{
		Name:        "test",
		Rules:       rules,
		Encoder:     &event.Encoder{Cluster: "c"},
		Buffer:      buffer,
		Destination: stdout.New(io.Discard),
	}
	store := openStore(t, dir)
	if err := store.BeginCluster("c"); err != nil {
		t.Fatal(err)
	}
	e := &Engine{metrics: metrics.New("", ""), options: Options{
		State: dir, Store: store, Sinks: []Sink{s}, Logger: slog.New(slog.DiscardHandler),
	}}
	e.reading, e.stopReading = context.WithCancel(t.Context())
	e.tracker = e.newTracker()
	p, err := e.newPipeline(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	e.pipelines = []*pipeline{p}
	if err := p.open(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- p.Queue.Run(ctx) }()
	return p, func() {
		cancel()
		e.stopReading()
		if err := errors.Join(<-ended, p.Drain.Parked.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	}
}

func listen(ctx context.Context, p *pipeline) *listener {
	ledger := ledger.New(ledger.Source{}, ledger.State{}, []string{p.Name}, 0)
	return newListener(ctx, p, informer.Source{Name: "pods", Resource: pods}, ledger, "")
}

// taken gives what waits in the queue as "operation id".
func taken(t *testing.T, p *pipeline) (lines []string) {
	t.Helper()
	for p.Queue.Stats().Items > p.Queue.Stats().Taken {
		batch, err := p.Queue.Take(t.Context(), nil, 100, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range batch {
			attributes := maps.Collect(m.Attributes)
			line := m.Type.String() + " " + m.ID
			if attributes["initiallist"] == "true" {
				line += " initial"
			}
			if attributes["leftfilter"] == "true" {
				line += " left at " + attributes["resourceversion"]
			}
			if m.IfFound {
				line += " if found"
			}
			lines = append(lines, line)
		}
	}
	return lines
}

var roomy = delivery.Buffer{Events: 100, Bytes: 1 << 20, Overflow: "block"}

func TestListenerAtTheFiltersBorder(t *testing.T) {
	p := pipelineFor(t, roomy, filter.Rule{Resources: []string{"pods"}, When: "object.status.phase == 'Running'"})
	l := listen(t.Context(), p)
	states := []*object.Object{
		pod(t, 1, "Pending"),
		pod(t, 2, "Running"),
		pod(t, 3, "Running"),
		pod(t, 4, "Failed"),
		pod(t, 5, "Running"),
		pod(t, 6, "Running"),
	}
	l.OnAdd(states[0], true)
	for n := 1; n < len(states)-1; n++ {
		l.OnUpdate(states[n-1], states[n])
	}
	l.OnDelete(states[5])
	l.OnSynced("9", 1)
	l.OnGap("9", "12", "history is gone")
	want := []string{
		"added u1.2", "updated u1.3", "deleted u1.4.left left at 4", "added u1.5", "deleted u1.deleted",
		"synced synced.c.pods.9", "gap gap.c.pods.relist.9.12",
	}
	if diff := cmp.Diff(want, taken(t, p)); diff != "" {
		t.Error(diff)
	}
	c := p.Metrics.Resource(pods.GroupResource())
	if r, f := testutil.ToFloat64(c.Received), testutil.ToFloat64(c.Filtered); r != 6 || f != 1 {
		t.Errorf("received %v, filtered %v", r, f)
	}
	if n := testutil.ToFloat64(c.Events); n != float64(len(want)) {
		t.Errorf("%v events are in the books", n)
	}
}

// Namespaces that are watched one by one are listed one by one, often at the same resourceVersion. Each synced event
// names its namespace and has its own id.
func TestEachNamespaceSaysThatItsListWasSent(t *testing.T) {
	p := pipelineFor(t, roomy)
	var namespaces []string
	for _, namespace := range []string{"shop", "web"} {
		ledger := ledger.New(ledger.Source{}, ledger.State{}, []string{p.Name}, 0)
		source := informer.Source{Name: "pods in " + namespace, Resource: pods, Namespace: namespace}
		newListener(t.Context(), p, source, ledger, "").OnSynced("9", 2)
	}
	batch, err := p.Queue.Take(t.Context(), nil, 10, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, m := range batch {
		var info struct{ Namespace string }
		if err := json.Unmarshal(m.Data, &info); err != nil {
			t.Fatal(err)
		}
		ids[m.ID], namespaces = true, append(namespaces, info.Namespace)
	}
	if diff := cmp.Diff([]string{"shop", "web"}, namespaces); diff != "" || len(ids) != 2 {
		t.Errorf("ids %v, namespaces %s", ids, diff)
	}
}

func TestListenerSendsOnlyTheOperationsAskedFor(t *testing.T) {
	p := pipelineFor(t, roomy, filter.Rule{Operations: []string{"deleted"}})
	l := listen(t.Context(), p)
	l.OnAdd(pod(t, 1, "Running"), true)
	l.OnUpdate(pod(t, 1, "Running"), pod(t, 2, "Failed"))
	l.OnDelete(pod(t, 3, "Failed"))
	if diff := cmp.Diff([]string{"deleted u1.deleted"}, taken(t, p)); diff != "" {
		t.Error(diff)
	}
}

func TestInitialList(t *testing.T) {
	p := pipelineFor(t, roomy)
	l := listen(t.Context(), p)
	l.OnAdd(pod(t, 1, "Running"), true)
	if diff := cmp.Diff([]string{"added u1.1 initial"}, taken(t, p)); diff != "" {
		t.Error(diff)
	}
}

func TestAFullQueueHoldsTheListenerUntilShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipelineFor(t, delivery.Buffer{Events: 2, Bytes: 1 << 20, Overflow: "block", DiskBytes: 1})
		ctx, cancel := context.WithCancel(t.Context())
		l := listen(ctx, p)
		done := make(chan struct{})
		go func() {
			for rv := range 10 {
				l.OnUpdate(pod(t, rv, "Running"), pod(t, rv+1, "Running"))
			}
			close(done)
		}()
		time.Sleep(time.Minute)
		select {
		case <-done:
			t.Fatal("the push did not wait")
		default:
		}
		cancel()
		<-done
		if onDisk, lost := p.Left(); onDisk != 1 || lost != 9 { // some wait in memory, the others were given up
			t.Errorf("%d events count as left, %d as on disk", lost, onDisk)
		}
	})
}

// The gauges of a queue follow what its policy does.
func TestQueueGaugesFollowThePolicies(t *testing.T) {
	for _, overflow := range []string{"drop-oldest", "compact"} {
		t.Run(overflow, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { gaugesFollow(t, overflow) })
		})
	}
}

func gaugesFollow(t *testing.T, overflow string) {
	p := pipelineFor(t, delivery.Buffer{Events: 6, Bytes: 1 << 20, Overflow: overflow, DiskBytes: 1})
	l := listen(t.Context(), p)
	for rv := 1; rv <= 20; rv++ {
		l.OnUpdate(pod(t, rv, "Running"), pod(t, rv+1, "Running"))
	}
	c := p.Metrics.Resource(pods.GroupResource())
	gaveUp := testutil.ToFloat64(c.Dropped) + testutil.ToFloat64(c.Merged)
	gauge := testutil.ToFloat64(c.Events)
	if gaps := gauge - (20 - gaveUp); gaveUp < 5 || gaps < 0 || gaps > 2 || gaps > 0 == (overflow == "compact") {
		t.Errorf(
			"%v dropped, %v merged, the gauge says %v",
			testutil.ToFloat64(c.Dropped),
			testutil.ToFloat64(c.Merged),
			gauge,
		)
	}
	hooks := p.Metrics.Hooks()
	for left := int(gauge); left > 0; {
		batch, err := p.Queue.Take(t.Context(), nil, 100, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range batch {
			hooks.OnSettled(m, time.Now(), time.Millisecond)
		}
		p.Queue.Ack(len(batch))
		left -= len(batch)
	}
	if events, bytes := testutil.ToFloat64(c.Events), testutil.ToFloat64(c.Bytes); events != 0 || bytes != 0 {
		t.Errorf("an empty queue shows %v events, %v bytes", events, bytes)
	}
}

// Suppressed changes are counted by reason. The next event has the suppressed state as its old state.
func TestListenerSuppresses(t *testing.T) {
	p := pipelineFor(t, roomy, filter.Rule{IgnoreChanges: []string{"status"}})
	p.Encoder.Payload = event.PayloadChange
	l := listen(t.Context(), p)
	states := []*object.Object{pod(t, 1, "Pending"), pod(t, 2, "Running"), pod(t, 3, "Running"), pod(t, 4, "Failed")}
	moved, err := object.New(
		bytes.Replace(states[3].Raw, []byte(`"resourceVersion":"4"`), []byte(`"resourceVersion":"5","labels":{"a":"b"}`), 1),
	)
	if err != nil {
		t.Fatal(err)
	}
	states = append(states, moved)
	l.OnAdd(states[0], true)
	for n := 1; n < len(states); n++ {
		l.OnUpdate(states[n-1], states[n])
	}
	batch, err := p.Queue.Take(t.Context(), nil, 10, 1<<20)
	if err != nil || len(batch) != 2 {
		t.Fatalf("%d events, %v", len(batch), err)
	}
	var data struct{ Old, Object json.RawMessage }
	if err := json.Unmarshal(batch[1].Data, &data); err != nil {
		t.Fatal(err)
	}
	if string(data.Old) != string(states[3].Raw) || string(data.Object) != string(moved.Raw) {
		t.Errorf("%s to %s", data.Old, data.Object)
	}
	suppressed := func(reason string) float64 {
		return testutil.ToFloat64(p.Metrics.Resource(pods.GroupResource()).Suppressed.WithLabelValues(reason))
	}
	if s, b := suppressed("status"), suppressed("managedFields"); s != 2 || b != 1 {
		t.Errorf("%v suppressed for status, %v for bookkeeping", s, b)
	}
	if f := testutil.ToFloat64(p.Metrics.Resource(pods.GroupResource()).Filtered); f != 3 {
		t.Errorf("%v filtered", f)
	}
}

// A sink that may know a part of the objects is sent the objects that left its filter before it is sent the initial
// list.
func TestAPartIsKnown(t *testing.T) {
	p := pipelineFor(t, roomy, filter.Rule{When: `object.status.phase == "Running"`})
	l := listen(t.Context(), p)
	l.partial = true
	l.OnUpdate(pod(t, 1, "Running"), pod(t, 2, "Running"))
	l.OnUpdate(pod(t, 2, "Running"), pod(t, 3, "Failed"))
	l.OnUpdate(pod(t, 3, "Failed"), pod(t, 4, "Running"))
	expectTaken(t, p, "deleted u1.3.left left at 3")
	l.OnAdd(pod(t, 4, "Running"), true)
	l.OnSynced("5", 1)
	l.OnUpdate(pod(t, 4, "Running"), pod(t, 6, "Running"))
	expectTaken(t, p, "added u1.4 initial", "synced synced.c.pods.5", "updated u1.6")
}
