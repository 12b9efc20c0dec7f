package observe

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/delivery"
	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// awaySink accepts no messages.
type awaySink struct{}

func (awaySink) Connect(context.Context) error { return nil }
func (awaySink) Close(context.Context) error   { return nil }
func (awaySink) Part(*event.Message) string    { return "" }

func (awaySink) Send(_ context.Context, _ []*event.Message, results []error) {
	for n := range results {
		results[n] = errors.New("connection refused")
	}
}

// observing returns an Observer of one sink, whose destination is away.
func observing(t *testing.T, buffer delivery.Buffer) *Observer {
	t.Helper()
	dir, log, m := t.TempDir(), slog.New(slog.DiscardHandler), metrics.New("", "")
	store, err := checkpoint.Open(checkpoint.Options{Path: dir, ClusterName: "c", NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	positions := tracker.New(tracker.Options{Store: store, Reading: t.Context(), Logger: log})
	d := delivery.New(delivery.Options{
		Sink: "test", Cluster: "c", State: dir, Buffer: buffer, Destination: awaySink{}, Store: store,
		Disconnect: func(context.Context) error { return nil }, Metrics: m.ForSink("test"), Logger: log,
	})
	d.Use(delivery.User{
		Tracker: positions, Settle: func(*event.Message) {},
		Progress: func() ([]*event.Message, time.Duration) { return nil, 0 },
	})
	if err := d.Open(); err != nil {
		t.Fatal(err)
	}
	d.Start()
	t.Cleanup(func() {
		err := delivery.Finish([]*delivery.Delivery{d}, 0)
		delivery.Close([]*delivery.Delivery{d})
		if err := errors.Join(err, store.Close()); err != nil {
			t.Error(err)
		}
	})
	return New(Options{
		Sinks:     []*Sink{{Delivery: d, Name: "test", Buffer: buffer}},
		Informers: func() []informer.Status { return nil }, Tracker: positions, Metrics: m, State: dir,
	})
}

// While a sink is away and changes go on, the fuse never promises more than what is left until the first source waits for
// the queue and has waited for as long as the API server's history, and most of the time not much less.
func TestFuseOfAnOutage(t *testing.T) {
	for name, buffer := range map[string]delivery.Buffer{
		"many events in memory": {Events: 1000, Bytes: 1 << 20, DiskBytes: 4 << 20, Overflow: delivery.Block},
		"few events in memory":  {Events: 10, Bytes: 1 << 20, DiskBytes: 4 << 20, Overflow: delivery.Block},
		"large events":          {Events: 1000, Bytes: 64 << 10, DiskBytes: 1 << 20, Overflow: delivery.Block},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := observing(t, buffer)
				foretold, full := e.burn(t)
				judgeForetold(t, foretold, full)
				e.Sinks[0].Queue.Lift()
				synctest.Wait()
			})
		})
	}
}

// burn pushes 20 events per second until they have to wait. It returns when the fuse has burned down according to each
// status, by the time of the status, and when the events began to wait.
func (o *Observer) burn(t *testing.T) (foretold map[time.Time]time.Time, full time.Time) {
	t.Helper()
	foretold = map[time.Time]time.Time{}
	began, data := time.Now(), make([]byte, 2000)
	for n := 0; ; n++ {
		m := &event.Message{
			Type: event.Updated, Resource: pods, ID: "a." + strconv.Itoa(n), Time: time.Now(), Data: data,
			Identity: object.Identity{UID: types.UID("u"), ResourceVersion: strconv.Itoa(n + 1)},
		}
		go func() { _ = o.Sinks[0].Queue.Push(t.Context(), m) }()
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		if n%20 > 0 {
			continue
		}
		now := time.Now()
		o.Sample(now)
		if since := o.Sinks[0].Queue.BlockedSince(); !since.IsZero() {
			return foretold, since
		}
		if fuse := o.fuses(now)["test"]; fuse != nil && now.Sub(began) > 15*time.Second { // before, there are no rates
			foretold[now] = now.Add(time.Duration(fuse.Seconds * float64(time.Second)))
		}
	}
}

// tolerance is the time of some events, and until a status shows that sources wait.
const tolerance = time.Second

func judgeForetold(t *testing.T, foretold map[time.Time]time.Time, full time.Time) {
	t.Helper()
	lost := full.Add(history)
	if len(foretold) < 5 {
		t.Errorf("only %d statuses", len(foretold))
	}
	for at, when := range foretold {
		if late := when.Sub(lost); late > tolerance {
			t.Errorf("%v before the queue is full, the fuse is %v too long", full.Sub(at), late)
		}
		if early := lost.Sub(when); early > full.Sub(at)/3+2*time.Second {
			t.Errorf("%v before the queue is full, the fuse is %v too short", full.Sub(at), early)
		}
	}
}

// The fuse of a sink that does not deliver is computed from what arrives, and that of one that is too slow from what the
// queue grows by. A state log that is unavailable shortens both.
func TestOutage(t *testing.T) { synctest.Test(t, testOutage) }

func testOutage(t *testing.T) {
	e := observing(t, delivery.Buffer{Events: 100, Bytes: 1 << 20, DiskBytes: 1 << 20, Overflow: delivery.Block})
	s, now := e.Sinks[0], time.Now()
	if o := e.outage(s, now); o != nil {
		t.Errorf("nothing waits: %+v", o)
	}
	e.Sample(now)
	if e.rates.due(now) || len(e.rates.samples[0].values) != 4 {
		t.Errorf("samples: %+v", e.rates.samples)
	}
	e.rates.samples = nil
	e.rates.add(now.Add(-10*time.Second), map[string]int64{"pushed test": -80, "waiting test": 10})
	for range 20 { // more would wait for the drain
		m := &event.Message{
			ID:       "a",
			Type:     event.Updated,
			Resource: pods,
			Time:     now.Add(-5 * time.Second),
			Data:     make([]byte, 600),
		}
		if err := s.Queue.Push(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Wait() // until the drain has tried
	o := e.outage(s, now)
	if o == nil || o.growth != 10 || o.memory != 30 || o.onlyHere != 0 {
		t.Fatalf("%+v", o)
	}
	if each := float64(storedHeader + 600 + 1 + 400); o.eventOnDisk != each || o.diskEvents != (1<<20)/each {
		t.Errorf("%+v", o)
	}
	e.DetachedSince = func() time.Time { return now.Add(-time.Minute) }
	if o = e.outage(s, time.Now()); o.onlyHere < 5*time.Second || o.onlyHere > 30*time.Second {
		t.Errorf("age of the oldest event that is not in the log: %v", o.onlyHere)
	}
	if s := e.Status(); !s.Checkpoint.Detached || s.Checkpoint.Problem == nil || s.Sinks[0].Health != control.AtRisk {
		t.Errorf("%+v, %+v", s.Checkpoint, s.Sinks[0])
	}
}
