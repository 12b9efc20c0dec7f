package engine

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deltabridge/deltabridge/internal/delivery"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/object"
)

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
				p, end := pipelineIn(t, t.TempDir(), buffer)
				defer end()
				p.Drain.Sink = &awaySink{}
				ctx, stop := context.WithCancel(t.Context())
				drained := make(chan error, 1)
				go func() { drained <- p.Drain.Run(ctx) }()
				e := &Engine{pipelines: []*pipeline{p}, set: fleet.New(fleet.Config{}), options: Options{State: t.TempDir()}}
				foretold, full := e.burn(t)
				judgeForetold(t, foretold, full)
				p.Queue.Lift()
				stop()
				<-drained //nolint:errcheck // it was stopped
				synctest.Wait()
			})
		})
	}
}

// burn pushes 20 events per second until they have to wait. It returns when the fuse has burned down according to each
// status, by the time of the status, and when the events began to wait.
func (e *Engine) burn(t *testing.T) (foretold map[time.Time]time.Time, full time.Time) {
	t.Helper()
	foretold = map[time.Time]time.Time{}
	began, data := time.Now(), make([]byte, 2000)
	for n := 0; ; n++ {
		m := &event.Message{
			Type: event.Updated, Resource: pods, ID: "a." + strconv.Itoa(n), Time: time.Now(), Data: data,
			Identity: object.Identity{UID: types.UID("u"), ResourceVersion: strconv.Itoa(n + 1)},
		}
		go func() { _ = e.pipelines[0].push(t.Context(), m) }()
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		if n%20 > 0 {
			continue
		}
		e.sample()
		now := time.Now()
		if since := e.pipelines[0].Queue.BlockedSince(); !since.IsZero() {
			return foretold, since
		}
		if fuse := e.fuses(now)["test"]; fuse != nil && now.Sub(began) > 15*time.Second { // before, there are no rates
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
