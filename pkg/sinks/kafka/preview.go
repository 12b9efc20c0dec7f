package kafka

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

var _ diagnose.Previewer = (*Sink)(nil)

// Preview implements [diagnose.Previewer]. The partition of a topic that is not there is told if it would be created with a
// configured number of partitions.
func (s *Sink) Preview(ctx context.Context, m *event.Message, ask bool) (diagnose.Placement, error) {
	p := diagnose.Placement{Topic: string(s.appendTopic(nil, m)), Key: m.PartitionKey}
	if err := s.render(&p, m); err != nil {
		return p, err
	}
	t := newTopic(p.Topic)
	if ask {
		c, err := New(s.cfg) // with connections of its own
		if err != nil {
			return p, err
		}
		defer c.cluster.close()
		missing := c.fetch(ctx, []*topic{t})
		if p.Unknown = t.err; p.Unknown == nil {
			p.Limit, p.Unknown = c.cluster.largest(ctx, p.Topic)
		}
		if len(missing) > 0 && s.cfg.CreateTopics != nil {
			p.Unknown = fmt.Errorf("topic %s is not there yet; it would be created", p.Topic)
			c.learn(t, make([]metadata.ResponsePartition, s.cfg.CreateTopics.Partitions))
		}
	}
	if p.Partitions = len(t.partitions); p.Partitions > 0 {
		p.Partition = int(t.partitionOf(&s.balancer, []byte(m.PartitionKey)).id)
	}
	return p, nil
}

// render encodes the message as Send does, and reads from the result what a reader would get.
func (s *Sink) render(p *diagnose.Placement, m *event.Message) error {
	var b batch
	b.reset(time.Now())
	p.Tombstone = s.tombstone(m)
	b.add(m, p.Tombstone, 0)
	if b.size() > maxRecordBytes {
		return sinks.Permanent(fmt.Errorf("%w: %d bytes", sinks.ErrOversize, b.size()))
	}
	out, err := b.encode(s.codec, producer{id: -1, epoch: -1, sequence: -1})
	if err != nil {
		return err
	}
	p.Size = int64(len(out) - sizePrefix)
	var set protocol.RecordSet
	if _, err := set.ReadFrom(bytes.NewReader(out)); err != nil {
		return fmt.Errorf("read the record back: %w", err)
	}
	record, err := set.Records.ReadRecord()
	if err != nil {
		return fmt.Errorf("read the record back: %w", err)
	}
	for _, h := range record.Headers {
		p.Headers = append(p.Headers, diagnose.Header{Name: h.Key, Value: string(h.Value)})
	}
	return nil
}

// largest asks for the largest batch that the topic takes, in bytes.
func (c *cluster) largest(ctx context.Context, topic string) (int64, error) {
	settings, err := c.topicSettings(ctx, topic)
	if err != nil {
		return 0, fmt.Errorf("the settings of topic %s can't be read: %w", topic, err)
	}
	return strconv.ParseInt(settings["max.message.bytes"], 10, 64)
}
