package kafkalog

import (
	"maps"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

// Config configures a state log in a Kafka topic.
type Config struct {
	wire.Config `yaml:",inline"`
	// The topic. It must have one partition, unlimited retention and `cleanup.policy: delete`, and nothing else may write
	// to it. Every bridge requires a topic of its own, except for replicas of the same bridge.
	Topic string `yaml:"topic" required:"true" example:"deltabridge.state.prod-eu-1"`
	// Creates the topic if it does not exist. If this is not set, the topic must exist.
	CreateTopics *CreateTopics `yaml:"createTopics"`
}

// CreateTopics configures how the topic is created.
type CreateTopics struct {
	// The number of replicas. 0 means the default of the brokers (`default.replication.factor`).
	ReplicationFactor int `yaml:"replicationFactor" default:"0" min:"0" max:"1000" example:"3"`
	// The settings of the topic, with Kafka's names.
	Config map[string]string `yaml:"config" example:"{min.insync.replicas: 2}"`
}

// The settings of Kafka that decide whether Kafka deletes records by itself.
const (
	cleanupPolicy  = "cleanup.policy"
	retentionMs    = "retention.ms"
	retentionBytes = "retention.bytes"
)

// Validate reports errors in the configuration.
func (cfg *Config) Validate(at *strictyaml.Section) {
	cfg.Config.Validate(at)
	wire.ValidateTopic(at, cfg.Topic)
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
