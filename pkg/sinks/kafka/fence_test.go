package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// TestFenceRetries: temporary errors delay the first event, and have no other effect.
func TestFenceRetries(t *testing.T) {
	const arbiter, partition = "deltabridge.w1", "deltabridge.w1.events.0"
	for _, c := range []struct {
		key kmsg.Key
		err *kerr.Error
		top bool
		txn string // the transactional id, if it matters
	}{
		{kmsg.FindCoordinator, kerr.CoordinatorNotAvailable, false, arbiter},
		{kmsg.FindCoordinator, kerr.CoordinatorNotAvailable, false, partition},
		{kmsg.InitProducerID, kerr.ConcurrentTransactions, false, arbiter},
		{kmsg.InitProducerID, kerr.InvalidProducerIDMapping, false, arbiter},
		{kmsg.InitProducerID, kerr.ConcurrentTransactions, false, partition},
		{kmsg.InitProducerID, kerr.ProducerFenced, false, partition},
		{kmsg.InitProducerID, kerr.CoordinatorLoadInProgress, true, ""},
		{kmsg.InitProducerID, kerr.NotCoordinator, true, ""},
		{kmsg.AddPartitionsToTxn, kerr.ConcurrentTransactions, false, ""},
		{kmsg.AddPartitionsToTxn, kerr.UnknownTopicOrPartition, false, ""},
		{kmsg.AddPartitionsToTxn, kerr.InvalidProducerEpoch, false, ""},
		{kmsg.AddPartitionsToTxn, kerr.InvalidProducerIDMapping, false, ""},
		{kmsg.EndTxn, kerr.NotCoordinator, true, ""},
		{kmsg.EndTxn, kerr.ConcurrentTransactions, true, ""},
		{kmsg.EndTxn, kerr.InvalidTxnState, true, ""},
		{kmsg.ListOffsets, kerr.NotLeaderForPartition, false, ""},
		{kmsg.Fetch, kerr.NotLeaderForPartition, false, ""},
		{kmsg.Fetch, kerr.OffsetOutOfRange, false, ""},
	} {
		t.Run(c.key.Name()+" "+c.err.Message+" "+c.txn, func(t *testing.T) {
			fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
			var at stored
			s := process(t, Config{Brokers: fake.ListenAddrs()}, &at)
			fault := fake.Fault(kfake.Fault{Keys: []kmsg.Key{c.key}, TxnID: c.txn, Err: c.err, TopLevel: c.top})
			sendAll(t, s, change(event.Added, "a", 1))
			if fault.Hits() == 0 {
				t.Fatal("the fault did not strike")
			}
			sendAll(t, s, change(event.Updated, "a", 2))
			next := process(t, Config{Brokers: fake.ListenAddrs()}, &at)
			if got := sendAll(t, next, change(event.Updated, "a", 2)); got[0] != "stored" {
				t.Errorf("after a restart: %v", got)
			}
			want := []string{"u-a.1", "u-a.2"}
			if diff := cmp.Diff(want, ids(testkafka.ReadAll(t, fake.ListenAddrs()[0], "events"))); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMissingMarker: a transaction that ended without a marker is not a fence (KAFKA-20734). Nothing is written until
// another transaction has left its marker.
func TestMissingMarker(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	var at stored
	s := process(t, Config{Brokers: fake.ListenAddrs()}, &at)
	fake.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
		return r.ResponseKind(), nil, true // the transaction is not ended
	})
	err := send(t, s, change(event.Added, "a", 1))[0]
	part, ok := errors.AsType[*sinks.UnavailableError](err)
	if !ok || part.Destination != "events/0" {
		t.Fatalf("without a marker: %v", err)
	}
	if got := testkafka.ReadAll(t, fake.ListenAddrs()[0], "events"); len(ids(got)) > 0 {
		t.Errorf("written without a fence: %v", ids(got))
	}
	sendAll(t, s, change(event.Added, "a", 1))
	if p := s.topics["events"].partitions[0]; p.producer.epoch != 0 {
		t.Errorf("the epoch is %d, but the same one suffices", p.producer.epoch)
	}
}

// TestFenceDelaysOnlyItsPartition: while the fence of one partition fails, events are written to the other partitions.
// They are written to this partition too when the cause is gone.
func TestFenceDelaysOnlyItsPartition(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(2), kfake.SeedTopics(6, "events"))
	var at stored
	s := process(t, Config{Brokers: fake.ListenAddrs()}, &at)
	sick := partitionFor("/pods/default/n0", 6)
	fault := fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Partitions: []int32{int32(sick)},
		Err: kerr.ConcurrentTransactions, Count: -1,
	})
	var batch, waiting []*event.Message
	for i := range 30 {
		m := change(event.Added, string(rune('a'+i)), i)
		m.PartitionKey = "/pods/default/n" + string(rune('0'+i%10))
		batch = append(batch, m)
	}
	results := make([]error, len(batch))
	started := time.Now()
	s.Send(t.Context(), batch, results)
	if d := time.Since(started); d > 5*fenceWait {
		t.Errorf("the others waited for %v", d)
	}
	first := true
	for i, err := range results {
		if partitionFor(batch[i].PartitionKey, 6) != sick {
			if err != nil {
				t.Errorf("%s: %v", batch[i].ID, err)
			}
			continue
		}
		part, ok := errors.AsType[*sinks.UnavailableError](err)
		if first != ok || ok && part.Destination != s.Part(batch[i]) {
			t.Errorf("%s: %v", batch[i].ID, err)
		}
		first, waiting = false, append(waiting, batch[i])
	}
	fault.Remove()
	sendAll(t, s, waiting...)
	if n := len(ids(testkafka.ReadAll(t, fake.ListenAddrs()[0], "events"))); n != len(batch) {
		t.Errorf("%d records, want %d", n, len(batch))
	}
}

// TestNoPermissionToFence: the sink writes without fences, and logs once what is missing. It does the same if the
// cluster does not support fences.
func TestNoPermissionToFence(t *testing.T) {
	for name, fault := range map[string]kfake.Fault{
		"transactional id": {
			Keys: []kmsg.Key{kmsg.FindCoordinator}, Err: kerr.TransactionalIDAuthorizationFailed, TopLevel: true,
		},
		"read":                    {Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.TopicAuthorizationFailed},
		"coordinator unsupported": {Keys: []kmsg.Key{kmsg.FindCoordinator}, Err: kerr.InvalidRequest, TopLevel: true},
		"producer unsupported": {
			Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.UnsupportedVersion, TxnID: "deltabridge.w1",
		},
		"transaction unsupported": {Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Err: kerr.UnsupportedVersion},
	} {
		t.Run(name, func(t *testing.T) {
			fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(3, "events"))
			fault.Count = -1
			lasting := fake.Fault(fault)
			var at stored
			var log bytes.Buffer
			s := process(t, Config{Brokers: fake.ListenAddrs(), Logger: slog.New(slog.NewTextHandler(&log, nil))}, &at)
			sendAll(t, s, change(event.Added, "a", 1), change(event.Added, "b", 2), change(event.Added, "c", 3))
			leave := change(event.Deleted, "d", 4)
			leave.IfFound = true
			if got := describe(send(t, s, leave, change(event.Updated, "a", 5))); got[0] != "stored" || got[1] != "ok" {
				t.Errorf("%v", got)
			}
			warning := "missing Kafka permissions"
			if strings.HasSuffix(name, "unsupported") {
				warning = "does not support transactional ids"
			}
			if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), warning) {
				t.Errorf("%d warnings: %s", n, &log)
			}
			if len(s.Positions(nil)) > 0 {
				t.Errorf("positions without a fence: %v", s.Positions(nil))
			}
			lasting.Remove()
			if n := len(ids(testkafka.ReadAll(t, fake.ListenAddrs()[0], "events"))); n != 4 {
				t.Errorf("%d records, want 4", n)
			}
		})
	}
}

// TestTransactionTimeout: the brokers permit only short transactions.
func TestTransactionTimeout(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"),
		kfake.BrokerConfigs(map[string]string{"transaction.max.timeout.ms": "10000"}))
	var at stored
	s := process(t, Config{Brokers: fake.ListenAddrs()}, &at)
	if got := describe(send(t, s, change(event.Added, "a", 1))); got[0] != "ok" || len(s.Positions(nil)) != 1 {
		t.Errorf("%v, %v", got, s.Positions(nil))
	}
}

// TestHangingCoordinator: one of three brokers does not answer. Fences with another coordinator do not wait for it.
func TestHangingCoordinator(t *testing.T) {
	const partitions = 120
	fake := newFake(t, kfake.NumBrokers(3), kfake.SeedTopics(partitions, "events"))
	arbiter := fake.CoordinatorFor("deltabridge.w1")
	sick := (arbiter + 1) % 3
	cfg := Config{Brokers: []string{fake.ListenAddrs()[arbiter]}, RequestTimeout: 5 * time.Minute}
	cfg.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr != fake.ListenAddrs()[sick] {
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
		c, other := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, other) }()
		return c, nil
	}
	var at stored
	s := process(t, cfg, &at)
	var healthy, all []*event.Message
	for i, name := range namesIn(partitions) {
		if fake.LeaderFor("events", int32(i)) == sick {
			continue
		}
		all = append(all, change(event.Added, name, i+1))
		if fake.CoordinatorFor(fmt.Sprintf("deltabridge.w1.events.%d", i)) != sick {
			healthy = append(healthy, all[len(all)-1])
		}
	}
	began := time.Now()
	s.Send(t.Context(), all, make([]error, len(all)))
	sendAll(t, s, healthy...)
	if d := time.Since(began); d > time.Minute {
		t.Errorf("%d of %d fences took %v", len(healthy), len(all), d)
	}
}
