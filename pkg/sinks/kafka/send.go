package kafka

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

const (
	// maxRequestBytes bounds the record batches of one request. A broker closes the connection on a request larger
	// than its socket.request.max.bytes: 100 MiB.
	maxRequestBytes = 32 << 20
	// maxRecordBytes is the largest event that is sent, for the same reason.
	maxRecordBytes = 64 << 20
	// maxTopicName is how long the name of a topic may be, in bytes: Kafka's Topic.MAX_NAME_LENGTH.
	maxTopicName = 249
)

// Send delivers the batch. See [sinks.Sink].
func (s *Sink) Send(ctx context.Context, batch []*event.Message, results []error) {
	for i := range results {
		results[i] = sinks.ErrNotAttempted
	}
	if len(batch) == 0 {
		return
	}
	if err := s.ensureProducer(ctx); err != nil {
		results[0] = err
		return
	}
	s.route(ctx, batch)
	defer clear(s.routes)
	for start := 0; start < len(batch); {
		end := s.endOfRound(batch, start)
		if !s.sendRound(ctx, batch, results, start, end) {
			return // what follows may be of an object that failed
		}
		start = end
	}
}

// route sets s.routes to the partition of each message: topic.unroutable if the partitions of its topic are not known.
func (s *Sink) route(ctx context.Context, batch []*event.Message) {
	now := time.Now()
	var due []*topic
	topics := make([]*topic, len(batch))
	for i, m := range batch {
		s.buf = s.appendTopic(s.buf[:0], m)
		t := s.topic(s.buf)
		if t.due(now) && !slices.Contains(due, t) {
			due = append(due, t)
		}
		topics[i] = t
	}
	if len(due) > 0 {
		s.refresh(ctx, due)
	}
	s.routes = s.routes[:0]
	for i, m := range batch {
		s.buf = append(s.buf[:0], m.PartitionKey...)
		s.routes = append(s.routes, topics[i].partitionOf(&s.balancer, s.buf))
	}
}

// tombstone reports whether a record without a value follows the message: it does if the message is a deletion, or the
// gap event that replaces a rejected deletion and has the key of the object.
func (s *Sink) tombstone(m *event.Message) bool {
	return s.cfg.Tombstones && (m.Type == event.Deleted || m.GapInfo != nil && m.GapInfo.Deletion != nil)
}

// object returns the message that identifies the object of m: for a gap event with a tombstone the rejected deletion,
// because the tombstone must be in the object's own topic, and otherwise m.
func (s *Sink) object(m *event.Message) *event.Message {
	if m.GapInfo != nil && s.tombstone(m) {
		return m.GapInfo.Deletion
	}
	return m
}

// appendTopic appends the name of the message's topic. If the topic of a rejected deletion would have a name that is
// too long, no event of the object was ever written, and the gap event goes to the topic of other gap events.
func (s *Sink) appendTopic(dst []byte, m *event.Message) []byte {
	start := len(dst)
	dst = s.template.Append(dst, s.object(m))
	if len(dst)-start > maxTopicName {
		dst = s.template.Append(dst[:start], m)
	}
	return dst
}

func (t *topic) partitionOf(balancer *kafkago.Murmur2Balancer, key []byte) *partition {
	if t.err != nil || len(t.partitions) == 0 {
		return &t.unroutable
	}
	return t.partitions[balancer.Balance(kafkago.Message{Key: key}, t.ids...)]
}

// endOfRound returns the end of the longest run of messages from start in which each object has only one partition.
func (s *Sink) endOfRound(batch []*event.Message, start int) (end int) {
	if !s.volatile {
		return len(batch)
	}
	seen := make(map[event.Key]*partition)
	for i := start; i < len(batch); i++ {
		key := s.object(batch[i]).Key()
		if p, ok := seen[key]; ok && p != s.routes[i] {
			return i
		}
		seen[key] = s.routes[i]
	}
	return len(batch)
}

// sendRound sends batch[start:end] to the leaders of their partitions, in parallel. It reports whether all were
// written.
func (s *Sink) sendRound(ctx context.Context, batch []*event.Message, results []error, start, end int) bool {
	works := s.split(batch, results, start, end)
	if len(works) == 1 {
		works[0].run(ctx)
	} else {
		var wg sync.WaitGroup
		for _, w := range works {
			wg.Go(func() { w.run(ctx) })
		}
		wg.Wait()
	}
	for _, w := range works {
		for _, t := range w.moved {
			t.stale = true
		}
		if w.exhausted {
			s.producer = -1 // the next Send gets a new one
		}
	}
	return !slices.ContainsFunc(results[start:end], func(err error) bool { return err != nil })
}

// split queues the messages at their partitions, and collects the partitions by leader.
func (s *Sink) split(batch []*event.Message, results []error, start, end int) (works []*work) {
	byLeader := make(map[string]*work)
	for i := start; i < end; i++ {
		p := s.routes[i]
		if len(p.queue) == 0 {
			p.limit = len(batch)
			w := byLeader[p.leader]
			if w == nil {
				w = &work{s: s, leader: p.leader, batch: batch, results: results}
				byLeader[p.leader] = w
				works = append(works, w)
			}
			w.partitions = append(w.partitions, p)
		}
		p.queue = append(p.queue, i)
	}
	return works
}

// work is the messages of one round for one broker.
type work struct {
	s          *Sink
	leader     string
	partitions []*partition // the partitions with a queue; used by one goroutine only
	batch      []*event.Message
	results    []error // of the messages in those queues

	moved     []*topic // topics whose metadata must be read again
	exhausted bool     // a new producer id is needed
}

// slot is a partition's part of a request.
type slot struct {
	p     *partition
	b     *batch
	n     int  // messages
	again bool // the batch was sent before, and perhaps written
}

// run sends requests until nothing is left to send or a request fails.
func (w *work) run(ctx context.Context) {
	if w.leader == "" {
		for _, p := range w.partitions {
			w.fail(p, w.s.unreachable(p))
		}
		return
	}
	for ctx.Err() == nil {
		slots := w.fill()
		if len(slots) == 0 {
			return
		}
		w.request(ctx, slots)
		for _, sl := range slots {
			w.s.batches.Put(sl.b)
		}
	}
	for _, p := range w.partitions {
		w.fail(p, context.Cause(ctx))
	}
}

// fill takes the next batch of each partition, up to the size of a request.
func (w *work) fill() (slots []slot) {
	size := 0
	for _, p := range w.partitions {
		if len(p.queue) == 0 {
			continue
		}
		if size > 0 && size+p.batchBytes > maxRequestBytes {
			break // in the next request
		}
		sl := w.fillSlot(p)
		size += sl.b.size()
		slots = append(slots, sl)
	}
	return slots
}

// fillSlot takes the next batch of a partition. If the last batch was perhaps written, it is sent again unchanged.
func (w *work) fillSlot(p *partition) slot {
	sl := slot{p: p, b: w.s.batches.Get().(*batch)}
	sl.b.reset(time.Now())
	limit, limitBytes := min(len(p.queue), p.limit), p.batchBytes
	if len(p.inDoubt) > 0 {
		if sl.again = w.isSame(p); sl.again {
			limit, limitBytes = len(p.inDoubt), math.MaxInt
		} else {
			w.fence(p)
		}
	}
	for sl.n < limit {
		m := w.batch[p.queue[sl.n]]
		if !sl.b.add(m, w.s.tombstone(m), limitBytes) {
			break
		}
		sl.n++
	}
	return sl
}

// isSame reports whether the partition's queue begins with the messages that were perhaps written.
func (w *work) isSame(p *partition) bool {
	if len(p.queue) < len(p.inDoubt) {
		return false
	}
	for k, id := range p.inDoubt {
		if w.batch[p.queue[k]].ID != id {
			return false
		}
	}
	return true
}
