package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

const (
	// fenceWait is how long Send waits for a fence, from its beginning. Until it is done, the events wait.
	fenceWait = time.Second
	// advanceEvery is the interval at which the sink looks for fences that must be renewed.
	advanceEvery = time.Second
	// deniedFor is how long the sink goes without a fence when a permission is missing, until it tries again.
	deniedFor = 5 * time.Minute
)

// prepare makes the partitions of s.routes ready to be written to. It waits for a short time for fences that have just
// begun.
func (s *Sink) prepare(ctx context.Context) {
	var waiting []*partition
	lost := s.fences.arbiter.lost.Load()
	for _, p := range s.routes {
		s.findUnread(p.topic)
		for _, p := range append(p.topic.unread, p) {
			if !s.needsFence(p) && !lost || p.id < 0 || s.goWithoutFence(p) || slices.Contains(waiting, p) {
				continue
			}
			if p.fence == nil || p.fence.renewal {
				s.beginFence(p, false)
			}
			waiting = append(waiting, p)
		}
	}
	for _, p := range waiting {
		select {
		case <-p.fence.done:
		case <-time.After(time.Until(p.fence.began.Add(fenceWait))):
		case <-ctx.Done():
		}
	}
	if len(waiting) > 0 {
		s.fences.advanced = time.Time{}
	}
	s.advance()
	for _, p := range waiting {
		s.goWithoutFence(p)
		s.findUnread(p.topic)
	}
}

// needsFence reports whether the partition must be fenced before it is written to. If it was written to without a
// fence, a batch in doubt must be settled before, because the fence of another producer does not keep it out.
func (s *Sink) needsFence(p *partition) bool {
	settled := len(p.inDoubt) == 0 && (p.producer.epoch == 0 || p.producer.sequence > 0)
	return !p.isReady() || s.fences.resume != nil && !p.fenced && settled
}

// isDenied reports whether the sink does not try to fence the partitions of a topic.
func (s *Sink) isDenied(t *topic) bool {
	now := time.Now()
	return now.Before(s.fences.deniedUntil) || now.Before(t.deniedUntil)
}

// findUnread sets t.unread.
func (s *Sink) findUnread(t *topic) {
	count := len(t.partitions)
	if t.readFor == count {
		return
	}
	t.unread = nil
	for _, p := range t.partitions {
		stored, known := s.fences.earlier[s.partName(p)]
		moved := stored.Partitions != count || stored.Key != s.key.String()
		unread := known && !p.fenced && moved
		inDoubt := p.unsettled || p.fenced && p.fence != nil && !p.fence.renewal
		if (unread || inDoubt) && !s.isDenied(t) {
			t.unread = append(t.unread, p)
		}
	}
	if len(t.unread) == 0 {
		t.readFor = count
	}
}

// decidable returns the messages up to the first whose result depends on partitions that have not been read yet. This
// can be a message with IfFound if the events of an object can be in several partitions.
func (s *Sink) decidable(ctx context.Context, batch []*event.Message, results []error) []*event.Message {
	first := slices.IndexFunc(batch, func(m *event.Message) bool { return m.IfFound })
	if first < 0 || !s.volatile || s.fences.resume == nil || time.Now().Before(s.fences.deniedUntil) {
		return batch
	}
	err := s.fenceAll(ctx)
	for _, t := range s.topics {
		for _, p := range t.partitions {
			if p.fence != nil && !p.fence.renewal && !s.isDenied(t) {
				err = s.unavailable(t, p.notReady())
			}
		}
	}
	if err == nil {
		return batch
	}
	results[first] = err
	return batch[:first]
}

// fenceAll begins to fence all partitions with the position of an earlier process, unless it has done so before.
func (s *Sink) fenceAll(ctx context.Context) error {
	if s.fences.all {
		return nil
	}
	var topics []*topic
	for name := range s.fences.earlier {
		if place, ok := strings.CutPrefix(name, s.client.ClusterID()+"/"); ok {
			name, _, _ := strings.Cut(place, "/")
			if t := s.topic([]byte(name)); !slices.Contains(topics, t) {
				topics = append(topics, t)
			}
		}
	}
	if len(topics) > 0 {
		s.fetch(ctx, topics)
	}
	for _, t := range topics {
		if t.err != nil && !t.isMissing() && !errors.Is(t.err, kafkago.TopicAuthorizationFailed) {
			return t.err
		}
	}
	s.fences.all = true
	for _, t := range topics {
		for _, p := range t.partitions {
			if _, known := s.fences.earlier[s.partName(p)]; known && p.fence == nil && !p.fenced && !s.isDenied(t) {
				s.beginFence(p, false)
			}
		}
	}
	return nil
}

// goWithoutFence makes a partition ready that can't be fenced. It reports whether it did so.
func (s *Sink) goWithoutFence(p *partition) bool {
	if s.fences.resume != nil && !s.isDenied(p.topic) || s.fences.arbiter.lost.Load() {
		return false
	}
	if p.isReady() {
		return true
	}
	p.stopFence()
	switch {
	case p.fenced: // Only a newer epoch of the same producer keeps a batch in doubt out.
		p.fenced, p.unsettled = false, false
		p.unsettle()
	case p.producer.id < 0:
		p.producer = producer{id: s.producer}
	}
	return true
}

// beginFence begins to fence a partition, or to renew its fence.
func (s *Sink) beginFence(p *partition, renewal bool) {
	p.stopFence()
	f := s.newFence(p, renewal)
	ctx, cancel := context.WithCancel(s.fences.ctx)
	f.cancel, p.fence, p.unsettled = cancel, f, false
	s.fences.wg.Go(func() {
		defer cancel()
		f.run(ctx)
	})
}

func (s *Sink) newFence(p *partition, renewal bool) *fence {
	f := &fence{
		sink: s, part: s.partName(p), place: p.name, count: len(p.topic.partitions),
		Partition: wire.Partition{Topic: p.topic.name, ID: p.id, Leader: p.leader},
		txn: wire.Transactions{
			Client: s.client, ID: fmt.Sprintf("%s.%s.%d", s.fences.arbiter.txn.ID, p.topic.name, p.id),
		},
		own: wire.NoProducer(), after: wire.NoProducer(), producer: wire.NoProducer(), next: wire.Latest, renewal: renewal,
		began: time.Now(), done: make(chan struct{}),
	}
	f.asOf = f.began
	stored, known := s.fences.position(f.part)
	switch {
	case p.fenced:
		f.own = wire.Producer{ID: p.producer.id, Epoch: p.producer.epoch}
		f.after, f.asOf, f.next = f.own, time.Time{}, p.next
	case p.next > 0: // it was fenced
		f.next = p.next
	case known:
		f.next = stored.Next
	}
	if renewal {
		f.producer, f.next = f.own, wire.Latest
	}
	return f
}

// advance applies the results of fences that are done, and begins to renew others.
func (s *Sink) advance() {
	now := time.Now()
	if s.fences.resume == nil || now.Sub(s.fences.advanced) < advanceEvery {
		return
	}
	s.fences.advanced = now
	var renewed bool
	for _, t := range s.topics {
		for _, p := range t.partitions {
			switch {
			case p.fence == nil && p.fenced && !p.unsettled && now.Sub(p.fencedAt) > wire.FenceInterval:
				s.beginFence(p, true)
				renewed = true
			case p.fence != nil && p.fence.isDone():
				s.finishFence(p)
			}
		}
	}
	// Errors of the arbiter do not matter: it is asked again, long before the coordinator forgets the id.
	switch arbiter := &s.fences.arbiter; {
	case arbiter.isDue(now):
		s.fences.wg.Go(func() { _ = arbiter.verify(s.fences.ctx, now) })
	case renewed:
		s.fences.wg.Go(func() { _ = arbiter.verify(s.fences.ctx, now.Add(-wire.FenceInterval/2)) })
	}
}

// finishFence applies the result of a fence that is done.
func (s *Sink) finishFence(p *partition) {
	f := p.fence
	switch {
	case f.outcome == nil:
		before := s.fences.earlier[f.part].Producer // 0 if it is not known
		if p.fenced {
			before = p.producer.id
		}
		if before != 0 && before != f.producer.ID {
			s.cfg.Logger.Warn("Kafka has forgotten the producer, partition starts without a fence",
				"topic", f.Topic, "partition", f.ID)
		}
		p.fence, p.fenced, p.fencedAt = nil, true, time.Now()
		switch {
		case !f.renewal:
			p.producer = producer{id: f.producer.ID, epoch: f.producer.Epoch}
			p.next, p.inDoubt, p.end = f.next, nil, -1
		case len(p.inDoubt) == 0 && !p.unsettled: // The next process need not read what others wrote before the marker.
			p.next = max(p.next, f.next)
		}
	case errors.Is(f.outcome, errNoFence):
		s.warnNoFence(f.outcome)
		if f.renewal { // it stays fenced
			p.fence, p.fencedAt = nil, time.Now().Add(deniedFor-wire.FenceInterval)
		} else {
			s.deny(p)
		}
	case f.renewal && errors.Is(f.outcome, errFenced):
		s.beginFence(p, false)
	case errors.Is(f.outcome, errGone): // It is fenced again before the next event is written to it.
		p.fence, p.unsettled = nil, true
	}
}

// deny lets the partition, and others of the topic or of the sink, go without a fence for some time.
func (s *Sink) deny(p *partition) {
	until := time.Now().Add(deniedFor)
	if codeOf(p.fence.outcome) == kafkago.TopicAuthorizationFailed {
		p.topic.deniedUntil = until
	} else {
		s.fences.deniedUntil = until
	}
	s.goWithoutFence(p)
}

// warnNoFence logs why the sink can't use fences, once.
func (s *Sink) warnNoFence(cause error) {
	if s.fences.warned {
		return
	}
	s.fences.warned = true
	if wire.NoTransactions(cause) {
		s.cfg.Logger.Warn("the Kafka cluster does not support transactional ids, events may be written again after a restart",
			"err", cause)
		return
	}
	s.cfg.Logger.Warn("missing Kafka permissions, events may be written again after a restart",
		"required", "Describe and Write on transactional ids that begin with deltabridge., and Read on the topics",
		"err", cause)
}

// stopFence ends the partition's fence, if there is one. Its result is ignored.
func (p *partition) stopFence() {
	if p.fence != nil {
		p.fence.cancel()
		p.fence = nil
	}
}

// notReady explains why nothing can be written to the partition.
func (p *partition) notReady() error {
	switch {
	case p.isReady():
		return fmt.Errorf("partitions were added to topic %s, or key was changed: %w", p.topic.name,
			p.topic.unread[0].notReady())
	case p.fence == nil:
		return fmt.Errorf("%s: a batch was perhaps written, reading it back", p)
	case p.fence.isDone() && errors.Is(p.fence.outcome, errFenced):
		return sinks.Rejected(p.fence.outcome)
	}
	return p.fence.failure()
}
