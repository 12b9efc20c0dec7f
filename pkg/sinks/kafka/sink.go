package kafka

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/registry"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/kafkaread"
)

// Sink implements [sinks.Resumer]. It delivers events to Kafka. See the package comment.
type Sink struct {
	kafkaread.Names

	cfg      Config
	template *event.Template // of topics
	key      *event.Template // of message.PartitionKey
	volatile bool            // reports whether an object's events may go to several partitions
	single   bool            // reports whether all objects go to one topic
	parts    bool            // reports whether all events of an object go to one topic
	codec    compress.Codec
	client   *wire.Client
	create   *wire.NewTopic // If it is nil, missing topics are not created.
	control  control
	registry *registry.Client // nil if values have no schema
	format   registry.Format  // of values; empty if they have no schema
	pinged   bool             // reports whether the registry has answered

	topics   map[string]*topic
	producer int64 // the id of the producer for partitions that are not fenced, or -1 if the sink has none
	fences   fences

	balancer kafkago.Murmur2Balancer
	batches  sync.Pool // a pool of *batch

	// Every Send reuses these buffers.
	buf     []byte
	routes  []*partition
	rekeyed bool // reports whether isRekeyed is true of one of the messages
}

var _ sinks.Resumer = (*Sink)(nil)

// New returns a sink that is not connected. The configuration must be valid. New returns an error if a file that it
// names exists but cannot be used.
func New(cfg Config) (*Sink, error) {
	cfg.fill()
	// Connections read the files again, and report a file that is missing.
	if err := cfg.checkFiles(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	template, key := cfg.Place(), cfg.KeyTemplate()
	s := &Sink{
		cfg: cfg, template: template, key: key, codec: codecOf(cfg.Compression), producer: -1, create: cfg.newTopics(),
		topics:   make(map[string]*topic),
		balancer: kafkago.Murmur2Balancer{Consistent: true}, // Messages with an empty key also go to a single partition.
		batches:  sync.Pool{New: func() any { return new(batch) }},
	}
	for _, variable := range []string{"version", "kind", "uid", "operation"} {
		s.volatile = s.volatile || template.Uses(variable) || key.Uses(variable)
	}
	s.single = template.Wildcard() == template.String()
	s.parts = !template.Uses("version") && !template.Uses("uid") && !template.Uses("operation")
	s.fences.open()
	s.control = newControl(&s.cfg, template)
	if r := cfg.SchemaRegistry; r != nil {
		s.registry, s.format = &registry.Client{Config: *r, Timeout: cfg.RequestTimeout}, r.Format
	}
	s.client = wire.New(s.cfg.wire())
	s.Names = kafkaread.Names{Client: s.client, Template: template.String()}
	if s.create != nil {
		s.ReplicationFactor = s.create.ReplicationFactor
	}
	return s, nil
}

// Connect returns nil when a broker has answered and has authenticated the sink. If all objects go to one topic, this
// topic must also exist. The schema registry, if there is one, must have answered once.
func (s *Sink) Connect(ctx context.Context) error {
	if _, err := s.client.Topics(ctx); err != nil {
		return err
	}
	if s.single {
		t := s.topic([]byte(s.template.String()))
		t.stale = true
		if s.refresh(ctx, []*topic{t}); t.err != nil {
			return t.err
		}
		if s.nameSchemas(ctx, []*topic{t}); t.unnamed != nil {
			return t.unnamed
		}
	}
	if err := s.ensureProducer(ctx); err != nil {
		return err
	}
	if err := s.pingRegistry(ctx); err != nil {
		return err
	}
	s.advance()
	return nil
}

// ensureProducer requests a producer id if the sink has none.
func (s *Sink) ensureProducer(ctx context.Context) error {
	if s.producer >= 0 {
		return nil
	}
	id, err := s.client.ProducerID(ctx)
	if err != nil {
		return fmt.Errorf("get a producer id: %w", err)
	}
	s.producer = id
	for _, t := range s.topics {
		for _, p := range t.partitions {
			if !p.fenced {
				p.producer, p.inDoubt = producer{id: -1}, nil
			}
		}
	}
	return nil
}

// topic returns the topic with this name. It adds the topic if it is new.
func (s *Sink) topic(name []byte) *topic {
	t := s.topics[string(name)]
	if t == nil {
		t = newTopic(string(name))
		s.topics[t.name] = t
	}
	return t
}

// Part implements [sinks.Sink]. It returns the topic, followed by a slash and the partition if the partition is known,
// and is that of all parked events of the object. It returns "" if the events of one object can go to several topics.
// Otherwise events that are parked for one topic would arrive after newer events in another topic.
func (s *Sink) Part(m *event.Message) string {
	if !s.parts {
		return ""
	}
	s.buf = s.appendTopic(s.buf[:0], m)
	t := s.topics[string(s.buf)]
	if s.isRekeyed(m) {
		t = s.topic(s.buf)
		t.undivided = true
	}
	if t == nil || len(t.ids) == 0 || s.volatile || t.undivided {
		return string(s.buf)
	}
	s.buf = append(s.buf[:0], m.PartitionKey...)
	return t.partitions[s.balancer.Balance(kafkago.Message{Key: s.buf}, t.ids...)].name
}

// Close closes the connections.
func (s *Sink) Close(context.Context) error {
	s.fences.close()
	s.client.Close()
	return nil
}
