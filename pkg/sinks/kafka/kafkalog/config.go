package kafkalog

import (
	"cmp"
	"log/slog"
	"maps"
	"regexp"
	"time"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

// Config configures a state log in a Kafka topic.
type Config struct {
	// The bootstrap brokers, each as `host:port`.
	Brokers []string `yaml:"brokers" required:"true" minItems:"1" pattern:":[0-9]+$" example:"[kafka-0:9092, kafka-1:9092]"`
	// The topic. It must have one partition, unlimited retention and `cleanup.policy: delete`, and nothing else may write
	// to it. Every bridge requires a topic of its own, except for replicas of the same bridge.
	Topic string `yaml:"topic" required:"true" example:"deltabridge.state.prod-eu-1"`
	// Creates the topic if it does not exist. If this is not set, the topic must exist.
	CreateTopics *CreateTopics `yaml:"createTopics"`
	// The maximum duration of a request to a broker, including opening the connection.
	RequestTimeout time.Duration `yaml:"requestTimeout" default:"15s" min:"100ms" max:"10m" example:"30s"`
	// TLS settings. The bridge opens new connections when a certificate, key or password file changes.
	TLS access.TLS `yaml:"tls"`
	// Authentication. It is disabled if no key is set.
	SASL SASLConfig `yaml:"sasl"`
	// The client id, which brokers use in logs, metrics and quotas. If it is empty, it is `deltabridge`.
	ClientID string `yaml:"clientId" example:"deltabridge"`

	Logger *slog.Logger // If it is nil, slog.Default() is used.
}

// CreateTopics configures how the topic is created.
type CreateTopics struct {
	// The number of replicas. 0 means the default of the brokers (`default.replication.factor`).
	ReplicationFactor int `yaml:"replicationFactor" default:"0" min:"0" max:"1000" example:"3"`
	// The settings of the topic, with Kafka's names.
	Config map[string]string `yaml:"config" example:"{min.insync.replicas: 2}"`
}

// SASLConfig configures how the bridge authenticates to the brokers.
type SASLConfig = wire.SASL

// The settings of Kafka that decide whether Kafka deletes records by itself.
const (
	cleanupPolicy  = "cleanup.policy"
	retentionMs    = "retention.ms"
	retentionBytes = "retention.bytes"
)

// validTopic is not kept compiled, because that needs 0.2 MB.
const validTopic = `^[a-zA-Z0-9._-]{1,249}$`

// Validate reports errors in the configuration.
func (cfg *Config) Validate(at *strictyaml.Section) {
	cfg.wire().Validate(at)
	if !regexp.MustCompile(validTopic).MatchString(cfg.Topic) && at.Fine("topic") {
		at.Report("topic", strictyaml.Quote(cfg.Topic)+" is not a valid topic name", "use letters, digits, '.', '_' and '-'")
	}
}

// fill sets defaults for zero values.
func (cfg *Config) fill() {
	cfg.RequestTimeout = cmp.Or(cfg.RequestTimeout, strictyaml.Default[Config]().RequestTimeout)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
}

// wire returns the connection configuration.
func (cfg *Config) wire() *wire.Config {
	return &wire.Config{
		Brokers: cfg.Brokers, TLS: cfg.TLS, SASL: cfg.SASL, ClientID: cfg.ClientID,
		RequestTimeout: cfg.RequestTimeout, Logger: cfg.Logger,
	}
}

// newTopic returns the settings of a new topic, or nil if the log does not create it.
func (cfg *Config) newTopic() *wire.NewTopic {
	if cfg.CreateTopics == nil {
		return nil
	}
	how := &wire.NewTopic{
		Partitions: 1, ReplicationFactor: cfg.CreateTopics.ReplicationFactor,
		Config: map[string]string{
			cleanupPolicy: "delete", retentionMs: "-1", retentionBytes: "-1",
			"segment.bytes": "67108864", // Kafka frees the disk space of whole segments.
		},
	}
	maps.Copy(how.Config, cfg.CreateTopics.Config)
	return how
}
