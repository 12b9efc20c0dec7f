package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/test/kafka"
)

// readAll gives what Read hands over, as "topic/partition id" or "... tombstone".
func readAll(t *testing.T, cfg Config, o diagnose.ReadOptions) (all []string) {
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
	broker := kafka.ForTest(t)
	name := "read-" + fmt.Sprint(time.Now().UnixNano())
	kafka.CreateTopic(t, broker.Addr(), name+"-a", 3, nil)
	kafka.CreateTopic(t, broker.Addr(), name+"-b", 1, nil)
	one := Config{Brokers: []string{broker.Addr()}, Topic: name + "-a", Tombstones: true}
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
	other := Config{Brokers: one.Brokers, Topic: name + "-b", Compression: CompressionZstd}
	mustSend(t, connected(t, other), structured, padded(change(event.Added, "large", 1), 300_000))

	var want []string
	for p, records := range kafka.ReadAll(t, broker.Addr(), name+"-a") {
		for _, r := range records {
			id := header(r, "ce_id")
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
	all := readAll(t, Config{Brokers: one.Brokers, Topic: name + "-{resource}"}, diagnose.ReadOptions{})
	if last := all[len(all)-2:]; len(all) != 207 || !slices.Equal(last, []string{name + "-b/0 u-structured.1", name + "-b/0 u-large.1"}) {
		t.Errorf("%d of two topics, the last ones %v", len(all), last)
	}

	follow := newSink(t, one)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
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
	if err := newSink(t, one).Read(t.Context(), diagnose.ReadOptions{}, func(*diagnose.Record) error { return stuck }); !errors.Is(err, stuck) {
		t.Errorf("the handler's error: %v", err)
	}
	err = newSink(t, Config{Brokers: one.Brokers, Topic: name + "-c"}).Read(t.Context(), diagnose.ReadOptions{Follow: true}, nil)
	if err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("no topic: %v", err)
	}
}

// What compaction leaves behind holds the reading up for no longer than it takes to step over it.
func TestReadOverHoles(t *testing.T) {
	r := &reading{sink: newSink(t, Config{Brokers: []string{"127.0.0.1:1"}}), partitions: map[string]*readPartition{}}
	p := &readPartition{partition: &partition{topic: newTopic("t")}, next: 5, end: 9}
	r.partitions["t/0"] = p
	for p.open() {
		before := p.next
		found := &fetch.ResponsePartition{HighWatermark: 9, RecordSet: protocol.RecordSet{Version: 2, Records: protocol.NewRecordReader(protocol.Record{Offset: 4})}}
		if p.next == 7 {
			found.RecordSet.Records = protocol.NewRecordReader(protocol.Record{Offset: 8})
		}
		if came, err := r.take(p, found); err != nil || !came || p.next <= before {
			t.Fatalf("at %d, %v, %v", p.next, came, err)
		}
	}
	if len(p.queue) != 1 || p.next != 9 {
		t.Errorf("%d records, at %d", len(p.queue), p.next)
	}
	if _, err := r.take(p, &fetch.ResponsePartition{ErrorCode: 1}); err != nil || !p.reset {
		t.Errorf("what was deleted meanwhile: %v, %v", p.reset, err)
	}
}
