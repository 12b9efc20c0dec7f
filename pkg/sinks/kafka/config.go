package kafka

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/compress/snappy"
	"github.com/segmentio/kafka-go/compress/zstd"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/registry"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

// MetadataMaxAge is how long the sink uses a topic's metadata before it reads the metadata again if no request fails.
const MetadataMaxAge = 5 * time.Minute

// Config configures a sink that sends events to topics of a Kafka cluster.
type Config struct {
	// The bootstrap brokers, each as `host:port`.
	Brokers []string `yaml:"brokers" required:"true" minItems:"1" pattern:":[0-9]+$" example:"[kafka-0:9092, kafka-1:9092]"`
	// The topic of a message. It is a template with the same variables as `nats.subject`. Characters that a topic name
	// cannot contain are replaced by `-`, the core group becomes `core`, and an empty value becomes `_`.
	Topic string `yaml:"topic" default:"\"k8s.{resource}\"" example:"\"k8s.{group}.{resource}\""`
	// The key of a message, which selects the partition. It is a template with the same variables as `nats.subject`.
	// Values are inserted unchanged. To preserve the order of an object's events, all of them must have the same key.
	// Therefore the key cannot contain `{operation}`.
	Key string `yaml:"key" default:"\"{cluster}/{group}/{resource}/{namespace}/{name}\"" example:"\"{uid}\""`
	// The compression of messages.
	Compression string `yaml:"compression" default:"snappy" enum:"none gzip snappy lz4 zstd" example:"zstd"`
	// Sends a message without a value after each deletion, so a compacted topic removes the deleted object and contains
	// only the current state. `topic` and `key` together must identify an object: by `{group}`, `{resource}`,
	// `{namespace}` and `{name}`, or by `{uid}`. Topics that the bridge creates are compacted (`cleanup.policy: compact`).
	Tombstones bool `yaml:"tombstones" default:"false" example:"true"`
	// Creates topics that do not exist. If this is not set, the topics must exist.
	CreateTopics *CreateTopics `yaml:"createTopics"`
	// Registers the schema of values in a schema registry, and sends its id in each record: see
	// docs/events.md#schema-registry. If it is not set, values are JSON without a registry, as `content` selects.
	SchemaRegistry *SchemaRegistry `yaml:"schemaRegistry"`
	// The maximum duration of a request to a broker or to the schema registry, including opening the connection.
	RequestTimeout time.Duration `yaml:"requestTimeout" default:"15s" min:"100ms" max:"10m" example:"30s"`
	// TLS settings. The bridge opens new connections when a certificate, key or password file changes.
	TLS access.TLS `yaml:"tls"`
	// Authentication. It is disabled if no key is set.
	SASL SASLConfig `yaml:"sasl"`
	// The client id, which brokers use in logs, metrics and quotas. If it is empty, it is
	// `deltabridge-<cluster>-<name of the sink>`.
	ClientID string `yaml:"clientId" example:"deltabridge"`

	// Prober detects when a broker is available again. Sinks with the same brokers should share it. If it is nil, the sink
	// creates one.
	Prober *reach.Prober
	Logger *slog.Logger // If it is nil, slog.Default() is used.

	control string // the template of the topic of control events; empty if they go to Topic
	role    role   // which messages Topic is for
	// If dial is nil, reach.Dial is used. Tests set dial.
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// role is what a topic is for.
type role string

const (
	events        role = "" // all events, or those about objects if control events have a topic of their own
	deadLetters   role = "dead letters"
	controlEvents role = "control events"
)

// CreateTopics configures how topics are created.
type CreateTopics = wire.NewTopic

// SASLConfig configures how the bridge authenticates to the brokers.
type SASLConfig = wire.SASL

// SchemaRegistry configures the schema registry in which the sink registers the schema of its values.
type SchemaRegistry = registry.Config

// The formats of values with a schema registry.
const (
	FormatAvro = registry.FormatAvro
	FormatJSON = registry.FormatJSON
)

// codecOf returns the codec for a compression type, or nil for none.
func codecOf(compression string) compress.Codec {
	switch compression {
	case "gzip":
		return &compress.GzipCodec
	case "snappy":
		// The default level takes twice the time, a third of the total time for an event, and saves only a few percent.
		return &snappy.Codec{Compression: snappy.FasterCompression}
	case "lz4":
		return &compress.Lz4Codec
	case "zstd":
		// With JSON, level 1 is within a few percent of the default level's size and takes much less time.
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

// Letters implements [sinks.Config]. It returns the configuration for the dead-letter topic.
func (cfg *Config) Letters(_ string, to *sinks.LetterPlace) sinks.Config {
	if to.Topic == "" {
		return nil
	}
	c := *cfg
	c.Topic, c.Tombstones, c.SchemaRegistry, c.control, c.role = to.Topic, false, nil, "", deadLetters
	if c.CreateTopics != nil { // A compacted topic would lose dead letters.
		c.CreateTopics = &CreateTopics{
			Partitions: 1, ReplicationFactor: c.CreateTopics.ReplicationFactor,
			Config: map[string]string{"max.message.bytes": deadLetterRecord},
		}
	}
	return &c
}

// Control implements [sinks.Config]. It returns the configuration for the topic of control events.
func (cfg *Config) Control(to *sinks.ControlPlace) sinks.Config {
	if to.Topic == "" {
		return nil
	}
	c := *cfg
	c.Topic, c.Tombstones, c.role = to.Topic, false, controlEvents
	return &c
}

// WithControl implements [sinks.Config].
func (cfg *Config) WithControl(to *sinks.ControlPlace) sinks.Config {
	c := *cfg
	c.control = to.Topic
	return &c
}

// deadLetterRecord is max.message.bytes of dead-letter topics that the bridge creates. It exceeds the largest change.
const deadLetterRecord = "16777216"

// Client implements [sinks.Config].
func (cfg *Config) Client() sinks.Config { return cfg }

// Describe implements [sinks.Config].
func (cfg *Config) Describe() string {
	text := strings.Join(cfg.Brokers, ",") + ", topic " + cfg.Topic
	if cfg.control != "" {
		text += ", control events to topic " + cfg.control
	}
	return text
}

// Place implements [sinks.Config].
func (cfg *Config) Place() *event.Template {
	template, _ := event.ParseTemplate(cfg.Topic, event.EscapeTopic) // the configuration is valid
	return template
}

// KeyTemplate implements [sinks.Config].
func (cfg *Config) KeyTemplate() *event.Template {
	template, _ := event.ParseTemplate(cfg.Key, event.EscapeNone) // the configuration is valid
	return template
}

// defaults returns the defaults in the struct tags. The default key identifies an object across clusters and resources,
// so topics can be shared and compacted. It includes the group, because several groups can have a resource of the same
// name: both the core group and Knative have services.
func defaults() Config { return strictyaml.Default[Config]() }

// fill sets defaults for zero values.
func (cfg *Config) fill() {
	d := defaults()
	cfg.Key = cmp.Or(cfg.Key, d.Key)
	cfg.Compression = cmp.Or(cfg.Compression, d.Compression)
	cfg.RequestTimeout = cmp.Or(cfg.RequestTimeout, d.RequestTimeout)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
}
