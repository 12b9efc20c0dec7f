package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

const (
	// maxRecordBytes is the maximum size of an event that is sent. A broker closes the connection if a request is larger
	// than its socket.request.max.bytes (100 MiB). A drain sends several events only if they are 16 MiB or less.
	maxRecordBytes = 64 << 20
	// maxTopicName is the maximum length of a topic name in bytes. It is Topic.MAX_NAME_LENGTH of Kafka.
	maxTopicName = 249
)

// Send delivers the batch. See [sinks.Sink].
func (s *Sink) Send(ctx context.Context, batch []*event.Message, results []error) {
	switch {
	case sinks.IsProgress(batch):
		s.sendProgress(ctx, batch, results)
	case s.control.template != nil:
		s.sendApart(ctx, batch, results)
	default:
		s.send(ctx, batch, results)
	}
}

func (s *Sink) send(ctx context.Context, batch []*event.Message, results []error) {
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
	s.prepare(ctx)
	batch = s.decidable(ctx, batch, results)
	s.locate(ctx, batch)
	for start := 0; start < len(batch); {
		end := s.endOfRound(batch, start)
		if !s.sendRound(ctx, batch, results, start, end) {
			return // The remaining messages may belong to an object that failed.
		}
		start = end
	}
}

// route sets s.routes to the partition of each message, or to topic.unroutable if the topic's partitions are unknown.
func (s *Sink) route(ctx context.Context, batch []*event.Message) {
	now := time.Now()
	s.rekeyed = false
	var due []*topic
	topics := make([]*topic, len(batch))
	for i, m := range batch {
		s.buf = s.appendTopic(s.buf[:0], m)
		t := s.topic(s.buf)
		t.control = s.control.isApart(m)
		if s.isRekeyed(m) {
			t.undivided, s.rekeyed = true, true
		}
		if (t.stale || now.Sub(t.fetched) >= MetadataMaxAge) && !slices.Contains(due, t) {
			due = append(due, t)
		}
		topics[i] = t
	}
	if len(due) > 0 {
		s.refresh(ctx, due)
	}
	s.nameSchemas(ctx, topics)
	s.routes = s.routes[:0]
	for i, m := range batch {
		s.buf = append(s.buf[:0], m.PartitionKey...)
		s.routes = append(s.routes, topics[i].partitionOf(&s.balancer, s.buf))
	}
}

// isRekeyed reports whether an earlier process has left m on disk with a key of another template. Later events of its
// object can then have another partition.
func (s *Sink) isRekeyed(m *event.Message) bool {
	return m.Origin.Left && !m.Type.IsControl() && s.key.Expand(m) != m.PartitionKey
}

// tombstone reports whether a record without a value must follow the message. This is the case for a deletion, and for
// a gap event that replaces a rejected deletion and has the object's key. If the gap event goes to another topic, bury
// writes the tombstone.
func (s *Sink) tombstone(m *event.Message) bool {
	return s.cfg.Tombstones && !s.control.isApart(m) &&
		(m.Type == event.Deleted || m.GapInfo != nil && m.GapInfo.Deletion != nil)
}

// object returns the message that identifies the object of m. For a gap event with a tombstone this is the rejected
// deletion, because the tombstone must be in the object's topic. For all other messages it is m.
func (s *Sink) object(m *event.Message) *event.Message {
	if m.GapInfo != nil && s.tombstone(m) {
		return m.GapInfo.Deletion
	}
	return m
}

// appendTopic appends the name of the message's topic. For a gap event that replaces a rejected deletion, this is the
// object's topic. If that name is too long, no event of the object was ever written, and the gap event goes to the
// topic of other gap events.
func (s *Sink) appendTopic(dst []byte, m *event.Message) []byte {
	if s.control.isApart(m) {
		return s.control.template.Append(dst, m)
	}
	start := len(dst)
	dst = s.template.Append(dst, s.object(m))
	if len(dst)-start > maxTopicName {
		dst = s.template.Append(dst[:start], m)
	}
	return dst
}

func (t *topic) partitionOf(balancer *kafkago.Murmur2Balancer, key []byte) *partition {
	if t.err != nil || t.unnamed != nil || len(t.partitions) == 0 {
		return &t.unroutable
	}
	return t.partitions[balancer.Balance(kafkago.Message{Key: key}, t.ids...)]
}

// endOfRound returns the end of the longest run of messages from start in which each object has only one partition.
func (s *Sink) endOfRound(batch []*event.Message, start int) (end int) {
	if !s.volatile && !s.rekeyed {
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

// sendRound sends batch[start:end] to the leaders of the partitions, in parallel. It reports whether all messages were
// written, or are stored already.
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
		for _, p := range w.partitions {
			p.topic.stale = p.topic.stale || p.moved
			p.moved = false
			if p.unsettled {
				s.beginFence(p, false)
			}
			if p.id >= 0 && !p.fenced && p.producer.epoch < 0 {
				s.producer = -1 // The next Send requests a new producer id.
			}
		}
	}
	return !slices.ContainsFunc(results[start:end], func(err error) bool {
		return err != nil && !errors.Is(err, sinks.ErrStored)
	})
}

// split adds the messages to the queues of their partitions, and groups the partitions by leader. Partitions that are
// not ready have no leader. Messages that are stored already are left out.
func (s *Sink) split(batch []*event.Message, results []error, start, end int) (works []*work) {
	byLeader := make(map[string]*work)
	for i := start; i < end; i++ {
		p, leader := s.routes[i], ""
		if p.isReady() && len(p.topic.unread) == 0 {
			leader = p.leader
			if s.control.announced[batch[i].ID] || s.fences.resume != nil && s.fences.has(batch[i], p.name) {
				results[i] = sinks.ErrStored
				continue
			}
		}
		if len(p.queue) == 0 {
			w := byLeader[leader]
			if w == nil {
				w = &work{s: s, leader: leader, batch: batch, results: results}
				byLeader[leader] = w
				works = append(works, w)
			}
			w.partitions = append(w.partitions, p)
		}
		p.queue = append(p.queue, i)
	}
	return works
}

// work contains one round's messages for one broker.
type work struct {
	s          *Sink
	leader     string
	partitions []*partition // the partitions with queued messages; only one goroutine uses them
	batch      []*event.Message
	results    []error // the results of the messages in batch
}

// run sends requests until all messages are sent or a request fails.
func (w *work) run(ctx context.Context) {
	if w.leader == "" {
		for _, p := range w.partitions {
			err := fmt.Errorf("%s: %w", p, kafkago.LeaderNotAvailable)
			if p.leader != "" {
				err = p.notReady()
			}
			w.fail(p, cmp.Or(p.topic.err, p.topic.unnamed, w.s.partUnavailable(p, err)))
		}
		return
	}
	for ctx.Err() == nil {
		var filled []*partition
		for _, p := range w.partitions {
			if len(p.queue) > 0 && w.fill(p) {
				filled = append(filled, p)
			}
		}
		if len(filled) == 0 {
			return
		}
		w.request(ctx, filled)
		for _, p := range filled {
			w.s.batches.Put(p.batch)
			p.batch = nil
		}
	}
	for _, p := range w.partitions {
		w.fail(p, context.Cause(ctx))
	}
}

// fill sets the partition's next batch. If the previous batch may have been written, fill repeats it unchanged. If the
// queue no longer begins with its messages, the partition must be settled first: fill then fails the messages and
// returns false, unless the partition can be settled at once.
func (w *work) fill(p *partition) bool {
	limit, limitBytes := len(p.queue), p.batchBytes
	if p.again = len(p.inDoubt) > 0 && w.isSame(p); p.again {
		limit, limitBytes = len(p.inDoubt), math.MaxInt
	} else if len(p.inDoubt) > 0 {
		p.unsettle()
	}
	if p.unsettled {
		w.fail(p, w.s.partUnavailable(p, p.notReady()))
		return false
	}
	p.batch, p.n = w.s.batches.Get().(*batch), 0
	p.batch.Reset(time.Now())
	p.batch.writer, p.batch.bare = w.s.fences.writer(), w.s.control.burying
	p.batch.schema, p.batch.format = p.topic.schema, w.s.format
	for p.n < limit {
		m := w.batch[p.queue[p.n]]
		if !p.batch.add(m, w.s.tombstone(m), limitBytes) {
			break
		}
		p.n++
	}
	return true
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
