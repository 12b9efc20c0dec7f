package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// changes returns n additions, or updates, of different objects.
func changes(typ event.Type, n, version int) (all []*event.Message) {
	for i := range n {
		all = append(all, change(typ, fmt.Sprintf("n%d", i), version+i))
	}
	return all
}

func wantOnce(t *testing.T, broker *testkafka.Broker, topic string, batches ...[]*event.Message) {
	t.Helper()
	want, got := map[string]int{}, map[string]int{}
	for _, batch := range batches {
		for _, m := range batch {
			want[m.ID] = 1
		}
	}
	for _, id := range ids(testkafka.ReadAll(t, broker.Addr(), topic)) {
		got[id]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s contains (-want +got):\n%s", topic, diff)
	}
}

// TestPartitionsAdded: partitions are added between a kill and the next start. Nothing is written before the partitions
// that an object may have been in are read back.
func TestPartitionsAdded(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "added", 2, nil)
	cfg := Config{Brokers: []string{broker.Addr()}, Topic: "added"}
	var at stored
	first := changes(event.Added, 20, 1)
	sendAll(t, process(t, cfg, &at), first...)
	testkafka.SetPartitions(t, broker.Addr(), "added", 7)
	for _, m := range first { // one by one: not all partitions are in one batch
		next := process(t, cfg, &at)
		if got := sendAll(t, next, m)[0]; got != "stored" {
			t.Errorf("%s: %s", m.ID, got)
		}
	}
	next := process(t, cfg, &at)
	more := changes(event.Updated, 20, 100)
	sendAll(t, next, append(changes(event.Added, 20, 1), more...)...)
	for name, p := range next.Positions(nil) {
		if p.Partitions != 7 {
			t.Errorf("%s: %+v", name, p)
		}
	}
	wantOnce(t, broker, "added", first, more)
}

// TestPartitionsAddedInDoubt: partitions are added while it is not known whether a batch was written.
func TestPartitionsAddedInDoubt(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "doubt", 2, nil)
	var lose atomic.Bool
	cfg := Config{Brokers: []string{broker.Addr()}, Topic: "doubt", dial: lossyDial(&lose)}
	var at stored
	s := process(t, cfg, &at)
	first, more := changes(event.Added, 20, 1), changes(event.Updated, 20, 100)
	sendAll(t, s, first...)
	lose.Store(true)
	if got := describe(send(t, s, more...)); !strings.Contains(strings.Join(got, " "), "maybe") {
		t.Fatalf("without an acknowledgement: %v", got)
	}
	testkafka.SetPartitions(t, broker.Addr(), "doubt", 7)
	s.topics["doubt"].stale = true
	for _, m := range more { // one by one: not all partitions are in one batch
		sendAll(t, s, m)
	}
	wantOnce(t, broker, "doubt", first, more)
}

// TestLeftAndRepeated: an event that an earlier process has left on disk is written, and then its source delivers it
// again.
func TestLeftAndRepeated(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "left", 1, nil)
	var at stored
	s := process(t, Config{Brokers: []string{broker.Addr()}, Topic: "left"}, &at)
	left := change(event.Updated, "a", 2)
	left.Origin.Left = true
	sendAll(t, s, left)
	got := sendAll(t, s, change(event.Added, "a", 1), change(event.Updated, "a", 2), change(event.Updated, "a", 3))
	if diff := cmp.Diff([]string{"stored", "stored", "ok"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	wantIDs(t, broker, "left", "u-a.2", "u-a.3")
}

// TestIfFoundInForbiddenTopics: the topics of earlier events must not be read any more. Nothing waits for them.
func TestIfFoundInForbiddenTopics(t *testing.T) {
	for name, fault := range map[string]kfake.Fault{
		"read":     {Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.TopicAuthorizationFailed, Topic: "forbidden-added"},
		"describe": {Keys: []kmsg.Key{kmsg.Metadata}, Err: kerr.TopicAuthorizationFailed, Topic: "forbidden-added"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "forbidden-added", "forbidden-deleted"))
			cfg := Config{Brokers: fake.ListenAddrs(), Topic: "forbidden-{operation}"}
			var at stored
			sendAll(t, process(t, cfg, &at), change(event.Added, "a", 1))
			fault.Count = -1
			defer fake.Fault(fault).Remove()
			leave := change(event.Deleted, "b", 2)
			leave.LeftFilter, leave.IfFound = true, true
			if got := sendAll(t, process(t, cfg, &at), leave, change(event.Deleted, "c", 3)); got[0] != "stored" {
				t.Errorf("%v", got)
			}
		})
	}
}

// TestUnansweredClaim: a claim that was not sent can't be handled late.
func TestUnansweredClaim(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	for name, sent := range map[string]bool{"refused": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			var away, once atomic.Bool
			cfg := Config{Brokers: fake.ListenAddrs()}
			cfg.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if away.Load() {
					return nil, syscall.ECONNREFUSED
				}
				c, err := new(net.Dialer).DialContext(ctx, network, addr)
				return &forgetful{Conn: c, id: "deltabridge.w1", once: &once}, err
			}
			var at stored
			s := process(t, cfg, &at)
			a := &s.fences.arbiter
			if err := a.txn.Find(t.Context()); err != nil {
				t.Fatal(err)
			}
			if away.Store(!sent); !sent {
				s.client.Close()
			}
			if err := a.verify(t.Context(), time.Now()); err == nil || a.unanswered.IsZero() == sent {
				t.Errorf("%v, unanswered: %v", err, a.unanswered)
			}
		})
	}
}

// TestLateClaim: the broker handles the process's own claim of the arbiter late. The process goes on, but only if such a
// claim is possible.
func TestLateClaim(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "claim", 3, nil)
	var at stored
	s := process(t, Config{Brokers: []string{broker.Addr()}, Topic: "claim"}, &at)
	in := namesIn(3)
	sendAll(t, s, change(event.Added, in[0], 1))
	claim := func() {
		t.Helper()
		if _, err := s.fences.arbiter.txn.Init(t.Context(), wire.NoProducer()); err != nil {
			t.Fatal(err)
		}
	}
	s.fences.arbiter.unanswered = time.Now()
	claim()
	sendAll(t, s, change(event.Added, in[1], 2))
	claim()
	if err := s.fences.arbiter.verify(t.Context(), time.Now()); !errors.Is(err, errFenced) {
		t.Errorf("%v", err)
	}
	waitUntil(t, func() bool { return sinks.IsRejected(send(t, s, change(event.Added, in[2], 3))[0]) })
}

// TestLateClaimIsNoticed: the broker handles the process's own claim of the arbiter late, while the process takes no
// partition. When it takes one, much later, it goes on.
func TestLateClaimIsNoticed(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "late-claim", 2, nil)
	var at stored
	s := process(t, Config{Brokers: []string{broker.Addr()}, Topic: "late-claim"}, &at)
	in, a := namesIn(2), &s.fences.arbiter
	sendAll(t, s, change(event.Added, in[0], 1))
	a.unanswered = time.Now()
	if _, err := a.txn.Init(t.Context(), wire.NoProducer()); err != nil {
		t.Fatal(err)
	}
	s.fences.advanced, a.verified = time.Time{}, time.Now().Add(-advanceEvery)
	if err := s.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.fences.wg.Wait()
	if !a.unanswered.IsZero() {
		a.unanswered = time.Now().Add(-2 * lateClaim) // as if so much time had passed
	}
	var err error
	waitUntil(t, func() bool {
		err = send(t, s, change(event.Added, in[1], 2))[0]
		return err == nil || sinks.IsRejected(err)
	})
	if err != nil {
		t.Error(err)
	}
}
