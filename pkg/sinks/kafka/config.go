package kafka

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/compress/snappy"
	"github.com/segmentio/kafka-go/compress/zstd"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

// Defaults of zero values; those of the configuration file are in the tags.
const (
	// DefaultKey names an object of any cluster and resource, so that topics may be shared and compacted. It has the
	// group, for there are resources of one name in several groups: services of the core and of Knative.
	DefaultKey            = "{cluster}/{group}/{resource}/{namespace}/{name}"
	DefaultCompression    = CompressionSnappy
	DefaultRequestTimeout = 15 * time.Second
)

// MetadataMaxAge is how long the sink uses the metadata of a topic before it reads them again, if no request fails.
const MetadataMaxAge = 5 * time.Minute

// Config sends events to topics of a Kafka cluster.
type Config struct {
	// The bootstrap brokers, as `host:port`.
	Brokers []string `yaml:"brokers" required:"true" minItems:"1" pattern:":[0-9]+$" example:"[kafka-0:9092, kafka-1:9092]"`
	// The topic of a message: a template with the same variables as `nats.subject`. Characters that a topic name cannot
	// contain become `-`, the core group is `core`, and an empty value is `_`.
	Topic string `yaml:"topic" default:"\"k8s.{resource}\"" example:"\"k8s.{group}.{resource}\""`
	// The key of a message, which selects the partition: a template with the same variables as `nats.subject`. Values
	// are inserted unchanged. The key must be the same for all events of an object to keep their order, so it cannot
	// contain `{operation}`.
	Key string `yaml:"key" default:"\"{cluster}/{group}/{resource}/{namespace}/{name}\"" example:"\"{uid}\""`
	// The compression of messages.
	Compression Compression `yaml:"compression" default:"snappy" enum:"none gzip snappy lz4 zstd" example:"zstd"`
	// Sends a message without a value after each deletion, so that a compacted topic removes the object and holds the
	// present state. `topic` and `key` together must identify an object: by `{group}`, `{resource}`, `{namespace}` and
	// `{name}`, or by `{uid}`. Topics that the bridge creates are compacted (`cleanup.policy: compact`).
	Tombstones bool `yaml:"tombstones" default:"false" example:"true"`
	// Creates topics that do not exist. If it is not set, the topics must exist.
	CreateTopics *CreateTopics `yaml:"createTopics"`
	// The time limit for a request to a broker, including the connection.
	RequestTimeout time.Duration `yaml:"requestTimeout" default:"15s" min:"100ms" max:"10m" example:"30s"`
	// TLS settings. The bridge opens new connections when a file with certificates, keys or passwords changes.
	TLS access.TLS `yaml:"tls"`
	// Authentication. It is disabled if no key is set.
	SASL SASLConfig `yaml:"sasl"`

	// Prober finds out when a broker is back. Sinks with the same brokers should share it. Nil: the sink's own.
	Prober *reach.Prober
	Logger *slog.Logger // nil: slog.Default()

	letters bool                                                              // the messages are dead letters
	dial    func(ctx context.Context, network, addr string) (net.Conn, error) // nil: reach.Dial; tests set it
}

// CreateTopics is how topics are created.
type CreateTopics = wire.NewTopic

// SASLConfig is how the bridge authenticates to the brokers.
type SASLConfig = wire.SASL

// Compression of record batches.
type Compression string

// The kinds of compression.
const (
	CompressionNone   Compression = "none"
	CompressionGzip   Compression = "gzip"
	CompressionSnappy Compression = "snappy"
	CompressionLZ4    Compression = "lz4"
	CompressionZstd   Compression = "zstd"
)

// codec returns nil for none.
func (c Compression) codec() compress.Codec {
	switch c {
	case CompressionGzip:
		return &compress.GzipCodec
	case "", CompressionSnappy:
		// The library's default level takes twice the time, a third of all that is spent on an event, for a few percent.
		return &snappy.Codec{Compression: snappy.FasterCompression}
	case CompressionLZ4:
		return &compress.Lz4Codec
	case CompressionZstd:
		// Level 1: on JSON within a few percent of the default level's size, for much less time.
		return &zstd.Codec{Level: 1}
	}
	return nil
}

var _ sinks.Config = (*Config)(nil)

// NewSink implements [sinks.Config].
func (cfg *Config) NewSink(prober *reach.Prober, log *slog.Logger) (sinks.Sink, error) {
	c := *cfg
	c.Prober, c.Logger = prober, log
	return New(c)
}

// Letters implements [sinks.Config]: it returns the configuration with the topic of the dead letters.
func (cfg *Config) Letters(_ string, to *sinks.LetterPlace) sinks.Config {
	if to.Topic == "" {
		return nil
	}
	c := *cfg
	c.Topic, c.Tombstones, c.letters = to.Topic, false, true
	if c.CreateTopics != nil { // a compacted topic would forget letters
		c.CreateTopics = &CreateTopics{
			Partitions: 1, ReplicationFactor: c.CreateTopics.ReplicationFactor,
			Config: map[string]string{"max.message.bytes": deadLetterRecord},
		}
	}
	return &c
}

// deadLetterRecord is max.message.bytes of a dead letter topic that the bridge creates: more than the largest change.
const deadLetterRecord = "16777216"

// Client implements [sinks.Config].
func (cfg *Config) Client() sinks.Config { return cfg }

// Place implements [sinks.Config].
func (cfg *Config) Place() (*event.Template, error) {
	return event.ParseTemplate(cfg.Topic, event.EscapeTopic)
}

// KeyTemplate implements [sinks.Config].
func (cfg *Config) KeyTemplate() (*event.Template, error) {
	return event.ParseTemplate(cmp.Or(cfg.Key, DefaultKey), event.EscapeNone)
}

// LastOnly implements [sinks.Config].
func (cfg *Config) LastOnly() bool { return cfg.Tombstones }

// fill sets the defaults of zero values.
func (cfg *Config) fill() {
	cfg.Key = cmp.Or(cfg.Key, DefaultKey)
	cfg.RequestTimeout = cmp.Or(cfg.RequestTimeout, DefaultRequestTimeout)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.dial == nil {
		cfg.dial = reach.Dial
	}
	if cfg.Prober == nil {
		cfg.Prober = &reach.Prober{Dial: cfg.dial}
	}
}
