package kafka

import (
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// TestRenewalOfDeletedTopic: the renewal of a fence in a topic that no longer exists ends. If the topic is created
// again, it is fenced again.
func TestRenewalOfDeletedTopic(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t-a"))
	var at stored
	s := process(t, Config{Brokers: fake.ListenAddrs(), Topic: "t-{name}"}, &at)
	sendAll(t, s, change(event.Added, "a", 1))
	p := s.topics["t-a"].partitions[0]
	if err := fake.DeleteTopic("t-a"); err != nil {
		t.Fatal(err)
	}
	renew := func() {
		t.Helper()
		p.fencedAt, s.fences.advanced = time.Now().Add(-wire.FenceInterval-time.Minute), time.Time{}
		if err := s.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	renew()
	waitUntil(t, func() bool {
		s.fences.advanced = time.Time{}
		return s.Connect(t.Context()) == nil && p.fence == nil
	})
	added := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Observe: true, Count: -1})
	renew()
	if p.fence != nil || added.Hits() > 0 {
		t.Errorf("renewed again")
	}
	if err := fake.CreateTopic("t-a", 1, nil); err != nil {
		t.Fatal(err)
	}
	sendAll(t, s, change(event.Updated, "a", 2))
	if !p.isReady() || added.Hits() == 0 {
		t.Error("written to without a fence")
	}
	if got := ids(testkafka.ReadAll(t, fake.ListenAddrs()[0], "t-a")); len(got) != 1 || got[0] != "u-a.2" {
		t.Errorf("records: %v", got)
	}
}

// disk stores nothing.
type disk struct{ full atomic.Bool }

func (d *disk) store(sinks.Positions) error {
	if d.full.Load() {
		return io.ErrShortWrite
	}
	return nil
}

// TestStoreFailsForOnePartition: the position of a new partition can't be stored. The other partitions accept events.
func TestStoreFailsForOnePartition(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t-a", "t-b"))
	s := newSink(t, Config{Brokers: fake.ListenAddrs(), Topic: "t-{name}"})
	var disk disk
	s.Resume(sinks.Resume{Writer: "w1", Store: disk.store})
	waitUntil(t, func() bool { return s.Connect(t.Context()) == nil })
	sendAll(t, s, change(event.Added, "a", 1))
	disk.full.Store(true)
	results := send(t, s, change(event.Added, "b", 2), change(event.Updated, "a", 3))
	part, ok := errors.AsType[*sinks.UnavailableError](results[0])
	if !ok || part.Destination != "t-b/0" || !errors.Is(results[0], io.ErrShortWrite) {
		t.Errorf("the new partition: %v", results[0])
	}
	if results[1] != nil {
		t.Errorf("the other one: %v", results[1])
	}
	disk.full.Store(false)
	sendAll(t, s, change(event.Added, "b", 2))
}

// TestRenewalMovesPosition: other producers write many records to the partition, and the sink rarely does. The next
// process does not have to read all these records.
func TestRenewalMovesPosition(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	others := connected(t, Config{Brokers: fake.ListenAddrs()})
	var at stored
	s := process(t, Config{Brokers: fake.ListenAddrs()}, &at)
	sendAll(t, s, change(event.Added, "a", 1))
	for i := range 20 {
		mustSend(t, others, change(event.Updated, "other", i+1))
	}
	p := s.topics["events"].partitions[0]
	p.fencedAt, s.fences.advanced = time.Now().Add(-wire.FenceInterval-time.Minute), time.Time{}
	waitUntil(t, func() bool {
		err := s.Connect(t.Context())
		s.fences.advanced = time.Time{}
		return err == nil && p.fence == nil && time.Since(p.fencedAt) < time.Minute
	})
	for _, got := range s.Positions(nil) {
		if want := int64(1 + 1 + 20 + 1); got.Next != want { // two markers
			t.Errorf("the next process begins at %d, want %d", got.Next, want)
		}
	}
}
