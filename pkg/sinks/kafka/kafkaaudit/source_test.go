package kafkaaudit

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deltabridge/deltabridge/pkg/audit/audittest"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
	"github.com/deltabridge/deltabridge/test/kafka"
)

// topic is a topic that a test writes to and reads.
type topic struct {
	audittest.Reader

	t      *testing.T
	name   string
	addr   string
	client *kgo.Client
}

func newTopic(t *testing.T, addr string, partitions int) *topic {
	name := fmt.Sprintf("audit-%d", time.Now().UnixNano())
	kafka.CreateTopic(t, addr, name, partitions, nil)
	k := &topic{Reader: audittest.Reader{T: t, Unordered: true}, t: t, name: name, addr: addr}
	k.connect()
	return k
}

func (k *topic) write(partition int32, values ...string) {
	k.t.Helper()
	for _, value := range values {
		r := &kgo.Record{Topic: k.name, Partition: partition, Value: []byte(value)}
		if value == "" {
			r.Value = nil // a tombstone
		}
		if kind, data, isTyped := strings.Cut(value, "="); isTyped {
			r.Headers, r.Value = []kgo.RecordHeader{{Key: typeHeader, Value: []byte(kind)}}, []byte(data)
		}
		if err := k.client.ProduceSync(k.t.Context(), r).FirstErr(); err != nil {
			k.t.Fatal(err)
		}
	}
}

// restart returns a source that continues where the last read has ended.
func (k *topic) restart() *Source {
	k.t.Helper()
	s, err := New(Config{Config: wire.Config{Brokers: []string{k.addr}}, Topic: k.name})
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(s.Close)
	return s
}

// expect reads what there is. T is the name of the topic in losses.
func (k *topic) expect(s *Source, want ...string) {
	k.t.Helper()
	for n := range want {
		want[n] = strings.ReplaceAll(want[n], "topic T", "topic "+k.name)
	}
	k.Expect(s, want...)
}

// create creates the topic again.
func (k *topic) create(partitions int) {
	k.t.Helper()
	kafka.DeleteTopic(k.t, k.addr, k.name)
	kafka.CreateTopic(k.t, k.addr, k.name, partitions, nil)
	k.connect()
}

// connect makes the producer forget an earlier topic with the same name.
func (k *topic) connect() {
	k.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(k.addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(client.Close)
	k.client = client
}

// TestFake runs the test with an imitation of a broker, which is always there and fast.
func TestFake(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	testTopic(t, fake.ListenAddrs()[0])
}

// TestKafka runs the test with Kafka.
func TestKafka(t *testing.T) { testTopic(t, kafka.ForTest(t).Addr()) }

// All events of all partitions are read once, over restarts, and everything that is missing is a loss.
func testTopic(t *testing.T, addr string) {
	k := newTopic(t, addr, 2)
	first := k.restart()
	k.expect(first)
	k.write(0, audittest.Event("a"), audittest.Event("b"))
	k.write(1, audittest.Event("c"), "")
	k.expect(first, "a", "b", "c")
	k.write(
		1,
		"garbage",
		"dev.deltabridge.audit="+audittest.Event("d"),
		`dev.deltabridge.gap={"message":"upstream","events":2}`,
		`{"specversion":"1.0","type":"dev.deltabridge.audit","data":`+audittest.Event("e")+`}`,
		`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[`+audittest.Event("f")+","+audittest.Event("g")+`]}`,
	)
	second := k.restart()
	k.expect(second, "d", "e", "f", "g", "1 lost: records of topic T cannot be read: not valid JSON", "2 lost: upstream")
	k.expect(k.restart())

	kafka.SetPartitions(t, addr, k.name, 3)
	k.client.ForceMetadataRefresh()
	k.expect(second)
	k.write(0, audittest.Event("h"))
	kafka.Purge(t, addr, k.name)
	k.write(0, audittest.Event("i"))
	k.expect(
		second,
		"i",
		"0 lost: Kafka has deleted the records from offset 2 to 2 of partition 0 of topic T before they were read",
	)
	k.expect(k.restart())

	k.create(1)
	k.write(0, audittest.Event("j"))
	k.expect(
		k.restart(),
		"j",
		"0 lost: partition 0 of topic T ends before offset 4, up to which it was read: the topic was "+
			"created again, or Kafka has lost records",
	)

	// The new topic has more records.
	k.create(3)
	k.write(0, audittest.Event("k"), audittest.Event("l"), audittest.Event("m"))
	k.write(1, audittest.Event("n"))
	recreated := "0 lost: partition 0 of topic T has another record at offset 0 than the one that was read: the topic was " +
		"created again"
	fourth := k.restart()
	k.expect(
		fourth,
		"k",
		"l",
		"m",
		"n",
		recreated,
		"0 lost: partition 1 of topic T ends before offset 7, up to which it was read: the topic was created again, or Kafka "+
			"has lost records",
	)
	k.create(3)
	k.write(0, audittest.Event("o"), audittest.Event("p"), audittest.Event("q"), audittest.Event("r"))
	fourth.look = time.Time{} // as after 10 seconds
	k.expect(
		fourth,
		"o",
		"p",
		"q",
		"r",
		strings.Replace(recreated, "offset 0", "offset 2", 1),
		"0 lost: partition 1 of topic T ends before offset 1, up to which it was read: the topic was created again, or Kafka "+
			"has lost records",
	)
	k.expect(k.restart())

	testNewPartition(t, addr)
	testCreatedAgainBeforeTheFirstRecord(t, addr)
	testUnusable(t, addr)
}

// testNewPartition checks that what was deleted before the first start is not lost, but what was deleted from a
// partition that was added later is.
func testNewPartition(t *testing.T, addr string) {
	t.Helper()
	k := newTopic(t, addr, 1)
	k.write(0, audittest.Event("a"))
	kafka.Purge(t, addr, k.name)
	k.write(0, audittest.Event("b"))
	k.expect(k.restart(), "b")
	kafka.SetPartitions(t, addr, k.name, 2)
	k.connect()
	k.write(1, audittest.Event("c"), audittest.Event("d"))
	kafka.Purge(t, addr, k.name)
	k.write(1, audittest.Event("e"))
	k.expect(k.restart(), "e",
		"0 lost: Kafka has deleted the records from offset 0 to 1 of partition 1 of topic T before they were read")
}

// testCreatedAgainBeforeTheFirstRecord checks that nothing of a new topic is skipped if the earlier one had no records
// any more when it was read for the first time.
func testCreatedAgainBeforeTheFirstRecord(t *testing.T, addr string) {
	t.Helper()
	k := newTopic(t, addr, 1)
	k.write(0, audittest.Event("a"), audittest.Event("b"))
	kafka.Purge(t, addr, k.name)
	for range 2 { // it is still the same
		s := k.restart()
		s.idle = time.Millisecond // it returns a position although there is nothing
		k.expect(s)
	}
	k.create(1)
	k.write(0, audittest.Event("c"), audittest.Event("d"), audittest.Event("e"))
	k.expect(k.restart(), "c", "d", "e",
		"0 lost: partition 0 of topic T begins with offset 0, and began with offset 2 earlier: the topic was created again")
	k.expect(k.restart())
}

// TestCreatedAgainBetweenTwoReads checks that nothing of a new topic is skipped if it has the next record already when
// that is requested.
func TestCreatedAgainBetweenTwoReads(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	k := newTopic(t, fake.ListenAddrs()[0], 1)
	s := k.restart()
	k.write(0, audittest.Event("a"), audittest.Event("b"))
	k.expect(s, "a", "b")
	k.create(1)
	k.write(0, audittest.Event("c"), audittest.Event("d"), audittest.Event("e"))
	s.partitions[0].fetched = time.Time{} // as after 0.1 seconds
	const recreated = "0 lost: partition 0 of topic T has another record at offset 1 than the one that was read: the topic " +
		"was created again"
	k.expect(s, "c", "d", "e", recreated)
	k.expect(k.restart())
}

// A partition that cannot be read is an error, and does not hold up the others. A source that can be read says so, even
// if there is nothing.
func TestPartitionFails(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	var failing atomic.Bool
	fake.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		req := r.(*kmsg.FetchRequest)
		if !failing.Load() || req.Topics[0].Partitions[0].Partition != 0 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		resp.Topics = []kmsg.FetchResponseTopic{{Topic: req.Topics[0].Topic, Partitions: []kmsg.FetchResponseTopicPartition{{
			Partition: 0, ErrorCode: kerr.NotLeaderForPartition.Code,
		}}}}
		return resp, nil, true
	})
	k := newTopic(t, fake.ListenAddrs()[0], 2)
	s := k.restart()
	s.idle = 200 * time.Millisecond
	k.write(0, audittest.Event("a"))
	k.write(1, audittest.Event("b"))
	k.expect(s, "a", "b")
	failing.Store(true)
	k.write(0, audittest.Event("c"))
	var got []string
	for _, id := range []string{"d", "e"} {
		k.write(1, audittest.Event(id))
		for try := 1; ; try++ {
			s.turn = 1 // the partition that fails is the first one that is read
			batch, err := s.Read(t.Context(), k.At)
			if err == nil && errors.Is(batch.Err, kafkago.NotLeaderForPartition) {
				k.At, got = batch.Position, append(got, audittest.Items(t, batch)...)
				break
			}
			if try == 20 { // the first one may have taken longer than idle
				t.Fatalf("got a batch: %t, %v", batch != nil, err)
			}
		}
	}
	if fmt.Sprint(got) != "[d e]" {
		t.Errorf("got %v", got)
	}
	if batch, err := s.Read(t.Context(), k.At); batch != nil || err == nil {
		t.Errorf("a partition cannot be read, and the others have nothing: got %v, %v", batch, err)
	}
	failing.Store(false)
	for deadline := time.Now().Add(2 * time.Minute); ; { // the partition is tried again after a second
		batch, err := s.Read(t.Context(), k.At)
		if err == nil && batch.Err == nil {
			if got := audittest.Items(t, batch); fmt.Sprint(got) != "[c]" {
				t.Errorf("got %v", got)
			}
			k.At = batch.Position
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if batch, err := s.Read(t.Context(), k.At); err != nil || batch.Err != nil || batch.Len() > 0 {
		t.Errorf("without events: got %v, %v", batch, err)
	}
}

// testUnusable checks the errors for a topic that does not exist, and for one that the bridge is not allowed to read.
func testUnusable(t *testing.T, addr string) {
	t.Helper()
	s, err := New(Config{Config: wire.Config{Brokers: []string{addr}}, Topic: "there-is-none"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.Read(t.Context(), nil)
	const missing = "topic: topic there-is-none does not exist; create it, or correct audit.kafka.topic"
	if err == nil || err.Error() != missing {
		t.Errorf("got %v", err)
	}
	err = s.explain(s.client.CodeError("topic t", kafkago.TopicAuthorizationFailed, ""))
	if !strings.Contains(err.Error(), "the permissions Describe and Read on the topic (see audit.kafka.topic)") {
		t.Errorf("got %v", err)
	}
}
