package kafka

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// TestTombstones: on a compacted topic, only the tombstone of a deleted object remains, and later nothing.
func TestTombstones(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "state", 1, map[string]string{
		"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "100", "delete.retention.ms": "100",
	})
	s := connected(t, Config{Brokers: []string{broker.Addr()}, Topic: "state", Tombstones: true})
	left := change(event.Deleted, "left", 5)
	left.LeftFilter, left.ID = true, "u-left.5.left"
	mustSend(t, s,
		change(event.Added, "kept", 1), change(event.Added, "gone", 2), change(event.Updated, "kept", 3),
		change(event.Added, "left", 4), change(event.Deleted, "gone", 6), left,
		change(event.Deleted, "back", 7), change(event.Added, "back", 8))

	all := []string{
		"u-kept.1", "u-gone.2", "u-kept.3", "u-left.4",
		"u-gone.6", "tombstone /pods/default/gone", "u-left.5.left", "tombstone /pods/default/left",
		"u-back.7", "tombstone /pods/default/back", "u-back.8",
	}
	if diff := cmp.Diff(all, ids(testkafka.ReadAll(t, broker.Addr(), "state"))); diff != "" {
		t.Fatalf("before compaction (-want +got):\n%s", diff)
	}

	// New segments let the broker compact the older ones. The records that fill new segments are not compared.
	want := []string{"u-kept.3", "u-back.8"}
	var got []string
	next := 100
	defer func() {
		if t.Failed() {
			t.Logf("wanted to remain: %v; remained: %v", want, got)
		}
	}()
	waitUntil(t, func() bool {
		next++
		mustSend(t, s, change(event.Updated, "filler", next))
		got = slices.DeleteFunc(ids(testkafka.ReadAll(t, broker.Addr(), "state")), func(id string) bool {
			return strings.HasPrefix(id, "u-filler.")
		})
		return slices.Equal(got, want)
	})
}

// TestCreateTopics: topics are created with the configured partitions and settings, and existing topics stay unchanged.
func TestCreateTopics(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "made.by.hand", 2, nil)
	s := connected(t, Config{
		Brokers: []string{broker.Addr()},
		Topic:   "made.{name}",
		CreateTopics: &CreateTopics{
			Partitions:        5,
			ReplicationFactor: 1,
			Config:            map[string]string{"cleanup.policy": "compact", "retention.ms": "1234567"},
		},
	})
	batch := []*event.Message{
		change(event.Added, "by.hand", 1),
		change(event.Added, "new-1", 2),
		change(event.Added, "new-2", 3),
	}
	mustSend(t, s, batch...)
	for topic, want := range map[string]int{"made.by.hand": 2, "made.new-1": 5, "made.new-2": 5} {
		if got := testkafka.ReadAll(t, broker.Addr(), topic); len(got) != want || len(ids(got)) != 1 {
			t.Errorf("%s: %d partitions, %v", topic, len(got), ids(got))
		}
	}
	if got := topicConfig(t, broker.Addr(), "made.new-1", "retention.ms"); got != "1234567" {
		t.Errorf("retention.ms is %s", got)
	}

	refused := connected(t, Config{
		Brokers: []string{broker.Addr()}, Topic: "other.{name}",
		CreateTopics: &CreateTopics{ReplicationFactor: 3},
	})
	results := send(t, refused, batch[1])
	if got := describe(
		results,
	); got[0] != "retry" ||
		!strings.Contains(results[0].Error(), "create topic other.new-1") {
		t.Errorf("more replicas than brokers: %v", results[0])
	}
}

// TestMirrorTopics: with tombstones, topics are created compacted, unless the configuration has another policy. A
// restated event is a record of its object, a control event is not.
func TestMirrorTopics(t *testing.T) {
	broker := testkafka.ForTest(t)
	for topic, c := range map[string]struct {
		tombstones bool
		config     map[string]string
		want       string
	}{
		"mirror":      {tombstones: true, want: "compact"},
		"mirror.both": {tombstones: true, config: map[string]string{"cleanup.policy": "compact,delete"}, want: "compact,delete"},
		"no.mirror":   {want: "delete"},
	} {
		s := connected(t, Config{
			Brokers: []string{broker.Addr()}, Topic: topic, Tombstones: c.tombstones,
			CreateTopics: &CreateTopics{Partitions: 1, ReplicationFactor: 1, Config: c.config},
		})
		gap := event.RefusalGap(change(event.Updated, "a", 2), event.ReasonOversize, "too large", "")
		mustSend(t, s, change(event.Added, "a", 1), gap, change(event.Restated, "a", 1), change(event.Deleted, "b", 3))
		if got := topicConfig(t, broker.Addr(), topic, "cleanup.policy"); got != c.want {
			t.Errorf("%s: cleanup.policy is %s, want %s", topic, got, c.want)
		}
		var got []string
		for _, r := range testkafka.ReadAll(t, broker.Addr(), topic)[0] {
			got = append(got, string(r.Key)+" "+strings.TrimPrefix(header(r, "ce_type"), "dev.deltabridge."))
		}
		want := []string{
			"/pods/default/a object.added", "test/pods/_gap gap", "/pods/default/a object.restated",
			"/pods/default/b object.deleted",
		}
		if c.tombstones {
			want = append(want, "/pods/default/b ")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", topic, diff)
		}
	}
}

func topicConfig(t *testing.T, addr, topic, name string) string {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	resources, err := kadm.NewClient(client).DescribeTopicConfigs(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	resource, err := resources.On(topic, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range resource.Configs {
		if c.Key == name && c.Value != nil {
			return *c.Value
		}
	}
	return ""
}

// TestSmallLimit: a topic whose limit is below the default is sent smaller batches. Only a message that is too large by
// itself is rejected. The broker compares its limit with the compressed size.
func TestSmallLimit(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "small", 1, map[string]string{"max.message.bytes": "20000"})
	s := connected(t, Config{Brokers: []string{broker.Addr()}, Topic: "small"})
	var batch []*event.Message
	var want, wantIDs []string
	for i := range 40 {
		m := padded(change(event.Updated, fmt.Sprintf("o%d", i%3), i), 3000)
		switch i {
		case 11, 12, 30:
			m = padded(change(event.Updated, fmt.Sprintf("big%d", i), i), 60_000)
		case 20: // large, but it shrinks
			m.Data = fmt.Appendf(nil, `{"pad":%q}`, strings.Repeat("x", 60_000))
		}
		batch = append(batch, m)
		if i == 11 || i == 12 || i == 30 {
			want = append(want, "permanent")
		} else {
			want, wantIDs = append(want, "ok"), append(wantIDs, m.ID)
		}
	}
	results := send(t, s, batch...)
	if diff := cmp.Diff(want, describe(results)); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if !errors.Is(results[11], sinks.ErrOversize) ||
		!strings.Contains(results[11].Error(), "max.message.bytes of topic small") {
		t.Errorf("%v", results[11])
	}
	if diff := cmp.Diff(wantIDs, ids(testkafka.ReadAll(t, broker.Addr(), "small"))); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// TestNullKey: a compacted topic rejects a record without a key. The records of other objects are written.
func TestNullKey(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "nullkey", 1, map[string]string{"cleanup.policy": "compact"})
	s := connected(t, Config{Brokers: []string{broker.Addr()}, Topic: "nullkey", Tombstones: true})
	keyless := change(event.Added, "b", 2)
	keyless.PartitionKey = ""
	results := send(
		t,
		s,
		change(event.Deleted, "a", 1),
		keyless,
		change(event.Deleted, "c", 3),
		keyless,
		change(event.Updated, "b", 3),
		change(event.Added, "d", 4),
	)
	if diff := cmp.Diff(
		[]string{"ok", "permanent", "ok", "not attempted", "not attempted", "ok"},
		describe(results),
	); diff != "" {
		t.Errorf("results (-want +got):\n%s\n%v", diff, results)
	}
	if !strings.Contains(results[1].Error(), "without key") {
		t.Errorf("%v does not say what is wrong with the record", results[1])
	}
	want := []string{"u-a.1", "tombstone /pods/default/a", "u-c.3", "tombstone /pods/default/c", "u-d.4"}
	if diff := cmp.Diff(want, ids(testkafka.ReadAll(t, broker.Addr(), "nullkey"))); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// TestCompressions: a real broker accepts every kind of compression, and an independent client can read the records.
func TestCompressions(t *testing.T) {
	broker := testkafka.ForTest(t)
	for _, c := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		topic := "compression-" + c
		testkafka.CreateTopic(t, broker.Addr(), topic, 1, nil)
		s := connected(t, Config{Brokers: []string{broker.Addr()}, Topic: topic, Compression: c})
		var batch []*event.Message
		var want []string
		for i := range 50 {
			m := change(event.Updated, "a", i)
			batch, want = append(batch, m), append(want, m.ID)
		}
		mustSend(t, s, batch...)
		if diff := cmp.Diff(want, ids(testkafka.ReadAll(t, broker.Addr(), topic))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c, diff)
		}
	}
}

// TestPartitionsGrow: new partitions are used after the metadata was read again.
func TestPartitionsGrow(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "growing", 1, nil)
	s := connected(t, Config{Brokers: []string{broker.Addr()}, Topic: "growing"})
	mustSend(t, s, change(event.Added, "a", 1))

	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).UpdatePartitions(t.Context(), 7, "growing"); err != nil {
		t.Fatal(err)
	}
	top := s.topics["growing"]
	waitUntil(t, func() bool {
		top.fetched = time.Now().Add(-MetadataMaxAge) // as if so much time had passed
		mustSend(t, s, change(event.Updated, "a", 2))
		return len(top.partitions) == 7
	})
	mustSend(t, s, change(event.Updated, "a", 3))
	p := partitionFor("/pods/default/a", 7)
	if got := ids(testkafka.ReadAll(t, broker.Addr(), "growing")[p:][:1]); !slices.Contains(got, "u-a.3") {
		t.Errorf("partition %d holds %v", p, got)
	}
}

func passwordFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestShortSessions: if the broker ends SASL sessions, the sink reconnects before its session ends.
func TestShortSessions(t *testing.T) {
	t.Parallel()
	broker := testkafka.NewForTest(t, "connections.max.reauth.ms=1500")
	testkafka.CreateTopic(t, broker.Addr(), "sessions", 1, nil)
	s := connected(t, Config{
		Brokers: []string{broker.SASLAddr()},
		Topic:   "sessions",
		SASL: SASLConfig{
			Mechanism:    "SCRAM-SHA-256",
			Username:     testkafka.User,
			PasswordFile: passwordFile(t, testkafka.Password),
		},
	})
	var want []string
	end, last := time.Now().Add(4*time.Second), time.Now()
	waitUntil(t, func() bool {
		m := change(event.Updated, "a", len(want))
		got := describe(send(t, s, m))
		stoodStill := time.Since(last) > 500*time.Millisecond // for longer than the rest of a session
		if last = time.Now(); got[0] != "ok" {
			if !stoodStill {
				t.Errorf("after %d events: %s", len(want), got)
			}
			mustSend(t, s, m)
		}
		want = append(want, m.ID)
		return time.Now().After(end)
	})
	if diff := cmp.Diff(want, ids(testkafka.ReadAll(t, broker.Addr(), "sessions"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
