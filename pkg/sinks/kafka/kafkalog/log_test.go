package kafkalog

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

var (
	onProduce = []kmsg.Key{kmsg.Produce}
	onInit    = []kmsg.Key{kmsg.InitProducerID}
)

func wantRecords(t *testing.T, l *Log, want ...string) {
	t.Helper()
	if got := records(t.Context(), t, l); !slices.Equal(got, want) {
		t.Errorf("the log contains %q, want %q", got, want)
	}
}

// TestAnswers: what Append makes of an error code, after which the record is there once, or not at all.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		err  *kerr.Error
		want error // nil: Append tries again
	}{
		{kerr.NotLeaderForPartition, nil},
		{kerr.UnknownTopicOrPartition, nil},
		{kerr.LeaderNotAvailable, nil},
		{kerr.KafkaStorageError, nil},
		{kerr.RequestTimedOut, nil},              // it is written
		{kerr.NotEnoughReplicasAfterAppend, nil}, // it is written
		{kerr.MessageTooLarge, statelog.ErrTooLarge},
		{kerr.RecordListTooLarge, statelog.ErrTooLarge},
		{kerr.InvalidProducerEpoch, statelog.ErrConflict},
		{kerr.OutOfOrderSequenceNumber, statelog.ErrConflict},
		{kerr.UnknownProducerID, statelog.ErrConflict},
	} {
		t.Run(c.err.Message, func(t *testing.T) {
			fake := newFake(t, kfake.NumBrokers(2))
			l := open(t, fake.ListenAddrs(), "state")
			after := mustAppend(t, l, mustFence(t, l), "1")
			fake.Fault(kfake.Fault{Keys: onProduce, Err: c.err})
			end, err := l.Append(t.Context(), after, []byte("2"))
			if !errors.Is(err, c.want) || (err != nil) != (c.want != nil) {
				t.Fatalf("Append: %v, want %v", err, c.want)
			}
			switch {
			case errors.Is(err, statelog.ErrConflict):
				if _, err := l.Append(t.Context(), after, []byte("x")); !errors.Is(err, statelog.ErrConflict) {
					t.Errorf("after a conflict: %v", err)
				}
				after = mustFence(t, l)
				fallthrough
			case err != nil:
				end = mustAppend(t, l, after, "2")
			}
			mustAppend(t, l, end, "3")
			wantRecords(t, l, "1", "2", "3")
		})
	}
}

// TestWrittenAndFenced: after an unclear result, another process has fenced this one. Whether the record was written is
// read back.
func TestWrittenAndFenced(t *testing.T) {
	for code, written := range map[*kerr.Error]bool{
		kerr.NotEnoughReplicas: false, kerr.NotEnoughReplicasAfterAppend: true,
	} {
		fake := newFake(t, kfake.NumBrokers(1))
		l, other := open(t, fake.ListenAddrs(), "state"), open(t, fake.ListenAddrs(), "state")
		after := mustAppend(t, l, mustFence(t, l), "1")
		fault := fake.Fault(kfake.Fault{Keys: onProduce, Err: code, Count: -1})
		l.cfg.RequestTimeout = 100 * time.Millisecond
		if _, err := l.Append(t.Context(), after, []byte("2")); err == nil || errors.Is(err, statelog.ErrConflict) {
			t.Fatalf("Append: %v", err)
		}
		fault.Remove()
		mustAppend(t, other, mustFence(t, other), "other")
		end, err := l.Append(t.Context(), after, []byte("2"))
		if written && (err != nil || end != after+1) || !written && !errors.Is(err, statelog.ErrConflict) {
			t.Errorf("%v: Append again: %d, %v", code, end, err)
		}
		if _, err := l.Append(t.Context(), after+1, []byte("3")); !errors.Is(err, statelog.ErrConflict) {
			t.Errorf("%v: the next Append: %v", code, err)
		}
	}
}

// TestDuplicate: a broker can report a repetition as such, without the offset.
func TestDuplicate(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1))
	l := open(t, fake.ListenAddrs(), "state")
	after := mustAppend(t, l, mustFence(t, l), "same")
	fake.Fault(
		kfake.Fault{Keys: onProduce, Err: kerr.RequestTimedOut}, // it is written
		kfake.Fault{Keys: onProduce, Err: kerr.DuplicateSequenceNumber},
	)
	if end := mustAppend(t, l, after, "same"); end != after+1 {
		t.Errorf("the end is %d, want %d", end, after+1)
	}
	wantRecords(t, l, "same", "same")
}

// TestRenewal: the epoch is renewed before Kafka forgets the producer, but not while a record is in doubt.
func TestRenewal(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1))
	l := open(t, fake.ListenAddrs(), "state")
	after := mustAppend(t, l, mustFence(t, l), "1")
	before := l.producer
	ago := func(d time.Duration) { l.fenced = time.Now().Round(0).Add(-d) }

	ago(wire.FenceInterval + time.Minute)
	after = mustAppend(t, l, after, "2")
	if l.producer.ID != before.ID || l.producer.Epoch != before.Epoch+1 || time.Since(l.fenced) > time.Minute {
		t.Errorf("the producer is %v, before the renewal %v", l.producer, before)
	}

	fake.Fault(kfake.Fault{Keys: onProduce, Err: kerr.NotEnoughReplicas})
	if _, err := l.Append(t.Context(), after, []byte("3")); err == nil {
		t.Fatal("a record in doubt is acknowledged")
	}
	ago(wire.FenceInterval + time.Minute)
	before = l.producer
	after = mustAppend(t, l, after, "3")
	if l.producer != before {
		t.Error("the epoch was renewed although a record was in doubt")
	}

	fake.Fault(kfake.Fault{Keys: onInit, Err: kerr.NotCoordinator})
	after = mustAppend(t, l, after, "4")
	if l.producer.Epoch != before.Epoch+1 {
		t.Errorf("the producer is %v, before the renewal %v", l.producer, before)
	}

	ago(-time.Hour) // the clock was set back
	before = l.producer
	mustAppend(t, l, after, "5")
	if l.producer.Epoch != before.Epoch+1 || time.Since(l.fenced) < 0 {
		t.Errorf("the producer is %v, before the renewal %v", l.producer, before)
	}
	wantRecords(t, l, "1", "2", "3", "4", "5")
}

// TestKafkaRenewal: a process that hung for hours asks whether there is a newer one before it appends, because the
// partition may have forgotten that.
func TestKafkaRenewal(t *testing.T) {
	addrs := []string{testkafka.ForTest(t).Addr()} // kfake grants the epoch
	l, other := open(t, addrs, "renewal"), open(t, addrs, "renewal")
	after := mustAppend(t, l, mustFence(t, l), "1")
	l.fenced = l.fenced.Add(-wire.FenceInterval)
	after = mustAppend(t, l, after, "2")
	mustFence(t, other)
	l.fenced = l.fenced.Add(-wire.FenceInterval)
	_, err := l.Append(t.Context(), after, []byte("3"))
	if !errors.Is(err, statelog.ErrConflict) || !errors.Is(err, kafkago.ProducerFenced) { // said by the coordinator
		t.Errorf("Append: %v", err)
	}
	wantRecords(t, l, "1", "2")
}

// TestDoubtForHours: a record in doubt is not repeated when the partition can have forgotten that it has it.
func TestDoubtForHours(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1))
	l := open(t, fake.ListenAddrs(), "state")
	after := mustAppend(t, l, mustFence(t, l), "1")
	fake.Fault(kfake.Fault{Keys: onProduce, Err: kerr.NotEnoughReplicas})
	if _, err := l.Append(t.Context(), after, []byte("2")); err == nil || errors.Is(err, statelog.ErrConflict) {
		t.Fatalf("Append: %v", err)
	}
	l.fenced = l.fenced.Add(-2 * wire.FenceInterval)
	if _, err := l.Append(t.Context(), after, []byte("2")); !errors.Is(err, statelog.ErrConflict) {
		t.Errorf("Append after hours: %v", err)
	}
}

// TestCreatedAgain: the topic was deleted, and has been created again.
func TestCreatedAgain(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1))
	l := open(t, fake.ListenAddrs(), "state")
	after := mustAppend(t, l, mustAppend(t, l, mustFence(t, l), "1"), "2")
	if err := fake.DeleteTopic("state"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(t.Context(), after, []byte("3")); !errors.Is(err, statelog.ErrConflict) {
		t.Errorf("Append: %v", err)
	}
	if end, err := l.Read(t.Context(), after, nil); err != nil || end >= after {
		t.Errorf("Read from %d: the end is %d, %v", after, end, err)
	}
	if err := l.Wait(t.Context(), after); err != nil {
		t.Errorf("Wait: %v", err)
	}
	mustAppend(t, l, mustFence(t, l), "4")
}

// TestTopics: a topic that Kafka deletes records from, or that has several partitions, is rejected.
func TestTopics(t *testing.T) {
	unlimited := map[string]string{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
	with := func(name, value string) map[string]*string {
		configs := make(map[string]*string)
		for n, v := range unlimited {
			configs[n] = &v
		}
		configs[name] = &value
		return configs
	}
	for _, c := range []struct {
		partitions int32
		configs    map[string]*string
		want       string // in the error
	}{
		{1, with("retention.ms", "-1"), ""},
		{1, with("retention.ms", "604800000"), "set retention.ms of the topic to -1"},
		{1, with("retention.bytes", "1000000"), "set retention.bytes of the topic to -1"},
		{1, with("cleanup.policy", "compact"), "set cleanup.policy of the topic to delete"},
		{2, with("retention.ms", "-1"), "topic state has 2 partitions"},
		{0, nil, "topic state does not exist"},
	} {
		fake := newFake(t, kfake.NumBrokers(1))
		if c.partitions > 0 {
			createTopic(t, fake, c.partitions, c.configs)
		}
		l := open(t, fake.ListenAddrs(), "state")
		l.cfg.CreateTopics = nil
		_, fenceErr := l.Fence(t.Context())
		_, readErr := l.Read(t.Context(), 0, nil)
		for _, err := range []error{fenceErr, readErr} {
			if c.want == "" && err == nil {
				continue
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !sinks.IsRejected(err) {
				t.Errorf("%d partitions: %v, want %q", c.partitions, err, c.want)
			}
		}
	}
}

// TestReadOnlyTheFirstRecord: a caller that requires only the first record does not cause a large response, even if
// earlier records were removed. A caller that reads everything gets large responses.
func TestReadOnlyTheFirstRecord(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1))
	l := open(t, fake.ListenAddrs(), "state")
	at := mustAppend(t, l, mustFence(t, l), strings.Repeat("1", maxRecord))
	if err := l.Truncate(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		at = mustAppend(t, l, at, strings.Repeat("2", maxRecord))
	}
	var largest atomic.Int32
	fake.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		largest.Store(max(largest.Load(), r.(*kmsg.FetchRequest).MaxBytes))
		return nil, nil, false
	})
	enough := errors.New("enough")
	if _, err := l.Read(t.Context(), 0, func(int64, []byte) error { return enough }); !errors.Is(err, enough) {
		t.Fatal(err)
	}
	if n := largest.Load(); n > 1<<20 {
		t.Errorf("responses of up to %d bytes", n)
	}
	if n := len(records(t.Context(), t, l)); n != 4 || largest.Load() != fetchBytes {
		t.Errorf("%d records, in responses of up to %d bytes", n, largest.Load())
	}
}

func createTopic(t *testing.T, fake *kfake.Cluster, partitions int32, configs map[string]*string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), partitions, 1, configs, "state"); err != nil {
		t.Fatal(err)
	}
}

// TestMissingPermission: the error says which permissions are required.
func TestMissingPermission(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1))
	l := open(t, fake.ListenAddrs(), "state")
	fake.Fault(kfake.Fault{Keys: onInit, Err: kerr.TransactionalIDAuthorizationFailed})
	_, err := l.Fence(t.Context())
	if !sinks.IsRejected(err) || !strings.Contains(err.Error(), "Write on the transactional id deltabridge.state.state") {
		t.Errorf("Fence: %v", err)
	}
	after := mustAppend(t, l, mustFence(t, l), "1")
	fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DeleteRecords}, Err: kerr.TopicAuthorizationFailed})
	if err := l.Truncate(
		t.Context(),
		after,
	); !sinks.IsRejected(err) ||
		!strings.Contains(err.Error(), "Write and Delete") {
		t.Errorf("Truncate: %v", err)
	}
}
