package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// Objects that pass the sink's filter are re-sent. Positions do not change, and nothing counts as a change.
func TestRestating(t *testing.T) {
	p := pipelineFor(t, roomy, filter.Rule{When: "object.status.phase == 'Running'", Operations: []string{"updated"}})
	l := listen(t.Context(), p)
	l.OnPosition("40")
	r := &restating{listener: l}
	r.OnRestate(pod(t, 3, "Pending"))
	r.OnRestate(pod(t, 7, "Running"))
	since := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	r.since = since
	r.synced("40")
	batch, err := p.Queue.Take(t.Context(), nil, 100, 1<<20)
	if err != nil || len(batch) != 2 {
		t.Fatalf("%d events, %v", len(batch), err)
	}
	if m := batch[0]; m.Type != event.Restated || m.ID != "u1.7" || m.Origin.Position != "40" || m.Origin.Seq == 0 {
		t.Errorf("%s %s, %+v", m.Type, m.ID, m.Origin)
	}
	var info event.SyncedInfo
	if err := json.Unmarshal(batch[1].Data, &info); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(
		event.SyncedInfo{Resource: "pods", ResourceVersion: "40", Objects: 1, Resync: true, Since: &since},
		info,
	); diff != "" {
		t.Error(diff)
	}
	c := p.Metrics.Resource(pods.GroupResource())
	if told, changes := testutil.ToFloat64(c.Restated), testutil.ToFloat64(c.Received); told != 1 || changes != 0 {
		t.Errorf("counted %v restatements and %v changes", told, changes)
	}
	deletions := pipelineFor(t, roomy, filter.Rule{Operations: []string{"deleted"}})
	r = &restating{listener: listen(t.Context(), deletions)}
	if r.OnRestate(pod(t, 7, "Running")); r.objects != 0 || r.suppressed != 1 || deletions.Queue.Stats().Items != 0 {
		t.Error("who asks for deletions was told a state")
	}
}

// Re-sent objects wait for room in the queue, and until the informer has reached the floor.
func TestMayRestate(t *testing.T) {
	p := pipelineFor(t, roomy)
	p.Buffer.Events, p.Buffer.Bytes = 16, 1<<20
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ledger := ledger.New(ledger.Source{}, ledger.State{}, []string{p.Name}, 0)
	r := &restating{listener: newListener(ctx, p, informer.Source{Name: "pods", Resource: pods}, ledger, "10")}
	want := func(may bool, when string) {
		t.Helper()
		if r.MayRestate() != may {
			t.Errorf("%s: %t", when, !may)
		}
	}
	want(true, "at the beginning")
	r.floor = "10"
	want(true, "resumed where the sink was")
	r.floor = "12"
	want(false, "resumed before that")
	r.OnPosition("13")
	want(true, "past that")
	for n := range 2 {
		want(true, fmt.Sprint(n, " of 16"))
		r.OnRestate(pod(t, 7, "Running"))
	}
	want(false, "an eighth full")
	p.Buffer.Events, p.Buffer.Bytes = 100, 8*p.Queue.Stats().Bytes
	want(false, "an eighth full, in bytes")
	if _, err := p.Queue.Take(t.Context(), nil, 10, 1<<20); err != nil {
		t.Fatal(err)
	}
	p.Queue.Ack(2)
	want(true, "empty")
	cancel()
	want(false, "shutting down")
}

func resyncerFor(ctx context.Context, pipelines ...*pipeline) *resyncer {
	return &resyncer{ctx: ctx, pipelines: pipelines, informers: func() []*informer.Informer { return nil }}
}

func TestOneResyncAtATime(t *testing.T) {
	p := pipelineFor(t, roomy)
	r := resyncerFor(t.Context(), p)
	p.restating <- struct{}{}
	if got := r.resyncSink(p, "test"); got.Error != "a resync is already running: try again when it has ended" {
		t.Errorf("%+v", got)
	}
	<-p.restating
	for range 2 {
		if got := r.resyncSink(p, "test"); got.Error != "nothing is watched yet" {
			t.Errorf("%+v", got)
		}
	}
}

func TestResyncAtIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		often, never := pipelineFor(t, roomy), pipelineFor(t, roomy)
		often.Resync, never.Name = time.Hour, "never"
		r, resyncs := resyncerFor(ctx, often, never), 0
		r.informers = func() []*informer.Informer { resyncs++; return nil } // called once per resync
		ended := make(chan struct{})
		go func() { r.Run(); close(ended) }()
		time.Sleep(3*time.Hour + time.Minute)
		synctest.Wait()
		if resyncs != 3 {
			t.Errorf("%d resyncs in three hours", resyncs)
		}
		cancel()
		<-ended
	})
}

// serveControl serves the control socket of a new state directory.
func serveControl(t *testing.T, r *resyncer) (state string) {
	t.Helper()
	state = t.TempDir()
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	go func() { control.ServeSocket(ctx, state, r.handler(), log); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	for info, err := os.Stat(control.Socket(state)); err != nil || info.Mode().Perm() != 0o600; {
		select {
		case <-ended:
			t.Fatal("no socket")
		case <-time.After(time.Millisecond):
		}
		info, err = os.Stat(control.Socket(state))
	}
	return state
}

func TestRequestResync(t *testing.T) {
	request := func(state, sink string) (reports []control.ResyncReport, err error) {
		err = control.RequestResync(t.Context(), control.Bridge{State: state}, sink, func(r *control.ResyncReport) error {
			reports = append(reports, *r)
			return nil
		})
		return reports, err
	}
	p := pipelineFor(t, roomy)
	state := serveControl(t, resyncerFor(t.Context(), p))
	info, err := os.Stat(control.Socket(state))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	reports, err := request(state, "")
	if diff := cmp.Diff(
		[]control.ResyncReport{{Sink: "test", Error: "nothing is watched yet"}},
		reports,
	); diff != "" ||
		err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := request(state, "tset"); err == nil || err.Error() != `there is no sink "tset"; existing sinks: test` {
		t.Errorf("another sink: %v", err)
	}
	if _, err := request(
		t.TempDir(),
		"",
	); err == nil ||
		!strings.HasPrefix(err.Error(), "no bridge is running with this state.path on this machine") {
		t.Errorf("without a bridge: %v", err)
	}
	other := pipelineFor(t, roomy)
	unknown := watching(t, other, "a", errors.New("forbidden"))
	r := resyncerFor(t.Context(), other)
	r.informers = func() []*informer.Informer { return []*informer.Informer{unknown} }
	reports, err = request(serveControl(t, r), "")
	if err != nil || len(reports) != 1 || len(reports[0].Skipped) != 1 ||
		!strings.HasPrefix(reports[0].Skipped[0], "pods: the initial list has not") {
		t.Errorf("without a resource: %+v, %v", reports, err)
	}
	enough := errors.New("enough")
	if err := control.RequestResync(
		t.Context(),
		control.Bridge{State: state},
		"",
		func(*control.ResyncReport) error { return enough },
	); !errors.Is(
		err,
		enough,
	) {
		t.Errorf("who asked has gone: %v", err)
	}
}

// A request for all sinks resyncs them at the same time, so a sink that cannot be resynced does not delay the others.
func TestRequestResyncOfAllSinks(t *testing.T) {
	a, b := pipelineFor(t, roomy), pipelineFor(t, roomy)
	a.Name, b.Name = "a", "b"
	r := resyncerFor(t.Context(), a, b)
	meet := make(chan struct{})
	r.informers = func() []*informer.Informer {
		select {
		case meet <- struct{}{}:
		case <-meet:
		case <-time.After(2 * time.Minute):
			t.Error("one sink is resynced after the other")
		}
		return nil
	}
	got := map[string]string{}
	err := control.RequestResync(
		t.Context(),
		control.Bridge{State: serveControl(t, r)},
		"",
		func(report *control.ResyncReport) error {
			got[report.Sink] = report.Error
			return nil
		},
	)
	if diff := cmp.Diff(
		map[string]string{"a": "nothing is watched yet", "b": "nothing is watched yet"},
		got,
	); diff != "" ||
		err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := r.find("c"); err == nil || err.Error() != `there is no sink "c"; existing sinks: a, b` {
		t.Error(err)
	}
}

// watching runs an informer that knows some pods of a namespace; with an error its list fails.
func watching(t *testing.T, p *pipeline, namespace string, failure error, known ...*object.Object) *informer.Informer {
	t.Helper()
	c := informer.Config{
		NoWatchList: true,
		Source:      informer.Source{Name: "pods in " + namespace, Resource: pods, Namespace: namespace},
		ListWatch: &cache.ListWatch{
			ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, failure },
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
		},
	}
	if failure == nil {
		c.Known, c.ResumeAt = known, "10"
	}
	i := informer.New(c)
	ledger := ledger.New(ledger.Source{}, ledger.State{}, []string{p.Name}, 0)
	l := newListener(t.Context(), p, i.Source(), ledger, c.ResumeAt)
	l.informer = i
	i.AddEventHandler(l)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- i.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return i
}

// A synced event is sent once for each resource, when all its objects were re-sent.
func TestEndOfAResync(t *testing.T) {
	for name, tt := range map[string]struct {
		rule    filter.Rule
		failure error  // of the list of one of two namespaces
		refuse  string // by the destination
		want    []string
		report  control.ResyncReport
	}{
		"all": {
			want:   []string{"restated u1.3", "restated u1.4", "synced {pods 10 2}"},
			report: control.ResyncReport{Sink: "test", Resources: 1, Objects: 2},
		},
		"a namespace is not known": {
			failure: errors.New("forbidden"), want: []string{"restated u1.3"},
			report: control.ResyncReport{Sink: "test", Objects: 1, Skipped: []string{"pods: the initial list has not been delivered yet"}},
		},
		"some are kept back": {
			rule: filter.Rule{When: "operation == 'added' || object.status.phase == 'Running'"}, want: []string{"restated u1.3"},
			report: control.ResyncReport{Sink: "test", Objects: 1, Skipped: []string{"pods: 1 objects of the resource are suppressed by `operations` or `when` in the sink's filters"}},
		},
		"one is refused": {
			refuse: "u1.4", want: []string{"restated u1.3", "gap u1.4.gap"},
			report: control.ResyncReport{Sink: "test", Objects: 2, Skipped: []string{"pods: no synced event was sent: 1 events of the resource were rejected; see the gap events"}},
		},
		"some are not for the sink": {
			rule: filter.Rule{When: "object.status.phase == 'Running'"}, want: []string{"restated u1.3", "synced {pods 10 1}"},
			report: control.ResyncReport{Sink: "test", Resources: 1, Objects: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pipelineFor(t, roomy, tt.rule)
				p.Buffer.Events, p.Buffer.Bytes = roomy.Events, roomy.Bytes
				a, b := watching(t, p, "a", nil, pod(t, 3, "Running")), watching(t, p, "b", tt.failure, pod(t, 4, "Pending"))
				synctest.Wait()
				r := resyncerFor(t.Context(), p)
				r.informers = func() []*informer.Informer { return []*informer.Informer{a, b} }
				took := draining(t, p, tt.refuse)
				began := time.Now()
				report := r.resyncSink(p, "test")
				if diff := cmp.Diff(tt.report, report); diff != "" {
					t.Errorf("report (-want +got):\n%s", diff)
				}
				var got []string
				for _, m := range took() {
					var info event.SyncedInfo
					if m.Type != event.Synced {
						got = append(got, m.Type.String()+" "+m.ID)
					} else if err := json.Unmarshal(m.Data, &info); err != nil || !info.Resync || !info.Since.Equal(began) {
						t.Errorf("synced: %s, since %s", m.Data, began)
					} else {
						got = append(got, fmt.Sprintf("synced {%s %s %d}", info.Resource, info.ResourceVersion, info.Objects))
					}
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
			})
		})
	}
}
