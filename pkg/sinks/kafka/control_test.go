package kafka

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/event"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

func listGap() *event.Message {
	info := &event.GapInfo{Resource: "pods", From: "3", To: "7", Reason: event.ReasonRelist}
	m := change(event.Gap, "", 7)
	m.ID, m.GapInfo, m.PartitionKey = "gap.7", info, "test/pods/_gap"
	m.Identity.UID, m.Identity.Name, m.Identity.Namespace = "", "", ""
	m.Data, _ = json.Marshal(info)
	return m
}

// A process that is killed after a control event, and its successor, which gets the same events: nothing is sent twice,
// neither objects nor control events.
func TestControlEventsAfterKill(t *testing.T) {
	broker := testkafka.ForTest(t)
	cfg := Config{Brokers: []string{broker.Addr()}, Topic: "ended.{resource}", control: "ended-control"}
	for _, topic := range []string{"ended.pods", cfg.control} {
		testkafka.CreateTopic(t, broker.Addr(), topic, 1, nil)
	}
	var at stored
	for range 2 {
		s := process(t, cfg, &at)
		for _, m := range []*event.Message{change(event.Added, "a", 1), listGap(), change(event.Added, "b", 8)} {
			mustSend(t, s, m)
		}
	}
	if diff := cmp.Diff([]string{"u-a.1", "u-b.8"}, ids(testkafka.ReadAll(t, broker.Addr(), "ended.pods"))); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"gap.7"}, ids(testkafka.ReadAll(t, broker.Addr(), cfg.control))); diff != "" {
		t.Errorf("control events (-want +got):\n%s", diff)
	}
}

// The gap event that replaces a rejected deletion goes to the topic of control events, and the tombstone to the topic of
// the object. If only the gap event could be written, it is not written again, not even by the next process.
func TestRejectedDeletionApart(t *testing.T) {
	broker := testkafka.ForTest(t)
	cfg := Config{
		Brokers: []string{broker.Addr()}, Topic: "rejected.{resource}", Tombstones: true, control: "rejected-control",
	}
	testkafka.CreateTopic(t, broker.Addr(), cfg.control, 1, nil)
	gap := event.RefusalGap(removed("a", 4), event.ReasonOversize, "too large", "")
	wantGap := func() {
		t.Helper()
		records := testkafka.ReadAll(t, broker.Addr(), cfg.control)
		if got := ids(records); len(got) != 1 || got[0] != gap.ID || string(records[0][0].Key) != "test/pods/_gap" {
			t.Errorf("control events: %v", got)
		}
	}
	var at stored
	for range 2 { // two processes
		s := process(t, cfg, &at)
		waitUntil(t, func() bool { // the first attempts wait for the fence
			_ = send(t, s, gap)
			return len(ids(testkafka.ReadAll(t, broker.Addr(), cfg.control))) > 0
		})
		for range 2 {
			if got := describe(send(t, s, gap)); got[0] != "retry" {
				t.Errorf("without the topic of the object: %v", got)
			}
		}
		wantGap()
	}
	testkafka.CreateTopic(t, broker.Addr(), "rejected.pods", 1, map[string]string{"cleanup.policy": "compact"})
	s := process(t, cfg, &at)
	mustSend(t, s, gap)
	wantGap()
	mustSend(t, s, change(event.Added, "b", 5))
	records := testkafka.ReadAll(t, broker.Addr(), "rejected.pods")
	if diff := cmp.Diff([]string{"tombstone /pods/default/a", "u-b.5"}, ids(records)); diff != "" {
		t.Fatalf("objects (-want +got):\n%s", diff)
	}
	if id := header(records[0][0], "ce_id"); id != removed("a", 4).ID {
		t.Errorf("the tombstone is that of %s", id)
	}
	if got := sendAll(t, process(t, cfg, &at), removed("a", 4)); got[0] != "stored" {
		t.Errorf("the deletion after a restart: %v", got)
	}
}

// Attempts to write the tombstone do not repeat the gap event, even if the sink does not read back what it has written.
func TestRejectedDeletionIsAnnouncedOnce(t *testing.T) {
	broker := testkafka.ForTest(t)
	cfg := Config{Brokers: []string{broker.Addr()}, Topic: "once.{resource}", Tombstones: true, control: "once-control"}
	testkafka.CreateTopic(t, broker.Addr(), cfg.control, 1, nil)
	s := connected(t, cfg)
	gap := event.RefusalGap(removed("a", 4), event.ReasonOversize, "too large", "")
	for range 3 {
		if got := describe(send(t, s, gap)); got[0] != "retry" {
			t.Errorf("without the topic of the object: %v", got)
		}
	}
	testkafka.CreateTopic(t, broker.Addr(), "once.pods", 1, nil)
	mustSend(t, s, gap)
	wantIDs(t, broker, cfg.control, gap.ID)
	wantIDs(t, broker, "once.pods", "tombstone /pods/default/a")
}

// The topic of control events is created with one partition, and is not compacted. If the objects of a resource go to
// several topics, a gap has no position.
func TestControlTopicIsCreated(t *testing.T) {
	broker := testkafka.ForTest(t)
	s := connected(t, Config{
		Brokers: []string{broker.Addr()}, Topic: "created.{namespace}", Tombstones: true,
		control: "created-control.{cluster}",
		CreateTopics: &CreateTopics{Partitions: 3, ReplicationFactor: 1, Config: map[string]string{
			"retention.ms": "1234567", "cleanup.policy": "compact,delete",
		}},
	})
	mustSend(t, s, change(event.Added, "a", 1))
	mustSend(t, s, listGap())
	const topic = "created-control.test"
	if got := topicConfig(t, broker.Addr(), topic, "cleanup.policy"); got != "delete" {
		t.Errorf("cleanup.policy is %s", got)
	}
	if got := topicConfig(t, broker.Addr(), topic, "retention.ms"); got != "1234567" {
		t.Errorf("retention.ms is %s", got)
	}
	records := testkafka.ReadAll(t, broker.Addr(), topic)
	if len(records) != 1 || len(records[0]) != 1 || string(records[0][0].Value) != string(listGap().Data) {
		t.Errorf("%d partitions, %v", len(records), ids(records))
	}
	if got := topicConfig(t, broker.Addr(), "created.default", "cleanup.policy"); got != "compact,delete" {
		t.Errorf("cleanup.policy of the objects is %s", got)
	}
}
