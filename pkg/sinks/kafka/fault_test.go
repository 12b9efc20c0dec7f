package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

var keysProduce = []kmsg.Key{kmsg.Produce}

// TestErrorCodes: each error code of a partition has the expected effect on the messages, and every message is stored
// once, whether or not the broker wrote the batch before it returned the code.
func TestErrorCodes(t *testing.T) {
	for _, c := range []struct {
		err   *kerr.Error
		want  []string // of three messages: a, b, a
		words string   // in the first error
	}{
		{kerr.NotLeaderForPartition, []string{"maybe", "maybe", "maybe"}, "[6]"},
		{kerr.RequestTimedOut, []string{"maybe", "maybe", "maybe"}, "[7]"},
		{kerr.NotEnoughReplicasAfterAppend, []string{"maybe", "maybe", "maybe"}, "in-sync replicas"},
		{kerr.UnknownServerError, []string{"maybe", "maybe", "maybe"}, "[-1]"},
		{kerr.KafkaStorageError, []string{"maybe", "maybe", "maybe"}, "[56]"},
		{kerr.NotEnoughReplicas, []string{"retry", "not attempted", "not attempted"}, "in-sync replicas"},
		{kerr.LeaderNotAvailable, []string{"retry", "not attempted", "not attempted"}, "[5]"},
		{kerr.UnknownTopicOrPartition, []string{"retry", "not attempted", "not attempted"}, "[3]"},
		{kerr.TopicAuthorizationFailed, []string{"retry", "not attempted", "not attempted"}, "Describe and Write"},
		{kerr.ClusterAuthorizationFailed, []string{"retry", "not attempted", "not attempted"}, "Describe and Write"},
		{kerr.UnsupportedCompressionType, []string{"retry", "not attempted", "not attempted"}, "compression type"},
		{kerr.InvalidTimestamp, []string{"retry", "not attempted", "not attempted"}, "timestamp"},
		{kerr.OutOfOrderSequenceNumber, []string{"maybe", "maybe", "maybe"}, "[45]"},
		{kerr.InvalidProducerEpoch, []string{"maybe", "maybe", "maybe"}, "[47]"},
		// Halved until each message is alone, and refused alone.
		{kerr.MessageTooLarge, []string{"ok", "ok", "ok"}, ""},
		{kerr.RecordListTooLarge, []string{"ok", "ok", "ok"}, ""},
		{kerr.InvalidRecord, []string{"ok", "ok", "ok"}, ""},
	} {
		t.Run(c.err.Message, func(t *testing.T) {
			fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
			s := connected(t, Config{Brokers: fake.ListenAddrs()})
			fault := fake.Fault(kfake.Fault{Keys: keysProduce, Err: c.err})
			batch := []*event.Message{change(event.Added, "a", 1), change(event.Added, "b", 2), change(event.Updated, "a", 3)}

			results := send(t, s, batch...)
			if fault.Hits() == 0 {
				t.Fatal("the fault did not strike")
			}
			if diff := cmp.Diff(c.want, describe(results)); diff != "" {
				t.Fatalf("results (-want +got):\n%s\n%v", diff, results)
			}
			if c.words != "" && !strings.Contains(results[0].Error(), c.words) {
				t.Errorf("%q does not say %q", results[0], c.words)
			}

			if c.want[0] != "ok" {
				mustSend(t, s, batch...)
			}
			want := []string{"u-a.1", "u-b.2", "u-a.3"}
			if diff := cmp.Diff(want, ids(testkafka.ReadAll(t, fake.ListenAddrs()[0], "events"))); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnclearBatchComesBackLonger: a batch that was perhaps written is sent again unchanged, even if more messages wait
// by now, and whatever answer the broker gives for a batch that it already has.
func TestUnclearBatchComesBackLonger(t *testing.T) {
	for _, again := range []*kerr.Error{nil, kerr.NotEnoughReplicas, kerr.DuplicateSequenceNumber} {
		t.Run(fmt.Sprint(again), func(t *testing.T) {
			fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
			s := connected(t, Config{Brokers: fake.ListenAddrs()})
			mustSend(t, s, change(event.Added, "a", 1))
			fake.Fault(kfake.Fault{Keys: keysProduce, Err: kerr.RequestTimedOut})
			batch := []*event.Message{change(event.Updated, "a", 2), change(event.Updated, "b", 3)}
			if got := describe(send(t, s, batch...)); got[1] != "maybe" {
				t.Fatalf("results: %v", got)
			}
			if again != nil {
				fake.Fault(kfake.Fault{Keys: keysProduce, Err: again})
			}
			batch = append(batch, change(event.Updated, "a", 4))
			results := describe(send(t, s, batch...))
			if again == kerr.NotEnoughReplicas {
				if diff := cmp.Diff([]string{"maybe", "maybe", "not attempted"}, results); diff != "" {
					t.Errorf("the second attempt (-want +got):\n%s", diff)
				}
				results = describe(send(t, s, batch...))
			}
			if diff := cmp.Diff([]string{"ok", "ok", "ok"}, results); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			want := []string{"u-a.1", "u-a.2", "u-b.3", "u-a.4"}
			if diff := cmp.Diff(want, ids(testkafka.ReadAll(t, fake.ListenAddrs()[0], "events"))); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

// TestBrokerAway: if a request was never sent, its batch was certainly not written.
func TestBrokerAway(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	s := connected(t, Config{Brokers: fake.ListenAddrs()})
	mustSend(t, s, change(event.Added, "a", 1))
	s.client.Close() // the next request needs a new connection
	fake.Close()
	results := send(t, s, change(event.Updated, "a", 2), change(event.Updated, "a", 3))
	if diff := cmp.Diff([]string{"retry", "not attempted"}, describe(results)); diff != "" {
		t.Errorf("(-want +got):\n%s\n%v", diff, results)
	}
}

// TestRefusedAlone: a lasting error about some messages causes only these messages to be rejected, one by one.
func TestRefusedAlone(t *testing.T) {
	for _, err := range []*kerr.Error{kerr.MessageTooLarge, kerr.InvalidRecord} {
		t.Run(err.Message, func(t *testing.T) {
			fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
			s := connected(t, Config{Brokers: fake.ListenAddrs(), Compression: "none"})
			// The broker refuses every batch that holds "poison".
			fake.Fault(kfake.Fault{Keys: keysProduce, Err: err, Count: -1, When: func(r kmsg.Request) bool {
				return strings.Contains(string(r.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records), "poison")
			}})
			var batch []*event.Message
			want := make([]string, 0, 20)
			for i := range 20 {
				name := fmt.Sprintf("n%d", i)
				if i == 7 || i == 8 || i == 19 {
					name = fmt.Sprintf("poison%d", i)
					want = append(want, "permanent")
				} else {
					want = append(want, "ok")
				}
				batch = append(batch, change(event.Added, name, i))
			}
			results := send(t, s, batch...)
			if diff := cmp.Diff(want, describe(results)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if errors.Is(results[7], sinks.ErrOversize) != (err == kerr.MessageTooLarge) {
				t.Errorf("result of the poison: %v", results[7])
			}
			if n := len(ids(testkafka.ReadAll(t, fake.ListenAddrs()[0], "events"))); n != 17 {
				t.Errorf("%d records, want 17", n)
			}
		})
	}
}

// TestLeaderMoves: the metadata is read again, and the batch goes to the new leader.
func TestLeaderMoves(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(3), kfake.SeedTopics(1, "events"))
	s := connected(t, Config{Brokers: fake.ListenAddrs()[:1]})
	mustSend(t, s, change(event.Added, "a", 1))
	leader := fake.LeaderFor("events", 0)
	if err := fake.MoveTopicPartition("events", 0, (leader+1)%3); err != nil {
		t.Fatal(err)
	}
	if got := describe(send(t, s, change(event.Updated, "a", 2))); got[0] != "maybe" {
		t.Errorf("at the old leader: %s", got)
	}
	if got := describe(send(t, s, change(event.Updated, "a", 2))); got[0] != "ok" {
		t.Errorf("after the metadata were read again: %s", got)
	}
}

// TestNoLeader: a partition that was written to and has no leader now delays its events.
func TestNoLeader(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	s := connected(t, Config{Brokers: fake.ListenAddrs()})
	mustSend(t, s, change(event.Added, "a", 1))
	s.topics["events"].partitions[0].leader = "" // as the metadata say when its broker is away
	err := send(t, s, change(event.Updated, "a", 2))[0]
	if _, ok := errors.AsType[*sinks.UnavailableError](err); !ok || !errors.Is(err, kafkago.LeaderNotAvailable) {
		t.Errorf("without a leader: %v", err)
	}
}

// TestOnePartitionFails: the messages of the other partitions are written anyway.
func TestOnePartitionFails(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(2), kfake.SeedTopics(6, "events"))
	s := connected(t, Config{Brokers: fake.ListenAddrs()})
	bad := partitionFor("/pods/default/n0", 6)
	fake.Fault(kfake.Fault{Keys: keysProduce, Partitions: []int32{int32(bad)}, Err: kerr.NotEnoughReplicas, Count: -1})
	var batch []*event.Message
	var want []string
	first := true
	for i := range 60 {
		m := change(event.Added, fmt.Sprintf("n%d", i%30), i)
		batch = append(batch, m)
		switch {
		case partitionFor(m.PartitionKey, 6) != bad:
			want = append(want, "ok")
		case first:
			want, first = append(want, "retry"), false
		default:
			want = append(want, "not attempted")
		}
	}
	results := send(t, s, batch...)
	if diff := cmp.Diff(want, describe(results)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i, err := range results {
		if e, ok := errors.AsType[*sinks.UnavailableError](err); ok && e.Destination != s.Part(batch[i]) {
			t.Errorf("%q is said to be unavailable for an event of %q", e.Destination, s.Part(batch[i]))
		} else if !ok && want[i] == "retry" {
			t.Error(err)
		}
	}
}

// TestSilentBroker: a request without an answer ends after the time limit, and its batch was perhaps written.
func TestSilentBroker(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	s := connected(t, Config{Brokers: fake.ListenAddrs(), RequestTimeout: 2 * time.Second})
	release := make(chan struct{})
	fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		<-release
		return nil, nil, false
	})
	results := send(t, s, change(event.Added, "a", 1), change(event.Added, "b", 1))
	close(release)
	if diff := cmp.Diff([]string{"maybe", "maybe"}, describe(results)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !strings.Contains(results[0].Error(), "no response within 2s") {
		t.Errorf("%v", results[0])
	}
	mustSend(t, s, change(event.Added, "a", 1), change(event.Added, "b", 1))
}

// TestCancellation: Send ends with its context, not with the time limit.
func TestCancellation(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	s := connected(t, Config{Brokers: fake.ListenAddrs(), RequestTimeout: 10 * time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cancel()
		<-release
		return nil, nil, false
	})
	defer close(release)
	results := make([]error, 1)
	s.Send(ctx, []*event.Message{change(event.Added, "a", 1)}, results)
	if !sinks.IsMaybeWritten(results[0]) || !errors.Is(results[0], context.Canceled) {
		t.Errorf("result: %v", results[0])
	}
	s.Send(ctx, []*event.Message{change(event.Added, "a", 1)}, results)
	if results[0] == nil || sinks.IsMaybeWritten(results[0]) {
		t.Errorf("result of a Send that was not to start: %v", results[0])
	}
}

// TestMissingTopic: without createTopics, the error contains a remedy. When the topic exists, the message is sent.
func TestMissingTopic(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1))
	s := newSink(t, Config{Brokers: fake.ListenAddrs(), Topic: "k8s.{resource}"})
	if err := s.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	results := send(t, s, change(event.Added, "a", 1))
	if got := describe(results); got[0] != "retry" {
		t.Fatalf("result: %v", results[0])
	}
	if !strings.Contains(results[0].Error(), "k8s.pods does not exist") ||
		!strings.Contains(results[0].Error(), "createTopics") {
		t.Errorf("%v", results[0])
	}
	// The drain parks the events of that topic alone.
	if e, ok := errors.AsType[*sinks.UnavailableError](
		results[0],
	); !ok || e.Destination != "k8s.pods" ||
		!sinks.IsRejected(e) {
		t.Errorf("%#v", results[0])
	}
	if part := s.Part(change(event.Added, "a", 1)); part != "k8s.pods" {
		t.Errorf("destination %q", part)
	}
	if err := fake.CreateTopic("k8s.pods", 1, nil); err != nil {
		t.Fatal(err)
	}
	if got := describe(send(t, s, change(event.Added, "a", 1))); got[0] != "ok" {
		t.Errorf("after the topic was created: %v", got)
	}

	fixed := newSink(t, Config{Brokers: fake.ListenAddrs(), Topic: "nowhere"})
	if err := fixed.Connect(t.Context()); err == nil {
		t.Error("Connect does not miss the only topic")
	}
}

// TestInvalidTopicName: a topic with an invalid name can never exist, so the messages are rejected.
func TestInvalidTopicName(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	s := connected(t, Config{Brokers: fake.ListenAddrs(), Topic: strings.Repeat("x", 250) + "{name}"})
	fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Err: kerr.InvalidTopicException, Count: -1})
	got := describe(send(t, s, change(event.Added, "a", 1), change(event.Updated, "a", 2)))
	if diff := cmp.Diff([]string{"permanent", "permanent"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTopicRecreated: the producer's sequence numbers in the old topic do not match the new topic.
func TestTopicRecreated(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(3, "events"))
	s := connected(t, Config{Brokers: fake.ListenAddrs()})
	mustSend(t, s, change(event.Added, "a", 1))
	if err := fake.DeleteTopic("events"); err != nil {
		t.Fatal(err)
	}
	if err := fake.CreateTopic("events", 1, nil); err != nil {
		t.Fatal(err)
	}
	mustSend(t, s, change(event.Updated, "a", 2))
	if diff := cmp.Diff([]string{"u-a.2"}, ids(testkafka.ReadAll(t, fake.ListenAddrs()[0], "events"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestVolatileTemplate: events of one object for two partitions are never in flight together.
func TestVolatileTemplate(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(2), kfake.SeedTopics(1, "added", "updated", "deleted"))
	s := connected(t, Config{Brokers: fake.ListenAddrs(), Topic: "{operation}"})
	fake.Fault(kfake.Fault{Keys: keysProduce, Topic: "updated", Err: kerr.NotEnoughReplicas, Count: -1})
	results := send(
		t,
		s,
		change(
			event.Added,
			"a",
			1,
		),
		change(event.Added, "b", 1),
		change(event.Updated, "a", 2),
		change(event.Deleted, "a", 3),
	)
	if diff := cmp.Diff([]string{"ok", "ok", "retry", "not attempted"}, describe(results)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNoProducerID: the sink does not connect, and the error names the permission.
func TestNoProducerID(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	fake.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: kerr.ClusterAuthorizationFailed, Count: -1},
	)
	s := newSink(t, Config{Brokers: fake.ListenAddrs()})
	err := s.Connect(t.Context())
	if !sinks.IsRejected(err) || !strings.Contains(err.Error(), "IdempotentWrite") {
		t.Errorf("%v", err)
	}
	if got := describe(send(t, s, change(event.Added, "a", 1))); got[0] != "retry" {
		t.Errorf("result: %s", got)
	}
}

// TestEpochsUsedUp: after the last epoch of a producer id, the sink requests a new producer id.
func TestEpochsUsedUp(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	s := connected(t, Config{Brokers: fake.ListenAddrs()})
	mustSend(t, s, change(event.Added, "a", 1))
	old := s.producer
	s.topics["events"].partitions[0].producer.epoch = math.MaxInt16
	fake.Fault(kfake.Fault{Keys: keysProduce, Err: kerr.RequestTimedOut})
	if got := describe(send(t, s, change(event.Updated, "a", 2))); got[0] != "maybe" {
		t.Fatalf("result: %s", got)
	}
	mustSend(t, s, change(event.Updated, "a", 2))
	if p := s.topics["events"].partitions[0]; s.producer == old || p.producer.epoch != 0 {
		t.Errorf("producer id %d, was %d; epoch %d", s.producer, old, p.producer.epoch)
	}
}

func TestSequenceWraps(t *testing.T) {
	p := producer{sequence: math.MaxInt32 - 1}
	p.advance(3)
	if p.sequence != 1 {
		t.Errorf("%d", p.sequence)
	}
}

// TestEveryCodeIsJudged: an unknown code never counts as written.
func TestEveryCodeIsJudged(t *testing.T) {
	s := newSink(t, Config{Brokers: []string{"127.0.0.1:1"}})
	for code := range int16(200) {
		p := &partition{topic: newTopic("events"), batch: new(batch), queue: []int{0}, n: 1}
		w := &work{s: s, batch: []*event.Message{change(event.Added, "a", 1)}, results: []error{sinks.ErrNotAttempted}}
		w.noteAnswer(p, &produce.ResponsePartition{ErrorCode: code})
		if (w.results[0] == nil) != (code == 0) || len(p.queue) > 0 {
			t.Errorf("code %d: %v, %d in the queue", code, w.results[0], len(p.queue))
		}
	}
}
