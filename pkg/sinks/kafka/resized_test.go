package kafka

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// movedBy returns the name of an object that is in the first of two partitions, and in another one of seven.
func movedBy() (name string) {
	for i := 0; ; i++ {
		name = fmt.Sprintf("moved%d", i)
		if key := "/pods/default/" + name; partitionFor(key, 2) == 0 && partitionFor(key, 7) > 1 {
			return name
		}
	}
}

// TestPartitionsAddedWhileParked: events of a partition are parked, and then partitions are added, so that later events
// of the same object go to another partition. They arrive after the parked ones.
func TestPartitionsAddedWhileParked(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %v", restart), func(t *testing.T) {
			fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "events"))
			addr := fake.ListenAddrs()[0]
			cfg := Config{Brokers: fake.ListenAddrs()}
			var at stored
			store, queue := sinktest.OpenParked(t, t.TempDir()), sinktest.Queue(t, 100)
			var refresh atomic.Bool
			run := func() (stop func()) {
				s := process(t, cfg, &at)
				d := &sinks.Drain{
					Sink: s, Queue: queue, Parked: store, Logger: slog.New(slog.DiscardHandler), ReadsBack: true,
					Hooks: sinks.Hooks{Between: func() {
						if refresh.CompareAndSwap(true, false) {
							s.topics["events"].fetched = time.Time{}
						}
					}},
				}
				return running(t, d)
			}
			push := func(m *event.Message) { pushAndWait(t, queue, m) }
			stop := run()
			in, moved := namesIn(2), movedBy()
			push(change(event.Added, in[0], 1))
			push(change(event.Added, in[1], 2))
			down := fake.Fault(kfake.Fault{Keys: keysProduce, Partitions: []int32{0}, Err: kerr.NotEnoughReplicas, Count: -1})
			push(change(event.Added, moved, 3))
			if !store.Holds("events/0") {
				t.Fatalf("parked: %+v", store.Queues())
			}
			testkafka.SetPartitions(t, addr, "events", 7)
			p := partitionFor("/pods/default/"+moved, 7)
			if restart {
				stop()
				fake.Fault(kfake.Fault{Keys: keysProduce, Partitions: []int32{int32(p)}, Err: kerr.NotEnoughReplicas})
				stop = run()
			}
			refresh.Store(true)
			push(change(event.Updated, in[1], 4))
			push(change(event.Updated, in[1], 5))
			push(change(event.Updated, moved, 6))
			down.Remove()
			waitUntil(t, store.Empty)
			push(change(event.Updated, moved, 7))
			stop()

			want := []string{"u-" + moved + ".3", "u-" + moved + ".6", "u-" + moved + ".7"}
			if diff := cmp.Diff(want, ids(testkafka.ReadAll(t, addr, "events")[p:][:1])); diff != "" {
				t.Errorf("partition %d (-want +got):\n%s", p, diff)
			}
		})
	}
}
