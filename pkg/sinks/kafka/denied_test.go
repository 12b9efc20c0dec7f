package kafka

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// TestEpochUsedWithoutFence: a process had to raise the epoch without a fence. Its successor gets the same epoch from
// the coordinator, and must not use it, because the broker would take its batches for batches of the earlier process.
func TestEpochUsedWithoutFence(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "unfenced", 1, nil)
	cfg := Config{Brokers: []string{broker.Addr()}, Topic: "unfenced"}
	var at stored
	first := process(t, cfg, &at)
	sendAll(t, first, change(event.Added, "a", 1))
	p := first.topics["unfenced"].partitions[0]
	first.fences.deniedUntil, p.unsettled = time.Now().Add(time.Hour), true
	sendAll(t, first, change(event.Added, "b", 2))
	sendAll(t, process(t, cfg, &at), change(event.Added, "c", 3))
	wantIDs(t, broker, "unfenced", "u-a.1", "u-b.2", "u-c.3")

	first = process(t, cfg, &at)
	sendAll(t, first, change(event.Added, "d", 4))
	p = first.topics["unfenced"].partitions[0]
	first.fences.deniedUntil, p.unsettled = time.Now().Add(time.Hour), true
	sendAll(t, first, change(event.Added, "e", 5))
	for range 3 {
		p.unsettle()
	}
	sendAll(t, first, change(event.Added, "f", 6))
	sendAll(t, process(t, cfg, &at), change(event.Added, "g", 7))
	wantIDs(t, broker, "unfenced", "u-a.1", "u-b.2", "u-c.3", "u-d.4", "u-e.5", "u-f.6", "u-g.7")
}

// denyFence lets the broker reject requests of the transactional id of partition 0 of the topic events.
func denyFence(fake *kfake.Cluster, key kmsg.Key) *kfake.FaultHandle {
	return fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{key}, TxnID: "deltabridge.w1.events.0", Err: kerr.TransactionalIDAuthorizationFailed, Count: -1,
	})
}

// tryAgain lets the sink try to fence its partitions, as after some minutes.
func tryAgain(s *Sink) { s.fences.deniedUntil, s.fences.advanced = time.Time{}, time.Time{} }

// TestPermissionGranted: a permission was missing, perhaps only for a moment. The sink then tries to fence the partition
// again, without losing or repeating an event.
func TestPermissionGranted(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	denied := denyFence(fake, kmsg.InitProducerID)
	var at stored
	s := process(t, Config{Brokers: fake.ListenAddrs()}, &at)
	sendAll(t, s, change(event.Added, "a", 1))
	p := s.topics["events"].partitions[0]
	tried := denied.Hits()
	sendAll(t, s, change(event.Updated, "a", 2))
	if p.fenced || denied.Hits() != tried {
		t.Errorf("tried %d times, then %d", tried, denied.Hits())
	}
	tryAgain(s)
	sendAll(t, s, change(event.Updated, "a", 3))
	if p.fenced || denied.Hits() == tried {
		t.Error("not tried again")
	}
	denied.Remove()
	sendAll(t, s, change(event.Updated, "a", 4))
	tryAgain(s)
	sendAll(t, s, change(event.Updated, "a", 5))
	if !p.fenced || len(s.Positions(nil)) != 1 {
		t.Error("the partition has no fence")
	}
	next := process(t, Config{Brokers: fake.ListenAddrs()}, &at)
	if got := sendAll(t, next, change(event.Updated, "a", 5), change(event.Updated, "a", 6)); got[0] != "stored" {
		t.Errorf("after a restart: %v", got)
	}
	want := []string{"u-a.1", "u-a.2", "u-a.3", "u-a.4", "u-a.5", "u-a.6"}
	if diff := cmp.Diff(want, ids(testkafka.ReadAll(t, fake.ListenAddrs()[0], "events"))); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// TestPermissionGrantedInDoubt: a batch of the producer without a fence is in doubt. The fence of another producer
// would not reject the batch, so the batch is settled first.
func TestPermissionGrantedInDoubt(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	denied := denyFence(fake, kmsg.InitProducerID)
	var at stored
	s := process(t, Config{Brokers: fake.ListenAddrs()}, &at)
	sendAll(t, s, change(event.Added, "a", 1))
	denied.Remove()
	fake.Fault(kfake.Fault{Keys: keysProduce, Err: kerr.RequestTimedOut})
	if got := describe(send(t, s, change(event.Updated, "a", 2))); got[0] != "maybe" {
		t.Fatalf("%v", got)
	}
	tryAgain(s)
	p := s.topics["events"].partitions[0]
	for i, fenced := range []bool{false, true} {
		if got := describe(send(t, s, change(event.Updated, "a", 3+i))); got[0] != "ok" || p.fenced != fenced {
			t.Errorf("%v, fenced: %v", got, p.fenced)
		}
	}
}

// TestPermissionRevoked: a permission is missing when a fence must settle whether a batch was written. The sink then
// writes to the partition without a fence, and fences it when the permission is granted again.
func TestPermissionRevoked(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	var at stored
	s := process(t, Config{Brokers: fake.ListenAddrs()}, &at)
	sendAll(t, s, change(event.Added, "a", 1))
	p := s.topics["events"].partitions[0]
	first := p.producer
	denied := denyFence(fake, kmsg.InitProducerID)
	fake.Fault(kfake.Fault{Keys: keysProduce, Err: kerr.RequestTimedOut})
	if got := describe(send(t, s, change(event.Updated, "a", 2))); got[0] != "maybe" {
		t.Fatalf("%v", got)
	}
	sendAll(t, s, change(event.Updated, "a", 3))
	if p.fenced || p.producer.id != first.id || p.producer.epoch == first.epoch {
		t.Errorf("the producer is %v, was %v", p.producer, first)
	}
	denied.Remove()
	tryAgain(s)
	lowest := readFrom(fake)
	sendAll(t, s, change(event.Updated, "a", 4))
	if got := lowest.Load(); !p.fenced || got != 2 { // the offset after the marker and the first record
		t.Errorf("fenced: %v, read from %d", p.fenced, got)
	}
}

// TestRenewalDenied: a permission is missing when a fence is renewed. The partition stays fenced, and the renewal is
// tried again.
func TestRenewalDenied(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	var at stored
	s := process(t, Config{Brokers: fake.ListenAddrs()}, &at)
	sendAll(t, s, change(event.Added, "a", 1))
	p := s.topics["events"].partitions[0]
	before := p.producer
	denied := denyFence(fake, kmsg.AddPartitionsToTxn)
	renewed := func() bool {
		s.fences.advanced = time.Time{}
		return s.Connect(t.Context()) == nil && p.fence == nil
	}
	p.fencedAt = time.Now().Add(-wire.FenceInterval - time.Minute)
	waitUntil(t, func() bool { return renewed() && denied.Hits() > 0 })
	sendAll(t, s, change(event.Updated, "a", 2))
	if before.sequence++; !p.fenced || p.producer != before {
		t.Errorf("fenced: %v, the producer is %v, want %v", p.fenced, p.producer, before)
	}
	if wait := time.Until(p.fencedAt.Add(wire.FenceInterval)); wait < deniedFor-time.Minute || wait > deniedFor {
		t.Errorf("the next renewal is in %v", wait)
	}
	denied.Remove()
	p.fencedAt = p.fencedAt.Add(-deniedFor)
	waitUntil(t, func() bool { return renewed() && time.Since(p.fencedAt) < time.Minute })
}

// TestDeniedPartition: a permission is missing for one of two partitions that are fenced together. The other partition
// keeps its fence.
func TestDeniedPartition(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "events"))
	denyFence(fake, kmsg.InitProducerID)
	var at stored
	s := process(t, Config{Brokers: fake.ListenAddrs()}, &at)
	in := namesIn(2)
	sendAll(t, s, change(event.Added, in[0], 1), change(event.Added, in[1], 2))
	if p := s.topics["events"].partitions; p[0].fenced || !p[1].fenced {
		t.Errorf("fenced: %v, %v", p[0].fenced, p[1].fenced)
	}
}
