package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// namesIn returns the name of an object for each of n partitions.
func namesIn(n int) []string {
	names := make([]string, n)
	for i, found := 0, 0; found < n; i++ {
		name := fmt.Sprintf("n%d", i)
		if p := partitionFor("/pods/default/"+name, n); names[p] == "" {
			names[p] = name
			found++
		}
	}
	return names
}

// wantStopped sends m until it is rejected because there is a newer process.
func wantStopped(t *testing.T, s *Sink, m *event.Message) {
	t.Helper()
	var err error
	waitUntil(t, func() bool {
		err = send(t, s, m)[0]
		return sinks.IsRejected(err)
	})
	if !strings.Contains(err.Error(), "a process with the same identity") {
		t.Errorf("%v", err)
	}
}

// TestOldProcessTakesNothing: a process that hung goes on after its successor has started, with a partition that it has
// never used. It stops, also in the partitions that its successor has not used yet.
func TestOldProcessTakesNothing(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "taken", 3, nil)
	cfg := Config{Brokers: []string{broker.Addr()}, Topic: "taken"}
	in := namesIn(3)
	var at stored
	old := process(t, cfg, &at)
	sendAll(t, old, change(event.Added, in[0], 1), change(event.Added, in[2], 2))
	own := process(t, cfg, &at)
	sendAll(t, own, change(event.Updated, in[0], 3), change(event.Added, in[1], 4))
	before := own.topics["taken"].partitions[1].producer

	wantStopped(t, old, change(event.Updated, in[1], 5))
	wantStopped(t, old, change(event.Updated, in[2], 6))
	sendAll(t, own, change(event.Updated, in[0], 7), change(event.Updated, in[1], 8), change(event.Updated, in[2], 9))
	if before.sequence++; own.topics["taken"].partitions[1].producer != before {
		t.Errorf("the producer is %v, want %v", own.topics["taken"].partitions[1].producer, before)
	}
	wantIDs(t, broker, "taken", "u-"+in[0]+".1", "u-"+in[0]+".3", "u-"+in[0]+".7", "u-"+in[1]+".4", "u-"+in[1]+".8",
		"u-"+in[2]+".2", "u-"+in[2]+".9")
}

// TestTakenByOlderProcess: an older process was confirmed to be the newest one, and takes a partition when it is no
// longer the newest one. The coordinator has the same effect on a process that hung while its transaction was open. The
// newest process fences the partition again and continues.
func TestTakenByOlderProcess(t *testing.T) {
	broker := testkafka.ForTest(t)
	cfg := Config{Brokers: []string{broker.Addr()}}
	for name, marked := range map[string]bool{"older-marker": true, "older-renewal": false} {
		t.Run(name, func(t *testing.T) {
			testkafka.CreateTopic(t, broker.Addr(), name, 1, nil)
			cfg.Topic = name
			var at stored
			old, own := process(t, cfg, &at), process(t, cfg, &at)
			sendAll(t, own, change(event.Added, "a", 1))
			p := own.topics[name].partitions[0]
			before := p.producer

			txn := wire.Transactions{Client: old.client, ID: "deltabridge.w1." + name + ".0"}
			var taken wire.Producer
			waitUntil(t, func() (ok bool) { // the end of the transaction before may not be written yet
				var err error
				taken, err = txn.Init(t.Context(), wire.NoProducer())
				return err == nil
			})
			if marked {
				waitUntil(t, func() bool { return txn.Add(t.Context(), taken, name, 0) == nil })
				waitUntil(t, func() bool { return txn.End(t.Context(), taken) == nil })
			} else {
				p.fencedAt, own.fences.advanced = time.Now().Add(-wire.FenceInterval-time.Minute), time.Time{}
			}
			want := []string{"u-a.1"}
			waitUntil(t, func() bool {
				m := change(event.Updated, "a", len(want)+1)
				want = append(want, m.ID)
				own.fences.advanced = time.Time{}
				return sendAll(t, own, m)[0] == "ok" && p.fence == nil && p.producer.epoch > taken.Epoch
			})
			if p.producer.id != before.id {
				t.Errorf("the producer is %v, was %v", p.producer, before)
			}
			wantIDs(t, broker, name, want...)
		})
	}
}

// TestArbiterIsShared: partitions that are fenced at the same time do not query the arbiter one by one. If the arbiter
// is unavailable when the fences are renewed, this blocks nothing.
func TestArbiterIsShared(t *testing.T) {
	const partitions = 30
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(partitions, "events"))
	fault := kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TxnID: "deltabridge.w1", Count: -1}
	fault.Observe = true
	asked := fake.Fault(fault)
	var at stored
	s := process(t, Config{Brokers: fake.ListenAddrs()}, &at)
	var batch []*event.Message
	for i, name := range namesIn(partitions) {
		batch = append(batch, change(event.Added, name, i+1))
	}
	sendAll(t, s, batch...)
	if n := asked.Hits(); n < 2 || n > partitions*2/3 { // fewer than 10 if the machine is idle
		t.Errorf("the arbiter was asked %d times for %d partitions", n, partitions)
	}
	asked.Remove()

	s.fences.arbiter.verified = time.Now().Add(-wire.FenceInterval)
	fault.Observe, fault.Err = false, kerr.CoordinatorNotAvailable
	failed := fake.Fault(fault)
	for _, p := range s.topics["events"].partitions {
		p.fencedAt = time.Now().Add(-wire.FenceInterval - time.Minute)
	}
	s.fences.advanced = time.Time{}
	for i, err := range send(t, s, batch...) {
		// Unlike Kafka, the fake accepts no other records in a partition of a transaction, even if it is empty.
		if err != nil && !errors.Is(err, sinks.ErrStored) && !errors.Is(err, kafkago.InvalidTransactionState) {
			t.Errorf("%s, during the renewal: %v", batch[i].ID, err)
		}
	}
	waitUntil(t, func() bool {
		s.fences.advanced = time.Time{}
		if err := s.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		return failed.Hits() > 0 && !slices.ContainsFunc(s.topics["events"].partitions, func(p *partition) bool {
			return p.fence != nil || time.Since(p.fencedAt) > time.Minute
		})
	})
}
