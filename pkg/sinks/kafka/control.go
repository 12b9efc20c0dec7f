package kafka

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

// positionTimeout is the time limit for finding out the position of a gap. Without it, the gap event is sent without
// the missing offsets.
const positionTimeout = 5 * time.Second

// control is the state of a sink whose control events go to a topic of their own.
type control struct {
	template *event.Template // the topic; nil if control events go to the topics of the objects
	create   *wire.NewTopic  // If it is nil, a missing topic is not created.
	located  bool            // reports whether all objects of a resource go to one topic
	// announced contains the ids of gap events that are written, but whose tombstones are not.
	announced map[string]bool
	burying   bool // reports whether Send writes tombstones only
}

func newControl(cfg *Config, objects *event.Template) (c control) {
	if cfg.control == "" {
		return c
	}
	c.template, _ = event.ParseTemplate(cfg.control, event.EscapeTopic) // the configuration is valid
	c.located = located(objects)
	c.announced = make(map[string]bool)
	if cfg.CreateTopics != nil {
		how := cfg.newTopics() // a copy
		how.Partitions = 1
		delete(how.Config, cleanupPolicy) // A compacted topic would keep only the last gap event of a resource.
		c.create = how
	}
	return c
}

// located reports whether all objects of a resource go to one topic.
func located(topic *event.Template) bool {
	return !slices.ContainsFunc([]string{"namespace", "name", "uid", "kind", "version", "operation"}, topic.Uses)
}

// isApart reports whether m goes to the topic of control events.
func (c *control) isApart(m *event.Message) bool { return c.template != nil && m.Type.IsControl() }

// sendApart is send for a sink whose control events go to a topic of their own.
func (s *Sink) sendApart(ctx context.Context, batch []*event.Message, results []error) {
	if !slices.ContainsFunc(batch, func(m *event.Message) bool { return m.GapInfo != nil }) {
		s.send(ctx, batch, results)
		return
	}
	batch = slices.Clone(batch)
	for i, m := range batch {
		if m.GapInfo != nil {
			batch[i] = event.Apart(m, nil)
		}
	}
	s.send(ctx, batch, results)
	s.bury(ctx, batch, results)
}

// locate adds to each gap event that can be written now its position in the topic of the objects.
func (s *Sink) locate(ctx context.Context, batch []*event.Message) {
	if !s.control.located || s.control.burying {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	for i, m := range batch {
		if m.GapInfo != nil && s.routes[i].isReady() {
			position, _ := s.position(ctx, m)
			batch[i] = event.Apart(m, position)
		}
	}
}

// position returns the ends of the partitions that objects of the resource of m are written to. All earlier events of
// the sink are before them. It returns nil if the topic is not known. all reports whether it contains all partitions.
func (s *Sink) position(ctx context.Context, m *event.Message) (position *event.Position, all bool) {
	t := s.topic(s.template.Append(nil, m))
	if t.stale || time.Since(t.fetched) >= MetadataMaxAge {
		s.fetch(ctx, []*topic{t})
	}
	if t.err != nil || len(t.partitions) == 0 {
		return nil, false
	}
	position = &event.Position{Topic: t.name, Offsets: make(map[int]int64)}
	for _, p := range t.partitions {
		if p.end < 0 {
			at := wire.Partition{Topic: t.name, ID: p.id, Leader: p.leader}
			if end, err := at.Offset(ctx, s.client, wire.Latest); err == nil {
				p.end = end
			}
		}
		if p.end >= 0 {
			position.Offsets[int(p.id)] = p.end
		}
	}
	return position, len(position.Offsets) == len(t.partitions)
}

// bury writes the tombstones of the rejected deletions that gap events in the batch replace, if the gap events are
// written. They cannot be in one batch, because they are in different topics. If the process is killed in between, the
// next one finds the gap event and writes the tombstone.
func (s *Sink) bury(ctx context.Context, batch []*event.Message, results []error) {
	var deletions []*event.Message
	var at []int
	for i, m := range batch {
		written := results[i] == nil || errors.Is(results[i], sinks.ErrStored)
		if !written || m.GapInfo == nil || m.GapInfo.Deletion == nil || !s.cfg.Tombstones {
			continue
		}
		// If the name of the topic is too long, no event of the object was ever written.
		if deletion := m.GapInfo.Deletion; len(s.template.Append(nil, deletion)) <= maxTopicName {
			deletions, at = append(deletions, deletion), append(at, i)
		}
	}
	if len(deletions) == 0 {
		return
	}
	outcome := make([]error, len(deletions))
	s.control.burying = true
	s.send(ctx, deletions, outcome)
	s.control.burying = false
	for k, i := range at {
		id := batch[i].ID
		if err := outcome[k]; err == nil || errors.Is(err, sinks.ErrStored) {
			delete(s.control.announced, id)
		} else {
			s.control.announced[id] = true
			results[i] = err
		}
	}
}
