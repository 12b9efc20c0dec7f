package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/registry"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

var _ diagnose.Previewer = (*Sink)(nil)

// Preview implements [diagnose.Previewer]. If the topic does not exist, Preview returns a partition only if the topic
// would be created with a configured number of partitions.
func (s *Sink) Preview(ctx context.Context, m *event.Message, ask bool) (diagnose.Placement, error) {
	p := diagnose.Placement{Topic: string(s.appendTopic(nil, m)), Key: m.PartitionKey}
	if err := s.render(&p, m); err != nil {
		return p, err
	}
	defer s.client.Close()
	t := s.topic([]byte(p.Topic))
	if ask {
		s.fetch(ctx, []*topic{t})
		if p.Unknown = t.err; t.err == nil {
			settings, err := s.client.TopicSettings(ctx, p.Topic)
			if err != nil {
				p.Unknown = fmt.Errorf("read the settings of topic %s: %w", p.Topic, err)
			}
			p.Limit = max(0, settings.Number("max.message.bytes"))
		}
		if t.isMissing() && s.create != nil {
			p.Unknown = fmt.Errorf("topic %s does not exist yet; the bridge would create it", p.Topic)
			s.learn(t, make([]string, s.create.Partitions))
		}
	}
	if p.Partitions = len(t.partitions); p.Partitions > 0 && t.err == nil {
		p.Partition = new(int(t.partitionOf(&s.balancer, []byte(m.PartitionKey)).id))
	}
	return p, nil
}

// render encodes the message as Send does.
func (s *Sink) render(p *diagnose.Placement, m *event.Message) error {
	var b batch
	b.Reset(time.Now())
	b.writer = s.fences.writer()
	if b.format = s.format; b.format != "" {
		b.schema = registry.ID{}.Encode() // It has the size of any id, except that a GUID has twelve bytes more.
	}
	p.Tombstone = s.tombstone(m)
	b.add(m, p.Tombstone, 0)
	out, err := b.encode(s.codec, producer{id: -1, epoch: -1, sequence: -1})
	if err != nil {
		return err
	}
	p.Size = int64(len(out) - wire.SizePrefix)
	b.headers(m, func(prefix, name, value string) {
		if name != headerSchemaID { // Its value is not known.
			p.Headers = append(p.Headers, diagnose.Header{Name: prefix + name, Value: value})
		}
	})
	return nil
}
