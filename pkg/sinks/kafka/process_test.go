package kafka

import (
	"context"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// stored contains the positions that a process would find after a restart.
type stored struct {
	mu  sync.Mutex
	all sinks.Positions
}

func (s *stored) add(more sinks.Positions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = sinks.Positions{}
	}
	maps.Copy(s.all, more)
	return nil
}

// process returns the sink of a process that begins with these positions. A process that is killed is not closed, so
// its sink is simply not used any more.
func process(t testing.TB, cfg Config, at *stored) *Sink {
	t.Helper()
	s := newSink(t, cfg)
	s.Resume(sinks.Resume{Writer: "w1", Positions: maps.Clone(at.all), Store: at.add})
	waitUntil(t, func() bool { return s.Connect(t.Context()) == nil })
	return s
}

// sendAll sends like a drain, and returns the last result of each message.
func sendAll(t testing.TB, s *Sink, batch ...*event.Message) []string {
	t.Helper()
	words := make([]string, len(batch))
	rest := slices.Collect(maps.Keys(maps.Collect(slices.All(batch))))
	slices.Sort(rest)
	waitUntil(t, func() bool {
		var again []int
		part := make([]*event.Message, 0, len(rest))
		for _, i := range rest {
			part = append(part, batch[i])
		}
		for k, err := range send(t, s, part...) {
			words[rest[k]] = describe([]error{err})[0]
			if w := words[rest[k]]; w != "ok" && w != "stored" && w != "permanent" {
				again = append(again, rest[k])
			}
		}
		rest = again
		return len(rest) == 0
	})
	return words
}

// removed is a deletion, with the id of a real one.
func removed(name string, version int) *event.Message {
	m := change(event.Deleted, name, version)
	m.ID = "u-" + name + ".deleted"
	return m
}

func wantIDs(t *testing.T, broker *testkafka.Broker, topic string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, ids(testkafka.ReadAll(t, broker.Addr(), topic))); diff != "" {
		t.Errorf("%s contains (-want +got):\n%s", topic, diff)
	}
}

// lossy loses the next response if this is requested: the connection ends when it arrives.
type lossy struct {
	net.Conn
	lose *atomic.Bool
}

func lossyDial(lose *atomic.Bool) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return lossy{c, lose}, err
	}
}

func (c lossy) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.lose.CompareAndSwap(true, false) {
		_ = c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}
