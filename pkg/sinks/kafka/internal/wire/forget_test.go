package wire

import (
	"errors"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// TestWhatBrokersForget: a fence that is renewed outlasts producer.id.expiration.ms and transactional.id.expiration.ms.
// Without renewals, the partition accepts the process before again, and the coordinator grants another producer id.
func TestWhatBrokersForget(t *testing.T) {
	broker := testkafka.NewForTest(t,
		"producer.id.expiration.ms=2000", "producer.id.expiration.check.interval.ms=200",
		"transactional.id.expiration.ms=3000", "transaction.remove.expired.transaction.cleanup.interval.ms=200")
	testkafka.CreateTopic(t, broker.Addr(), "forget", 1, nil)
	c := newClient(t, Config{Brokers: []string{broker.Addr()}})
	p := &Partition{Topic: "forget", Leader: broker.Addr()}
	txn := &Transactions{Client: c, ID: "what-brokers-forget"}
	var old, own Producer
	for longest := time.Hour; longest > 1500*time.Millisecond; { // again, if the machine stood still
		old = fenced(t, p, c, txn, NoProducer())
		if code := write(t, p, c, old, 0); code != 0 {
			t.Fatal(code)
		}
		own = fenced(t, p, c, txn, NoProducer())
		longest = renewed(func() { mark(t, p, c, txn, own) })
	}
	if code := write(t, p, c, old, 1); code != kafkago.InvalidProducerEpoch {
		t.Errorf("the process before, after renewals: code %d", code)
	}
	next := fenced(t, p, c, txn, NoProducer())
	if next.ID != own.ID || next.Epoch <= own.Epoch {
		t.Errorf("after renewals, the next process is %v, after %v", next, own)
	}

	waitUntil(t, func() bool { // whatever the sequence number is
		code := write(t, p, c, own, 77)
		if code != 0 && code != kafkago.InvalidProducerEpoch {
			t.Fatal(code)
		}
		return code == 0
	})
	waitUntil(t, func() bool { // a request of an older epoch renews nothing
		err := txn.Add(t.Context(), own, p.Topic, p.ID)
		if !errors.Is(err, kafkago.ProducerFenced) && !errors.Is(err, kafkago.InvalidProducerIDMapping) &&
			!errors.Is(err, kafkago.ConcurrentTransactions) { // the coordinator is removing the id
			t.Fatal(err)
		}
		return errors.Is(err, kafkago.InvalidProducerIDMapping)
	})
	another := fenced(t, p, c, txn, NoProducer())
	if another.ID == own.ID {
		t.Errorf("a coordinator that has forgotten the transactional id grants %v, after %v", another, own)
	}
	if code := write(t, p, c, own, 78); code != 0 {
		t.Errorf("the process before, behind the marker of another producer id: code %d", code)
	}
}

// renewed renews a fence for longer than brokers remember one, and returns the longest time between two renewals.
func renewed(renew func()) (longest time.Duration) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for last := began; last.Sub(began) < 7*time.Second; <-tick.C {
		renew()
		now := time.Now()
		longest, last = max(longest, now.Sub(last)), now
	}
	return longest
}

// TestConsumersSeeNoFence: consumers with read_committed see each record at once, even while an empty transaction of its
// producer is open, and see nothing else.
func TestConsumersSeeNoFence(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "no-fence", 1, nil)
	c := newClient(t, Config{Brokers: []string{broker.Addr()}})
	p := &Partition{Topic: "no-fence", Leader: broker.Addr()}
	txn := &Transactions{Client: c, ID: "consumers-see-no-fence"}
	own := fenced(t, p, c, txn, NoProducer())
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr()), kgo.ConsumeTopics(p.Topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	const records = 6
	seen := 0
	for n := range int32(records) {
		open := n%2 == 0
		if open {
			waitUntil(t, func() bool { return txn.Add(t.Context(), own, p.Topic, p.ID) == nil })
		}
		if code := write(t, p, c, own, n); code != 0 {
			t.Fatalf("record %d: code %d", n, code)
		}
		if stable, end := ends(t, client, p.Topic); stable != end || end < int64(n) {
			t.Errorf("record %d: consumers with read_committed read up to %d, others up to %d", n, stable, end)
		}
		fetches := client.PollFetches(t.Context()) // before the transaction ends
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		if seen += fetches.NumRecords(); seen != int(n)+1 {
			t.Errorf("%d records were seen, %d were written", seen, n+1)
		}
		if !open {
			if err := txn.End(t.Context(), own); err != nil {
				t.Fatal(err)
			}
		}
	}
	waitUntil(t, func() bool { return markers(t, p, c)[own] == 1+records/2 })
	if got := len(testkafka.ReadAll(t, broker.Addr(), p.Topic)[0]); got != records || seen != records {
		t.Errorf("%d records are there, %d were seen with read_committed, %d were written", got, seen, records)
	}
}

// ends returns the last stable offset and the high watermark of a topic with one partition.
func ends(t *testing.T, client *kgo.Client, topic string) (stable, end int64) {
	t.Helper()
	admin := kadm.NewClient(client)
	committed, err := admin.ListCommittedOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	all, err := admin.ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	last, found := committed.Lookup(topic, 0)
	high, foundHigh := all.Lookup(topic, 0)
	if err := errors.Join(last.Err, high.Err); err != nil || !found || !foundHigh {
		t.Fatal(err, found, foundHigh)
	}
	return last.Offset, high.Offset
}
