// Package kafkaaudit reads audit events that are in a Kafka topic already, such as those that a log collector has
// written there. It uses no consumer group: the bridge stores the offsets itself.
package kafkaaudit

import (
	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

// Config configures a topic that has audit events.
type Config struct {
	wire.Config `yaml:",inline"`
	// The topic. The bridge reads all of its partitions, beginning with the oldest record.
	Topic string `yaml:"topic" required:"true" example:"kube-audit"`
}

// Validate reports errors in the configuration.
func (cfg *Config) Validate(at *strictyaml.Section) {
	cfg.Config.Validate(at)
	wire.ValidateTopic(at, cfg.Topic)
}
