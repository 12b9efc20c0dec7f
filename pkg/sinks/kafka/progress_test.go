package kafka

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

func progressOf(resource string, version int) *event.Message {
	gvr := change(event.Added, "a", 1).Resource
	gvr.Resource = resource
	info := &event.ProgressInfo{Resource: resource, ResourceVersion: strconv.Itoa(version), AsOf: testTime}
	key, err := event.ParseTemplate("{uid}", event.EscapeNone)
	if err != nil {
		panic(err)
	}
	ev := event.Event{Type: event.Progress, Time: testTime, Resource: gvr, ProgressInfo: info}
	encoded, err := (&event.Encoder{Cluster: "test", PartitionKey: key}).Encode(ev)
	if err != nil {
		panic(err)
	}
	return encoded
}

// idOf is the id of progressOf.
func idOf(resource string, version int) string { return progressOf(resource, version).ID }

// A progress event is in every partition of the topic of its resource, with the key of a control event and without the
// header of the sink.
func TestProgressInEveryPartition(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(2), kfake.SeedTopics(3, "k8s.pods"), kfake.SeedTopics(2, "k8s.nodes"))
	s := connected(t, Config{Brokers: fake.ListenAddrs(), Topic: "k8s.{resource}"})
	mustSend(t, s, change(event.Added, "a", 1))
	mustSend(t, s, progressOf("pods", 1), progressOf("nodes", 7))
	mustSend(t, s, change(event.Updated, "a", 2))
	with := 0
	for p, records := range testkafka.ReadAll(t, fake.ListenAddrs()[0], "k8s.pods") {
		want := []string{idOf("pods", 1)}
		if len(records) > 1 {
			want = []string{"u-a.1", idOf("pods", 1), "u-a.2"}
			with++
		}
		var got []string
		for _, r := range records {
			got = append(got, header(r, "ce_id"))
			if r.Value != nil && header(r, sinks.MarkHeader) != "" {
				t.Errorf("the mark of %s is %s", header(r, "ce_id"), header(r, sinks.MarkHeader))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("partition %d of pods (-want +got):\n%s", p, diff)
		}
	}
	if with != 1 {
		t.Errorf("%d partitions have the events of the object", with)
	}
	for p, records := range testkafka.ReadAll(t, fake.ListenAddrs()[0], "k8s.nodes") {
		if len(records) != 1 || string(records[0].Key) != "test/nodes/_progress" {
			t.Errorf("partition %d of nodes: %d records", p, len(records))
		}
	}
}

// A progress event that was perhaps written, and is not sent again, neither loses nor repeats the next event.
func TestProgressInDoubt(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.RequestTimedOut, kerr.NotLeaderForPartition, kerr.OutOfOrderSequenceNumber} {
		fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
		s := connected(t, Config{Brokers: fake.ListenAddrs()})
		mustSend(t, s, change(event.Added, "a", 1))
		fault := fake.Fault(kfake.Fault{Keys: keysProduce, Err: code})
		if got := describe(send(t, s, progressOf("pods", 1))); got[0] != "maybe" || fault.Hits() == 0 {
			t.Fatalf("%v: %v", code, got)
		}
		mustSend(t, s, change(event.Updated, "a", 2))
		var events []string
		for _, id := range ids(testkafka.ReadAll(t, fake.ListenAddrs()[0], "events")) {
			if id != idOf("pods", 1) {
				events = append(events, id)
			}
		}
		if diff := cmp.Diff([]string{"u-a.1", "u-a.2"}, events); diff != "" {
			t.Errorf("%v (-want +got):\n%s", code, diff)
		}
	}
}

// A topic that does not exist, or a partition that cannot be written to, does not keep progress from other topics.
func TestProgressWithoutATopic(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "k8s.pods"))
	s := connected(t, Config{Brokers: fake.ListenAddrs(), Topic: "k8s.{resource}", RequestTimeout: 5 * time.Minute})
	began := time.Now()
	if got := describe(send(t, s, progressOf("nodes", 1), progressOf("pods", 7))); got[0] != "retry" || got[1] != "ok" {
		t.Errorf("results %v", got)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
	if got := ids(testkafka.ReadAll(t, fake.ListenAddrs()[0], "k8s.pods")); len(got) != 1 || got[0] != idOf("pods", 7) {
		t.Errorf("records %v", got)
	}
}

// A process that was killed, and its successor, which gets the same events: nothing is sent twice, and progress events
// are not read back, nor do they keep the successor from anything.
func TestProgressAfterKill(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(2), kfake.SeedTopics(2, "progress.pods"))
	cfg := Config{Brokers: fake.ListenAddrs(), Topic: "progress.{resource}"}
	var at stored
	for n := range 2 {
		s := process(t, cfg, &at)
		mustSend(t, s, change(event.Added, "a", 1))
		waitUntil(t, func() bool { return send(t, s, progressOf("pods", 1+n))[0] == nil })
		mustSend(t, s, change(event.Updated, "a", 2), change(event.Added, "b", 3))
	}
	seen := map[string]int{}
	for p, records := range testkafka.ReadAll(t, fake.ListenAddrs()[0], "progress.pods") {
		for _, r := range records {
			seen[header(r, "ce_id")]++
		}
		for n := range 2 {
			if !slices.ContainsFunc(records, func(r *kgo.Record) bool { return header(r, "ce_id") == idOf("pods", 1+n) }) {
				t.Errorf("partition %d has no progress event %d", p, n)
			}
		}
	}
	for _, id := range []string{"u-a.1", "u-a.2", "u-b.3"} {
		if seen[id] != 1 {
			t.Errorf("%s is there %d times", id, seen[id])
		}
	}
}

// A progress event in the topic of control events has the ends of all partitions of the objects. The sink asks for those
// that it does not know.
func TestProgressApart(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(2), kfake.SeedTopics(3, "k8s.pods"), kfake.SeedTopics(1, "control"))
	asked := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Observe: true, Count: -1})
	s := connected(t, Config{Brokers: fake.ListenAddrs(), Topic: "k8s.{resource}", control: "control"})
	mustSend(t, s, change(event.Added, "a", 1))
	mustSend(t, s, progressOf("pods", 1))
	if n := asked.Hits(); n != 2 {
		t.Errorf("%d requests for the ends of two partitions", n)
	}
	mustSend(t, s, change(event.Updated, "a", 2), change(event.Added, "b", 3))
	mustSend(t, s, progressOf("pods", 3))
	if n := asked.Hits(); n != 2 {
		t.Errorf("%d requests after that", n-2)
	}
	ends := map[int]int64{}
	for p, records := range testkafka.ReadAll(t, fake.ListenAddrs()[0], "k8s.pods") {
		ends[p] = int64(len(records))
	}
	records := testkafka.ReadAll(t, fake.ListenAddrs()[0], "control")[0]
	if len(records) != 2 {
		t.Fatalf("%d control events", len(records))
	}
	var info event.ProgressInfo
	if err := json.Unmarshal(records[1].Value, &info); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&event.Position{Topic: "k8s.pods", Offsets: ends}, info.Position); diff != "" {
		t.Errorf("position (-want +got):\n%s", diff)
	}
}

// A process that has begun to write to a partition does not wait for the other partitions, and writes nothing to those
// that it has not fenced.
func TestProgressDoesNotWaitForFences(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(20, "events"))
	var at stored
	s := process(t, Config{Brokers: fake.ListenAddrs()}, &at)
	mustSend(t, s, change(event.Added, "a", 1))
	fault := fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Err: kerr.ConcurrentTransactions, Count: -1,
	})
	soonInOneRound(t, fenceWait, func(int) {
		if err := send(t, s, progressOf("pods", 1))[0]; err == nil {
			t.Error("written to partitions that are not fenced")
		}
	})
	if got := ids(testkafka.ReadAll(t, fake.ListenAddrs()[0], "events")); len(got) != 2 {
		t.Errorf("records %v", got)
	}
	fault.Remove()
	waitUntil(t, func() bool { return send(t, s, progressOf("pods", 1))[0] == nil })
}
