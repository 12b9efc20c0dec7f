package kafka

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// The templates of keys before and after a change of the configuration.
const oldKey, newKey = "old/{name}", "new/{name}"

// rekeyed returns the name of an object that is in the first of two partitions with the old key, and in the second
// with the new one.
func rekeyed() (name string) {
	for i := 0; ; i++ {
		name = fmt.Sprintf("o%d", i)
		if partitionFor("old/"+name, 2) == 0 && partitionFor("new/"+name, 2) == 1 {
			return name
		}
	}
}

func keyed(prefix, name string, version int) *event.Message {
	m := change(event.Updated, name, version)
	m.PartitionKey = prefix + name
	return m
}

// TestKeyChangedWhileParked: the key template is changed while events are parked, so that later events of the same
// object go to another partition. They are written after the parked ones.
func TestKeyChangedWhileParked(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "events"))
	var at stored
	store, queue := sinktest.OpenParked(t, t.TempDir()), sinktest.Queue(t, 100)
	run := func(key string) (stop func()) {
		d := &sinks.Drain{
			Sink: process(t, Config{Brokers: fake.ListenAddrs(), Key: key}, &at), Queue: queue, Parked: store,
			Logger: slog.New(slog.DiscardHandler), ReadsBack: true,
		}
		return running(t, d)
	}
	push := func(m *event.Message) { pushAndWait(t, queue, m) }
	name := rekeyed()
	down := fake.Fault(kfake.Fault{Keys: keysProduce, Partitions: []int32{0}, Err: kerr.NotEnoughReplicas, Count: -1})
	stop := run(oldKey)
	push(keyed("old/", name, 1))
	push(keyed("old/", name, 2))
	if !store.Holds("events/0") {
		t.Fatalf("parked: %+v", store.Queues())
	}
	stop()
	stop = run(newKey)
	defer func() { stop() }()
	push(keyed("new/", name, 3))
	push(keyed("new/", name, 4))
	if got := ids(testkafka.ReadAll(t, fake.ListenAddrs()[0], "events")); len(got) != 0 {
		t.Fatalf("written while earlier events of the object are parked: %s", got)
	}
	down.Remove()
	waitUntil(t, store.Empty)
	push(keyed("new/", name, 5))
	want := []string{"u-" + name + ".1", "u-" + name + ".2", "u-" + name + ".3", "u-" + name + ".4", "u-" + name + ".5"}
	if diff := cmp.Diff(want, ids(testkafka.ReadAll(t, fake.ListenAddrs()[0], "events"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestKeyChangedWhileSpilled: the key template is changed while events wait on disk. An object's event with the new key
// is not attempted while an earlier one with the old key fails.
func TestKeyChangedWhileSpilled(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "events"))
	s := connected(t, Config{Brokers: fake.ListenAddrs(), Key: newKey})
	down := fake.Fault(kfake.Fault{Keys: keysProduce, Partitions: []int32{0}, Err: kerr.NotEnoughReplicas, Count: -1})
	name := rekeyed()
	left, next := keyed("old/", name, 1), keyed("new/", name, 2)
	left.Origin.Left = true
	if diff := cmp.Diff([]string{"retry", "not attempted"}, describe(send(t, s, left, next))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	down.Remove()
	mustSend(t, s, left, next)
}

// TestKeyChangedAfterAKill: the key template is changed after a kill. What the earlier process has written is found in
// the partitions of the old keys.
func TestKeyChangedAfterAKill(t *testing.T) {
	name := rekeyed()
	leave := keyed("new/", name, 2)
	leave.ID += ".left.filter.1"
	leave.Type, leave.LeftFilter, leave.IfFound = event.Deleted, true, true
	for _, tt := range []struct {
		name string
		m    *event.Message
		want string
	}{
		{"the same event", keyed("new/", name, 1), "stored"},
		{"a leave of an object that only the destination knows", leave, "ok"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "events"))
			cfg := Config{Brokers: fake.ListenAddrs(), Key: oldKey}
			var at stored
			sendAll(t, process(t, cfg, &at), keyed("old/", name, 1))
			cfg.Key = newKey
			next := process(t, cfg, &at)
			if got := sendAll(t, next, tt.m)[0]; got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			if err := at.add(next.Positions(nil)); err != nil {
				t.Fatal(err)
			}
			next = process(t, cfg, &at)
			sendAll(t, next, keyed("new/", name, 3))
			if positions := next.Positions(nil); len(positions) != 1 {
				t.Errorf("fenced: %v", positions)
			}
		})
	}
}
