package kafka

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// TestNothingTwiceAfterKill: a process that is killed, and its successor, which gets the same events and newer ones.
func TestNothingTwiceAfterKill(t *testing.T) {
	broker := testkafka.ForTest(t)
	structured := func(m *event.Message) *event.Message { m.Structured = true; return m }
	same := func(m *event.Message) *event.Message { return m }
	for name, c := range map[string]struct {
		Config
		settings map[string]string
		make     func(*event.Message) *event.Message
		more     []string // records in addition to the events
	}{
		"binary":     {make: same},
		"plain":      {make: same, Config: Config{Compression: "none"}},
		"zstd":       {make: same, Config: Config{Compression: "zstd"}},
		"structured": {make: structured},
		"mirror": {
			make: same, Config: Config{Tombstones: true}, settings: map[string]string{"cleanup.policy": "compact"},
			more: []string{"tombstone /pods/default/b"},
		},
		"structured-mirror": {
			make: structured, Config: Config{Tombstones: true}, settings: map[string]string{"cleanup.policy": "compact"},
			more: []string{"tombstone /pods/default/b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, topic := c.Config, "kill-"+name
			cfg.Brokers, cfg.Topic = []string{broker.Addr()}, topic
			testkafka.CreateTopic(t, broker.Addr(), topic, 1, c.settings)
			var at stored
			events := func() []*event.Message {
				return []*event.Message{
					c.make(change(event.Added, "a", 1)), c.make(change(event.Added, "b", 2)),
					c.make(change(event.Updated, "a", 3)), c.make(removed("b", 4)),
				}
			}
			want := []string{"u-a.1", "u-b.2", "u-a.3", "u-b.deleted"}
			want = append(want, c.more...)
			first := process(t, cfg, &at)
			if got := sendAll(t, first, events()...); got[3] != "ok" {
				t.Fatalf("the first process: %v", got)
			}
			for range 2 { // a restart, and one after which nothing had to be sent
				next := process(t, cfg, &at)
				if diff := cmp.Diff([]string{"stored", "stored", "stored", "stored"}, sendAll(t, next, events()...)); diff != "" {
					t.Errorf("the same events (-want +got):\n%s", diff)
				}
			}
			last := process(t, cfg, &at)
			got := sendAll(t, last, append(events()[2:], c.make(change(event.Updated, "a", 5)))...)
			if diff := cmp.Diff([]string{"stored", "stored", "ok"}, got); diff != "" {
				t.Errorf("a newer event (-want +got):\n%s", diff)
			}
			var found []string
			for _, r := range testkafka.ReadAll(t, broker.Addr(), topic)[0] {
				id := header(r, "ce_id")
				if r.Value == nil {
					if id != "u-b.deleted" || header(r, "ce_uid") != "u-b" || header(r, "ce_resourceversion") != "4" {
						t.Errorf("headers of the tombstone: %v", r.Headers)
					}
					id = "tombstone " + string(r.Key)
				}
				found = append(found, id)
				if header(r, sinks.MarkHeader) != "w1" {
					t.Errorf("headers of %s: %v", id, r.Headers)
				}
			}
			if diff := cmp.Diff(append(want, "u-a.5"), found); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStructuredUnknownDeletion: only the headers of its own record show that a deletion that a list found was written.
func TestStructuredUnknownDeletion(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "unknown", 1, nil)
	cfg := Config{Brokers: []string{broker.Addr()}, Topic: "unknown", Tombstones: true}
	deletion := func() *event.Message {
		m := change(event.Deleted, "a", 3)
		m.ID, m.FinalStateUnknown, m.Structured = "u-a.3.deleted", true, true
		return m
	}
	var at stored
	sendAll(t, process(t, cfg, &at), deletion())
	if got := sendAll(t, process(t, cfg, &at), deletion()); got[0] != "stored" {
		t.Errorf("%v", got)
	}
}

// TestResumeOverPartitions: objects whose events go to several topics, and many partitions in topics that are created
// a moment before.
func TestResumeOverPartitions(t *testing.T) {
	broker := testkafka.ForTest(t)
	cfg := Config{
		Brokers: []string{broker.Addr()}, Topic: "resume-{operation}",
		CreateTopics: &CreateTopics{Partitions: 6, ReplicationFactor: 1},
	}
	var at stored
	var batch []*event.Message
	want := map[string]int{}
	for i := range 60 {
		batch = append(batch, change(event.Added, fmt.Sprintf("n%d", i%20), i+1))
	}
	for i := range 60 {
		batch = append(batch, change(event.Updated, fmt.Sprintf("n%d", i%20), i+100))
	}
	for i := range 20 {
		batch = append(batch, removed(fmt.Sprintf("n%d", i), i+200))
	}
	for _, m := range batch {
		want[m.ID] = 1
	}
	sendAll(t, process(t, cfg, &at), batch[:100]...)
	sendAll(t, process(t, cfg, &at), batch[50:]...)
	sendAll(t, process(t, cfg, &at), batch...)
	got := map[string]int{}
	for _, topic := range []string{"resume-added", "resume-updated", "resume-deleted"} {
		for _, id := range ids(testkafka.ReadAll(t, broker.Addr(), topic)) {
			got[id]++
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestZombie: the previous process is still running. It must stop writing, and report this.
func TestZombie(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "zombie", 1, nil)
	cfg := Config{Brokers: []string{broker.Addr()}, Topic: "zombie"}
	var at stored
	zombie := process(t, cfg, &at)
	sendAll(t, zombie, change(event.Added, "a", 1))
	own := process(t, cfg, &at)
	sendAll(t, own, change(event.Added, "a", 1), change(event.Updated, "a", 2))

	var err error
	waitUntil(t, func() bool {
		err = send(t, zombie, change(event.Updated, "a", 2))[0]
		return sinks.IsRejected(err)
	})
	part, _ := err.(*sinks.UnavailableError)
	if part == nil || part.Destination != "zombie/0" {
		t.Errorf("%#v", err)
	}
	for _, words := range []string{"partition 0 of topic zombie", "since 20", "/clusters/test", "stop one of"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("%q does not contain %q", err, words)
		}
	}
	if again := send(t, zombie, change(event.Updated, "a", 3))[0]; !sinks.IsRejected(again) {
		t.Errorf("later: %v", again)
	}
	if got := sendAll(t, own, change(event.Updated, "a", 4)); got[0] != "ok" {
		t.Errorf("the own process: %v", got)
	}
	wantIDs(t, broker, "zombie", "u-a.1", "u-a.2", "u-a.4")
}

// TestSettledByReading: a batch was written without an acknowledgement, and is not sent again unchanged.
func TestSettledByReading(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "settled", 1, nil)
	var lose atomic.Bool
	cfg := Config{Brokers: []string{broker.Addr()}, Topic: "settled", dial: lossyDial(&lose)}
	var at stored
	s := process(t, cfg, &at)
	sendAll(t, s, change(event.Added, "a", 1))
	before := s.Positions(nil)
	for _, parked := range []string{"settled", "settled/0"} {
		if got := s.Positions([]string{"other", parked}); len(got) > 0 {
			t.Errorf("with events of %s that are parked: %v", parked, got)
		}
	}
	if got := s.Positions([]string{"other", "settled/1"}); len(got) != 1 {
		t.Errorf("with events that are parked elsewhere: %v", got)
	}
	lose.Store(true)
	if got := describe(send(t, s, change(event.Updated, "a", 2), change(event.Added, "b", 3))); got[0] != "maybe" {
		t.Fatalf("without an acknowledgement: %v", got)
	}
	if diff := cmp.Diff(before, s.Positions(nil)); diff != "" {
		t.Errorf("the position is after what is not acknowledged:\n%s", diff)
	}
	got := sendAll(t, s, change(event.Added, "c", 4), change(event.Updated, "a", 2), change(event.Added, "b", 3))
	if diff := cmp.Diff([]string{"ok", "stored", "stored"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	wantIDs(t, broker, "settled", "u-a.1", "u-a.2", "u-b.3", "u-c.4")
}

// TestLateRequestIsFencedByMarker: the same as TestLateRequestOfOthers, with a fence.
func TestLateRequestIsFencedByMarker(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "marker", 1, nil)
	r := newRelay(t)
	cfg := Config{Brokers: []string{broker.Addr()}, Topic: "marker", RequestTimeout: 2 * time.Second, dial: r.dial}
	var at stored
	s := process(t, cfg, &at)
	sendAll(t, s, change(event.Added, "a", 1))
	r.hold()
	if got := describe(send(t, s, change(event.Updated, "a", 2))); got[0] != "maybe" {
		t.Fatalf("the held request: %s", got)
	}
	sendAll(t, s, change(event.Updated, "a", 3))
	r.release()
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	r.wg.Wait()
	wantIDs(t, broker, "marker", "u-a.1", "u-a.3")
}

// TestPositionOutOfRange: the log no longer contains the stored position.
func TestPositionOutOfRange(t *testing.T) {
	broker := testkafka.ForTest(t)
	for name, prepare := range map[string]func(topic string){
		"purged": func(topic string) { testkafka.Purge(t, broker.Addr(), topic) },
		"recreated": func(topic string) {
			testkafka.DeleteTopic(t, broker.Addr(), topic)
			waitUntil(t, func() bool { return !testkafka.HasTopic(t, broker.Addr(), topic) })
			testkafka.CreateTopic(t, broker.Addr(), topic, 1, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			topic := "range-" + name
			testkafka.CreateTopic(t, broker.Addr(), topic, 1, nil)
			cfg := Config{Brokers: []string{broker.Addr()}, Topic: topic}
			var at stored
			first := process(t, cfg, &at)
			for i := range 5 {
				sendAll(t, first, change(event.Updated, "a", i+1))
			}
			if err := at.add(first.Positions(nil)); err != nil {
				t.Fatal(err)
			}
			old := maps.Clone(at.all)
			prepare(topic)
			sendAll(t, process(t, cfg, &at), change(event.Updated, "a", 6))
			at.all = old // as if the position had not been committed since then
			got := sendAll(t, process(t, cfg, &at), change(event.Updated, "a", 6), change(event.Updated, "a", 7))
			if diff := cmp.Diff([]string{"stored", "ok"}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			wantIDs(t, broker, topic, "u-a.6", "u-a.7")
		})
	}
}

// TestStateFromBeforeTheFirstUse: the state is that of a backup, from before the partition was first written to.
func TestStateFromBeforeTheFirstUse(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "restored", 1, nil)
	cfg := Config{Brokers: []string{broker.Addr()}, Topic: "restored"}
	var at stored
	sendAll(t, process(t, cfg, &at), change(event.Added, "a", 1), change(event.Updated, "a", 2))
	at.all = nil
	for range 2 {
		got := sendAll(t, process(t, cfg, &at), change(event.Added, "a", 1), change(event.Updated, "a", 2))
		if diff := cmp.Diff([]string{"stored", "stored"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestTopicRecreatedMeanwhile: a topic is deleted and created again while the process runs. It contains no marker, so
// the partition is fenced again.
func TestTopicRecreatedMeanwhile(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "meanwhile", 1, nil)
	cfg := Config{Brokers: []string{broker.Addr()}, Topic: "meanwhile"}
	var at stored
	s := process(t, cfg, &at)
	for i := range 5 {
		sendAll(t, s, change(event.Updated, "a", i+1))
	}
	testkafka.DeleteTopic(t, broker.Addr(), "meanwhile")
	waitUntil(t, func() bool { return !testkafka.HasTopic(t, broker.Addr(), "meanwhile") })
	testkafka.CreateTopic(t, broker.Addr(), "meanwhile", 1, nil)
	before := s.topics["meanwhile"].partitions[0].producer
	sendAll(t, s, change(event.Updated, "a", 6))
	sendAll(t, s, change(event.Updated, "a", 7))
	after := s.topics["meanwhile"].partitions[0].producer
	if after.id != before.id || after.epoch == before.epoch {
		t.Errorf("the producer is %v, was %v", after, before)
	}
	wantIDs(t, broker, "meanwhile", "u-a.6", "u-a.7")
}

// TestRenewal: a fence is renewed under the same epoch, and writing goes on meanwhile.
func TestRenewal(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "renewed", 1, nil)
	var at stored
	s := process(t, Config{Brokers: []string{broker.Addr()}, Topic: "renewed"}, &at)
	sendAll(t, s, change(event.Added, "a", 1))
	p := s.topics["renewed"].partitions[0]
	before := p.producer
	p.fencedAt, s.fences.advanced = time.Now().Add(-wire.FenceInterval-time.Minute), time.Time{}
	if err := s.Connect(t.Context()); err != nil || p.fence == nil {
		t.Fatalf("no renewal: %v", err)
	}
	if got := describe(send(t, s, change(event.Updated, "a", 2))); got[0] != "ok" {
		t.Errorf("during the renewal: %v", got)
	}
	<-p.fence.done
	s.fences.advanced = time.Time{}
	if err := s.Connect(t.Context()); err != nil || p.fence != nil || time.Since(p.fencedAt) > time.Minute {
		t.Errorf("after the renewal: %v, %v", err, p.fence)
	}
	if got := describe(send(t, s, change(event.Updated, "a", 3))); got[0] != "ok" {
		t.Errorf("after the renewal: %v", got)
	}
	if before.sequence += 2; p.producer != before {
		t.Errorf("the producer is %v, want %v", p.producer, before)
	}
	wantIDs(t, broker, "renewed", "u-a.1", "u-a.2", "u-a.3")
}

// TestStartWithoutFence: Kafka has forgotten the transactional id. This is reported, and the records of the old
// producer are read back.
func TestStartWithoutFence(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "forgotten", 1, nil)
	var at stored
	var log bytes.Buffer
	cfg := Config{Brokers: []string{broker.Addr()}, Topic: "forgotten", Logger: slog.New(slog.NewTextHandler(&log, nil))}
	first := process(t, cfg, &at)
	sendAll(t, first, change(event.Added, "a", 1))
	if log.Len() > 0 {
		t.Errorf("at the first start: %s", &log)
	}
	if err := at.add(first.Positions(nil)); err != nil {
		t.Fatal(err)
	}
	for name, p := range at.all {
		p.Producer += 12345
		p.Next = 0
		at.all[name] = p
	}
	if got := sendAll(t, process(t, cfg, &at), change(event.Added, "a", 1)); got[0] != "stored" {
		t.Error(got)
	}
	if n := strings.Count(log.String(), "starts without a fence"); n != 1 {
		t.Errorf("%d warnings: %s", n, &log)
	}
}

// TestStoreFails: nothing is written before the position is durable.
func TestStoreFails(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "unstored", 1, nil)
	s := newSink(t, Config{Brokers: []string{broker.Addr()}, Topic: "unstored"})
	var disk disk
	disk.full.Store(true)
	s.Resume(sinks.Resume{Writer: "w1", Store: disk.store})
	waitUntil(t, func() bool { return s.Connect(t.Context()) == nil })
	for range 3 {
		if err := send(t, s, change(event.Added, "a", 1))[0]; err == nil || !strings.Contains(err.Error(), "short write") {
			t.Errorf("%v", err)
		}
	}
	wantIDs(t, broker, "unstored")
	disk.full.Store(false)
	sendAll(t, s, change(event.Added, "a", 1))
	wantIDs(t, broker, "unstored", "u-a.1")
}

// TestIfFoundInAnyPartition: an object that only the destination knows, with a template that sends its leave to another
// topic than its addition.
func TestIfFoundInAnyPartition(t *testing.T) {
	broker := testkafka.ForTest(t)
	cfg := Config{
		Brokers: []string{broker.Addr()}, Topic: "iffound-{operation}",
		CreateTopics: &CreateTopics{Partitions: 3, ReplicationFactor: 1},
	}
	leave := func(name string, version int) *event.Message {
		m := change(event.Deleted, name, version)
		m.ID += ".left.filter.1"
		m.LeftFilter, m.IfFound = true, true
		return m
	}
	var at stored
	sendAll(t, process(t, cfg, &at), change(event.Added, "a", 1), change(event.Added, "b", 2))
	got := sendAll(t, process(t, cfg, &at), leave("unknown", 3), leave("a", 4), change(event.Updated, "b", 5))
	if diff := cmp.Diff([]string{"stored", "ok", "ok"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
