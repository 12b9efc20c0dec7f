package kafkaread_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// readAll gives what Read hands over, as "topic/partition id" or "... tombstone".
func readAll(t *testing.T, cfg kafka.Config, o diagnose.ReadOptions) (all []string) {
	t.Helper()
	before := int64(-1)
	err := newSink(t, cfg).Read(t.Context(), o, func(r *diagnose.Record) error {
		all = append(all, described(r))
		if before >= 0 && r.Behind != before-1 {
			t.Errorf("%d are behind, after %d", r.Behind, before)
		}
		before = r.Behind
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if before > 0 {
		t.Errorf("at the end %d are behind", before)
	}
	return all
}

func described(r *diagnose.Record) string {
	place, _, _ := strings.Cut(r.Place, " ")
	switch {
	case r.Foreign != nil:
		return place + " " + r.Foreign.Error()
	case r.Attributes == nil:
		return place + " tombstone"
	}
	return place + " " + r.Attributes["id"]
}

func TestRead(t *testing.T) {
	broker := testkafka.ForTest(t)
	name := "read-" + fmt.Sprint(time.Now().UnixNano())
	testkafka.CreateTopic(t, broker.Addr(), name+"-a", 3, nil)
	testkafka.CreateTopic(t, broker.Addr(), name+"-b", 1, nil)
	one := kafka.Config{Brokers: []string{broker.Addr()}, Topic: name + "-a", Tombstones: true}
	if all := readAll(t, one, diagnose.ReadOptions{}); len(all) != 0 {
		t.Errorf("an empty topic: %v", all)
	}
	s := connected(t, one)
	for version := range 40 { // a batch each
		typ := event.Updated
		if version == 39 {
			typ = event.Deleted
		}
		var batch []*event.Message
		for object := range 5 {
			batch = append(batch, change(typ, fmt.Sprint("pod-", object), version))
		}
		mustSend(t, s, batch...)
	}
	structured := change(event.Updated, "structured", 1)
	structured.Structured = true
	other := kafka.Config{Brokers: one.Brokers, Topic: name + "-b", Compression: "zstd"}
	mustSend(t, connected(t, other), structured, padded(change(event.Added, "large", 1), 300_000))

	var want []string
	for p, records := range testkafka.ReadAll(t, broker.Addr(), name+"-a") {
		for _, r := range records {
			id := idOf(r)
			if r.Value == nil {
				id = "tombstone"
			}
			want = append(want, fmt.Sprintf("%s-a/%d %s", name, p, id))
		}
	}
	got := readAll(t, one, diagnose.ReadOptions{})
	slices.SortStableFunc(got, func(a, b string) int { // each partition in its order
		return strings.Compare(strings.Fields(a)[0], strings.Fields(b)[0])
	})
	if diff := cmp.Diff(want, got); diff != "" || len(want) != 205 {
		t.Errorf("(-independent client +Read):\n%s", diff)
	}
	all := readAll(t, kafka.Config{Brokers: one.Brokers, Topic: name + "-{resource}"}, diagnose.ReadOptions{})
	if last := all[len(all)-2:]; len(all) != 207 ||
		!slices.Equal(last, []string{name + "-b/0 u-structured.1", name + "-b/0 u-large.1"}) {
		t.Errorf("%d of two topics, the last ones %v", len(all), last)
	}

	follow := newSink(t, one)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var since []string
	begin := time.Now()
	mustSend(t, s, change(event.Added, "next", 1))
	err := follow.Read(ctx, diagnose.ReadOptions{Since: begin, Follow: true}, func(r *diagnose.Record) error {
		_, id, _ := strings.Cut(described(r), " ")
		since = append(since, id)
		if len(since) < 4 {
			mustSend(t, s, change(event.Updated, "next", len(since)+1))
			return nil
		}
		cancel()
		return nil
	})
	if diff := cmp.Diff([]string{"u-next.1", "u-next.2", "u-next.3", "u-next.4"}, since); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	stuck := errors.New("enough")
	if err := newSink(
		t,
		one,
	).Read(t.Context(), diagnose.ReadOptions{}, func(*diagnose.Record) error { return stuck }); !errors.Is(
		err,
		stuck,
	) {
		t.Errorf("the handler's error: %v", err)
	}
	err = newSink(
		t,
		kafka.Config{Brokers: one.Brokers, Topic: name + "-c"},
	).Read(t.Context(), diagnose.ReadOptions{Follow: true}, nil)
	if err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("no topic: %v", err)
	}
}

// TestReadOverEmptiedBatches: compaction leaves the header of a producer's last batch. kafka-go's Conn and Reader
// panic at the second one in a row.
func TestReadOverEmptiedBatches(t *testing.T) {
	var set bytes.Buffer
	records := protocol.RecordSet{Version: 2, Records: protocol.NewRecordReader(protocol.Record{
		Time:    time.Now(),
		Value:   protocol.NewBytes([]byte("{}")),
		Headers: []protocol.Header{{Key: "ce_id", Value: []byte("a")}},
	})}
	if _, err := records.WriteTo(&set); err != nil {
		t.Fatal(err)
	}
	full := set.Bytes()[4:]
	emptied := bytes.Clone(full[:61])
	binary.BigEndian.PutUint32(emptied[8:], 61-12) // length
	binary.BigEndian.PutUint32(emptied[57:], 0)    // records
	binary.BigEndian.PutUint32(emptied[17:], crc32.Checksum(emptied[21:], crc32.MakeTable(crc32.Castagnoli)))
	var batches []byte
	for offset, batch := range [][]byte{full, emptied, emptied, full, emptied} {
		batches = append(batches, batch...)
		binary.BigEndian.PutUint64(batches[len(batches)-len(batch):], uint64(offset))
	}

	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "emptied"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	cfg := kafka.Config{Brokers: fake.ListenAddrs(), Topic: "emptied"}
	for i := range 5 { // so that the last offset is that of batches
		mustSend(t, connected(t, cfg), change(event.Added, "a", i))
	}
	fake.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		asked := r.(*kmsg.FetchRequest).Topics[0]
		topic, p := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
		p.HighWatermark, p.RecordBatches = 5, batches
		if asked.Partitions[0].FetchOffset == 4 {
			p.RecordBatches = batches[len(batches)-len(emptied):]
		}
		topic.Topic, topic.TopicID, topic.Partitions = asked.Topic, asked.TopicID, append(topic.Partitions, p)
		res := r.ResponseKind().(*kmsg.FetchResponse)
		res.Topics = append(res.Topics, topic)
		return res, nil, true
	})
	want := []string{"emptied/0 #0", "emptied/0 #3"}
	var got []string
	err = newSink(t, cfg).Read(t.Context(), diagnose.ReadOptions{}, func(r *diagnose.Record) error {
		got = append(got, r.Place)
		return nil
	})
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
