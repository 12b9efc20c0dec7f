package kafka

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// bigObject is a message that a topic with a small limit does not take, while its metadata passes.
func bigObject(typ event.Type, name string, version int) *event.Message {
	m := change(typ, name, version)
	pad := padded(m, 60_000).Data
	m.Data = []byte(strings.TrimSuffix(string(m.Data), "}") + `,"data":` + string(pad) + "}")
	return m
}

// TestRefusalsInOrder: in each mode, the replacement of an event keeps the event's place, and a deletion keeps its
// tombstone.
func TestRefusalsInOrder(t *testing.T) {
	broker := testkafka.ForTest(t)
	tests := []struct {
		mode sinks.Outcome
		want []string
		dead []string
	}{
		{
			sinks.OutcomeMetadata,
			[]string{"u-a.1", "u-a.2 oversize", "u-a.3 oversize", "tombstone /pods/default/a", "u-a.4"},
			nil,
		},
		{sinks.OutcomeGap, []string{"u-a.1", "u-a.2.gap", "u-a.3.gap", "tombstone /pods/default/a", "u-a.4"}, nil},
		{
			sinks.OutcomeDeadLetter,
			[]string{"u-a.1", "u-a.2.gap", "u-a.3.gap", "tombstone /pods/default/a", "u-a.4"},
			[]string{"u-a.2 oversize", "u-a.3 oversize"},
		},
	}
	for _, test := range tests {
		t.Run(string(test.mode), func(t *testing.T) {
			topic := "refusals-" + strings.ToLower(string(test.mode))
			testkafka.CreateTopic(t, broker.Addr(), topic, 1, map[string]string{"max.message.bytes": "20000"})
			s := connected(t, Config{Brokers: []string{broker.Addr()}, Topic: topic, Tombstones: true})
			letters := newSink(t, Config{
				Brokers: []string{broker.Addr()},
				Topic:   "dead-" + topic,
				CreateTopics: &CreateTopics{
					Partitions:        1,
					ReplicationFactor: 1,
					Config:            map[string]string{"max.message.bytes": "16777216"},
				},
			})
			q := sinktest.Queue(t, 1000)
			big := bigObject(event.Updated, "a", 2)
			for _, m := range []*event.Message{change(event.Added, "a", 1), big, bigObject(event.Deleted, "a", 3), change(event.Added, "a", 4)} {
				if err := q.Push(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
			q.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			d := &sinks.Drain{
				Sink:   s,
				Queue:  q,
				Parked: sinktest.OpenParked(t, t.TempDir()),
				Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
				Rejections: sinks.Rejections{
					Oversize:    test.mode,
					DeadLetters: &sinks.DeadLetterSink{Sink: letters, Where: "topic"},
				},
			}
			if err := d.Run(ctx); err != nil {
				t.Fatal(err)
			}
			read := func(topic, attribute string) (all []string) {
				for _, r := range testkafka.ReadAll(t, broker.Addr(), topic)[0] {
					text := header(r, "ce_id") + " " + header(r, attribute)
					if r.Value == nil {
						text = "tombstone " + string(r.Key)
					}
					all = append(all, strings.TrimSpace(text))
				}
				return all
			}
			if diff := cmp.Diff(test.want, read(topic, "ce_dataomitted")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if test.dead == nil {
				return
			}
			if diff := cmp.Diff(test.dead, read("dead-"+topic, "ce_refused")); diff != "" {
				t.Errorf("dead letters (-want +got):\n%s", diff)
			}
			if r := testkafka.ReadAll(t, broker.Addr(), "dead-"+topic)[0][0]; string(r.Value) != string(big.Data) {
				t.Errorf("the letter has %d bytes, want %d", len(r.Value), len(big.Data))
			}
		})
	}
}

// TestRefusedDeletionIsForgotten: if the topic identifies the object, the tombstone of a rejected deletion is in the
// topic of the object.
func TestRefusedDeletionIsForgotten(t *testing.T) {
	broker := testkafka.ForTest(t)
	s := connected(t, Config{
		Brokers:    []string{broker.Addr()},
		Topic:      "forgotten.{namespace}.{kind}.{name}.{uid}",
		Tombstones: true,
		CreateTopics: &CreateTopics{
			Partitions:        3,
			ReplicationFactor: 1,
			Config:            map[string]string{"max.message.bytes": "20000"},
		},
	})
	q := sinktest.Queue(t, 1000)
	for _, m := range []*event.Message{change(event.Added, "a", 1), bigObject(event.Deleted, "a", 2)} {
		if err := q.Push(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	q.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	d := &sinks.Drain{
		Sink:   s,
		Queue:  q,
		Parked: sinktest.OpenParked(t, t.TempDir()),
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if err := d.Run(ctx); err != nil {
		t.Fatal(err)
	}
	want := []string{"u-a.1", "u-a.2.gap", "tombstone /pods/default/a"}
	if diff := cmp.Diff(want, ids(testkafka.ReadAll(t, broker.Addr(), "forgotten.default.Pod.a.u-a"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTopicOfGaps(t *testing.T) {
	deletion := change(event.Deleted, "a", 1)
	long := change(event.Deleted, strings.Repeat("a", 250), 1)
	for _, c := range []struct {
		tombstones bool
		m          *event.Message
		want       string
	}{
		{true, event.RefusalGap(deletion, event.ReasonOversize, "", ""), "t.default.a"},
		{true, event.RefusalGap(change(event.Updated, "a", 1), event.ReasonOversize, "", ""), "t._._gap"},
		{false, event.RefusalGap(deletion, event.ReasonOversize, "", ""), "t._._gap"}, // nothing to forget
		{true, event.RefusalGap(long, event.ReasonRefused, "", ""), "t._._gap"},       // that can't be a topic
	} {
		s := newSink(t, Config{Brokers: []string{"127.0.0.1:1"}, Topic: "t.{namespace}.{name}", Tombstones: c.tombstones})
		if got := string(s.appendTopic(nil, c.m)); got != c.want {
			t.Errorf("tombstones %t, %s: topic %s, want %s", c.tombstones, c.m.ID, got, c.want)
		}
	}
}
