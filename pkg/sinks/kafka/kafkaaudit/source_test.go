package kafkaaudit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/deltabridge/deltabridge/test/kafka"
)

// topic is a topic that a test writes to and reads.
type topic struct {
	t      *testing.T
	name   string
	addr   string
	client *kgo.Client
	at     json.RawMessage // the position of the last read
}

func newTopic(t *testing.T, addr string, partitions int) *topic {
	name := fmt.Sprintf("audit-%d", time.Now().UnixNano())
	kafka.CreateTopic(t, addr, name, partitions, nil)
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &topic{t: t, name: name, addr: addr, client: client}
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

func event(id string) string { return fmt.Sprintf(`{"auditID":%q,"stage":"Panic"}`, id) }

// restart returns a source that continues where the last read has ended.
func (k *topic) restart() *Source {
	k.t.Helper()
	s, err := New(Config{Brokers: []string{k.addr}, Topic: k.name})
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(s.Close)
	return s
}

// expect reads what there is, and compares it in any order.
func (k *topic) expect(s *Source, want ...string) {
	k.t.Helper()
	var got []string
	for len(got) < max(len(want), 1) {
		ctx, cancel := context.WithTimeout(
			k.t.Context(),
			time.Duration(min(1, len(want)))*20*time.Second+300*time.Millisecond,
		)
		batch, err := s.Read(ctx, k.at)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			k.t.Fatal(err)
		}
		k.at = batch.Position
		for raw, lost := range batch.All() {
			if lost != nil {
				got = append(got, fmt.Sprintf("%d lost: %s", lost.Events, strings.ReplaceAll(lost.Message, k.name, "T")))
				continue
			}
			var e struct{ AuditID string }
			if err := json.Unmarshal(raw, &e); err != nil {
				k.t.Fatal(err)
			}
			got = append(got, e.AuditID)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		k.t.Errorf("got  %q\nwant %q", got, want)
	}
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
	k.write(0, event("a"), event("b"))
	k.write(1, event("c"), "")
	k.expect(first, "a", "b", "c")
	k.write(1, "garbage", "dev.deltabridge.audit="+event("d"), `dev.deltabridge.gap={"message":"upstream","events":2}`,
		`{"specversion":"1.0","type":"dev.deltabridge.audit","data":`+event("e")+`}`,
		`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[`+event("f")+","+event("g")+`]}`)
	second := k.restart()
	k.expect(second, "d", "e", "f", "g", "1 lost: records of topic T cannot be read: not valid JSON", "2 lost: upstream")
	k.expect(k.restart())

	kafka.SetPartitions(t, addr, k.name, 3)
	k.client.ForceMetadataRefresh()
	k.expect(second)
	k.write(0, event("h"))
	kafka.Purge(t, addr, k.name)
	k.write(0, event("i"))
	k.expect(
		second,
		"i",
		"0 lost: Kafka has deleted the records from offset 2 to 2 of partition 0 of topic T before they were read",
	)
	k.expect(k.restart())

	kafka.DeleteTopic(t, addr, k.name)
	kafka.CreateTopic(t, addr, k.name, 1, nil)
	k.client.Close()
	var err error
	if k.client, err = kgo.NewClient(
		kgo.SeedBrokers(addr),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.client.Close)
	k.write(0, event("j"))
	k.expect(k.restart(), "j",
		"0 lost: partition 0 of topic T ends before offset 4, up to which it was read: the topic was created again")
}

// A topic that does not exist is an error, and is read when it does.
func TestNoTopic(t *testing.T) {
	broker := kafka.ForTest(t)
	s, err := New(Config{Brokers: []string{broker.Addr()}, Topic: "there-is-none"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Read(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "there-is-none") {
		t.Errorf("got %v", err)
	}
}
