package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// readFrom returns the lowest offset that is fetched from now on, or -1.
func readFrom(fake *kfake.Cluster) *atomic.Int64 {
	var lowest atomic.Int64
	lowest.Store(-1)
	fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Fetch}, Observe: true, Count: -1,
		When: func(r kmsg.Request) bool {
			for _, t := range r.(*kmsg.FetchRequest).Topics {
				for _, p := range t.Partitions {
					if at := lowest.Load(); at < 0 || p.FetchOffset < at {
						lowest.Store(p.FetchOffset)
					}
				}
			}
			return true
		},
	})
	return &lowest
}

// TestKilledBeforeTheFirstFence: a process is killed after it has used the transactional id of a new partition, and
// before it has fenced the partition. The next process does not read the records of other producers in the topic.
func TestKilledBeforeTheFirstFence(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	others := connected(t, Config{Brokers: fake.ListenAddrs()})
	mustSend(t, others, changes(event.Added, 50, 1)...)
	var at stored
	killed := process(t, Config{Brokers: fake.ListenAddrs()}, &at)
	fault := fake.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Err: kerr.ConcurrentTransactions, Count: -1},
	)
	send(t, killed, change(event.Added, "a", 1))
	if err := killed.Close(t.Context()); err != nil || fault.Hits() == 0 {
		t.Fatalf("%v, %d transactions", err, fault.Hits())
	}
	fault.Remove()
	lowest := readFrom(fake)
	next := process(t, Config{Brokers: fake.ListenAddrs()}, &at)
	sendAll(t, next, change(event.Added, "a", 1))
	if p := next.topics["events"].partitions[0]; p.producer.epoch == 0 {
		t.Fatalf("the producer is %v, as if the first process had not used the id", p.producer)
	}
	if got := lowest.Load(); got != 50 {
		t.Errorf("the next process reads from %d, want 50", got)
	}
}

// TestRestoredBeforeTheFirstUse: the state is from a backup from before the partition was first written to. The whole
// partition is read, even if the first process that does so is killed.
func TestRestoredBeforeTheFirstUse(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	var at stored
	sendAll(t, process(t, Config{Brokers: fake.ListenAddrs()}, &at), change(event.Added, "a", 1))
	at.all = nil
	killed := process(t, Config{Brokers: fake.ListenAddrs()}, &at)
	fault := fake.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Err: kerr.ConcurrentTransactions, Count: -1},
	)
	send(t, killed, change(event.Added, "a", 1))
	if err := killed.Close(t.Context()); err != nil || fault.Hits() == 0 {
		t.Fatalf("%v, %d transactions", err, fault.Hits())
	}
	fault.Remove()
	if got := sendAll(
		t,
		process(t, Config{Brokers: fake.ListenAddrs()}, &at),
		change(event.Added, "a", 1),
	); got[0] != "stored" {
		t.Errorf("%v", got)
	}
}

// forgetful loses the first answer to a request for a producer of the transactional id, and the connection.
type forgetful struct {
	net.Conn
	id   string
	once *atomic.Bool
	lose bool
}

func (c *forgetful) Write(b []byte) (int, error) {
	if len(b) > 6 && binary.BigEndian.Uint16(b[4:]) == uint16(kmsg.InitProducerID) && bytes.Contains(b, []byte(c.id)) {
		c.lose = c.once.CompareAndSwap(false, true)
	}
	return c.Conn.Write(b)
}

func (c *forgetful) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.lose {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// TestFirstProducerUnanswered: the answer to the first request for a producer is lost. The second answer has a later
// epoch, but nobody has used the transactional id before.
func TestFirstProducerUnanswered(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	mustSend(t, connected(t, Config{Brokers: fake.ListenAddrs()}), changes(event.Added, 50, 1)...)
	lowest := readFrom(fake)
	var once atomic.Bool
	cfg := Config{Brokers: fake.ListenAddrs()}
	cfg.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &forgetful{Conn: c, id: "deltabridge.w1.events.0", once: &once}, err
	}
	var at stored
	s := process(t, cfg, &at)
	sendAll(t, s, change(event.Added, "a", 1))
	if p := s.topics["events"].partitions[0]; p.producer.epoch != 1 {
		t.Fatalf("the producer is %v, no answer was lost", p.producer)
	}
	if got := lowest.Load(); got != 50 {
		t.Errorf("read from %d, want 50", got)
	}
}

// TestPositionsAreStoredBefore: the position of each partition is stored before its transactional id is used, together
// with the positions of other partitions.
func TestPositionsAreStoredBefore(t *testing.T) {
	const partitions = 200
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(partitions, "events"))
	var at stored
	var early atomic.Int64
	fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.InitProducerID}, Observe: true, Count: -1,
		When: func(r kmsg.Request) bool {
			id := r.(*kmsg.InitProducerIDRequest).TransactionalID
			if id == nil || *id == "deltabridge.w1" {
				return false
			}
			at.mu.Lock()
			defer at.mu.Unlock()
			part := "/events/" + strings.TrimPrefix(*id, "deltabridge.w1.events.")
			if !slices.ContainsFunc(
				slices.Collect(maps.Keys(at.all)),
				func(name string) bool { return strings.HasSuffix(name, part) },
			) {
				early.Add(1)
			}
			return true
		},
	})
	s := newSink(t, Config{Brokers: fake.ListenAddrs()})
	var stores atomic.Int64
	s.Resume(sinks.Resume{Writer: "w1", Store: func(p sinks.Positions) error {
		stores.Add(1)
		return at.add(p)
	}})
	waitUntil(t, func() bool { return s.Connect(t.Context()) == nil })
	var batch []*event.Message
	for i, name := range namesIn(partitions) {
		batch = append(batch, change(event.Added, name, i+1))
	}
	sendAll(t, s, batch...)
	if n := early.Load(); n > 0 || len(at.all) != partitions {
		t.Errorf("%d ids were used before, %d positions", n, len(at.all))
	}
	if n := stores.Load(); n > partitions/4 { // fewer than 10 if the machine is idle
		t.Errorf("stored %d times", n)
	}
}
