package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

// TestLateRequestIsFenced: a request that was given up is delayed by the network until newer events are written. The
// broker then rejects the request.
func TestLateRequestIsFenced(t *testing.T) {
	broker := testkafka.ForTest(t)
	fake := newFake(t, kfake.NumBrokers(1))
	for _, c := range []struct {
		name, addr string
		want       []string
	}{
		{"Kafka", broker.Addr(), []string{"u-a.1", "u-a.2", "u-a.3"}},
		{"kfake", fake.ListenAddrs()[0], []string{"u-a.1", "u-a.2", "u-a.3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			testkafka.CreateTopic(t, c.addr, "fence", 1, nil)
			r := newRelay(t)
			s := connected(
				t,
				Config{Brokers: []string{c.addr}, Topic: "fence", RequestTimeout: 2 * time.Second, dial: r.dial},
			)
			mustSend(t, s, change(event.Added, "a", 1))

			r.hold()
			if got := describe(send(t, s, change(event.Updated, "a", 2))); got[0] != "maybe" {
				t.Fatalf("the held request: %s", got)
			}
			mustSend(t, s, change(event.Updated, "a", 2))
			mustSend(t, s, change(event.Updated, "a", 3))
			r.release()
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			r.wg.Wait() // the broker has read the late request, and closed its connection

			if diff := cmp.Diff(c.want, ids(testkafka.ReadAll(t, c.addr, "fence"))); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLateRequestOfOthers: like TestLateRequestIsFenced, but the messages are not sent again, and other messages are
// sent instead.
func TestLateRequestOfOthers(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "others", 1, nil)
	r := newRelay(t)
	s := connected(
		t,
		Config{Brokers: []string{broker.Addr()}, Topic: "others", RequestTimeout: 2 * time.Second, dial: r.dial},
	)
	mustSend(t, s, change(event.Added, "a", 1))
	r.hold()
	if got := describe(send(t, s, change(event.Updated, "a", 2))); got[0] != "maybe" {
		t.Fatalf("the held request: %s", got)
	}
	mustSend(t, s, change(event.Updated, "a", 3))
	r.release()
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	r.wg.Wait()
	if diff := cmp.Diff([]string{"u-a.1", "u-a.3"}, ids(testkafka.ReadAll(t, broker.Addr(), "others"))); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// TestOrderOverFailures: a drain under load, while the broker is restarted, killed and frozen. Each object's
// versions arrive in order, each once.
func TestOrderOverFailures(t *testing.T) {
	t.Parallel()
	broker := testkafka.NewForTest(t)
	const topic, objects = "order", 40
	testkafka.CreateTopic(t, broker.Addr(), topic, 6, nil)

	queue := sinktest.Queue(t, 500)
	s := newSink(t, Config{Brokers: []string{broker.Addr()}, Topic: topic, RequestTimeout: 2 * time.Second})
	s.Resume(sinks.Resume{Writer: "w1", Store: new(stored).add})
	drain := &sinks.Drain{
		Sink: s, Queue: queue, Logger: slog.New(slog.DiscardHandler),
		MaxBatch: 200, Parked: sinktest.OpenParked(t, t.TempDir()),
	}
	drained := make(chan error, 1)
	go func() { drained <- drain.Run(t.Context()) }()

	ctx, stop := context.WithCancel(t.Context())
	versions := make(chan int, 1)
	go func() { // load, until the failures are over
		version := 0
		for ; ctx.Err() == nil; version++ {
			for i := range objects {
				if err := queue.Push(t.Context(), padded(change(event.Updated, fmt.Sprintf("o%d", i), version), 500)); err != nil {
					t.Error(err)
				}
			}
		}
		versions <- version
		queue.Close()
	}()

	for _, failure := range []func() error{
		func() error { return broker.Restart(t.Context()) },
		func() error { return errors.Join(broker.Kill(), broker.Restart(t.Context())) },
		func() error { return freeze(t, broker, 3*time.Second) },
	} {
		written := queue.Stats().Acked + scale.Of[int64](1000, 3000)
		waitUntil(t, func() bool { return queue.Stats().Acked > written })
		if err := failure(); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	checkOrder(t, broker.Addr(), topic, objects, <-versions)
}

func freeze(t *testing.T, b *testkafka.Broker, d time.Duration) error {
	if err := b.Pause(); err != nil {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
	return b.Resume()
}

func waitUntil(t testing.TB, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("it does not happen")
		}
	}
}

// checkOrder reads the topic: of each object all versions, in one partition, in order, once.
func checkOrder(t *testing.T, addr, topic string, objects, versions int) {
	t.Helper()
	partitionOf, next := map[string]int{}, map[string]int{}
	for p, records := range testkafka.ReadAll(t, addr, topic) {
		for _, r := range records {
			key, id := string(r.Key), header(r, "ce_id")
			if q, ok := partitionOf[key]; ok && q != p {
				t.Fatalf("%s is in the partitions %d and %d", key, q, p)
			}
			partitionOf[key] = p
			var version int
			if _, err := fmt.Sscanf(id[strings.LastIndexByte(id, '.')+1:], "%d", &version); err != nil {
				t.Fatalf("id %q: %v", id, err)
			}
			if version != next[key] {
				t.Fatalf("%s: version %d follows %d", key, version, next[key]-1)
			}
			next[key]++
		}
	}
	if len(next) != objects {
		t.Errorf("%d objects of %d", len(next), objects)
	}
	for key, n := range next {
		if n != versions {
			t.Errorf("%s: %d versions of %d", key, n, versions)
		}
	}
	t.Logf("%d objects, %d versions each", objects, versions)
}
