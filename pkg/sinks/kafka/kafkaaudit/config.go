// Package kafkaaudit reads audit events that are in a Kafka topic already, such as those that a log collector has
// written there. It uses no consumer group: the bridge stores the offsets itself.
package kafkaaudit

import (
	"cmp"
	"log/slog"
	"regexp"
	"time"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

// Config configures a topic that has audit events.
type Config struct {
	// The bootstrap brokers, each as `host:port`.
	Brokers []string `yaml:"brokers" required:"true" minItems:"1" pattern:":[0-9]+$" example:"[kafka-0:9092, kafka-1:9092]"`
	// The topic. The bridge reads all of its partitions, beginning with the oldest record.
	Topic string `yaml:"topic" required:"true" example:"kube-audit"`
	// The maximum duration of a request to a broker, including opening the connection.
	RequestTimeout time.Duration `yaml:"requestTimeout" default:"15s" min:"100ms" max:"10m" example:"30s"`
	// TLS settings. The bridge opens new connections when a certificate, key or password file changes.
	TLS access.TLS `yaml:"tls"`
	// Authentication. It is disabled if no key is set.
	SASL SASLConfig `yaml:"sasl"`
	// The client id, which brokers use in logs, metrics and quotas. If it is empty, it is `deltabridge-<cluster>-audit`.
	ClientID string `yaml:"clientId" example:"deltabridge"`

	Logger *slog.Logger // If it is nil, slog.Default() is used.
}

// SASLConfig configures how the bridge authenticates to the brokers.
type SASLConfig = wire.SASL

// validTopic is not kept compiled, because that needs 0.2 MB.
const validTopic = `^[a-zA-Z0-9._-]{1,249}$`

// Validate reports errors in the configuration.
func (cfg *Config) Validate(at *strictyaml.Section) {
	cfg.wire().Validate(at)
	if !regexp.MustCompile(validTopic).MatchString(cfg.Topic) && at.Fine("topic") {
		at.Report("topic", strictyaml.Quote(cfg.Topic)+" is not a valid topic name", "use letters, digits, '.', '_' and '-'")
	}
}

// wire returns the connection configuration.
func (cfg *Config) wire() *wire.Config {
	return &wire.Config{
		Brokers: cfg.Brokers, TLS: cfg.TLS, SASL: cfg.SASL, ClientID: cfg.ClientID,
		RequestTimeout: cmp.Or(cfg.RequestTimeout, strictyaml.Default[Config]().RequestTimeout),
		Logger:         cmp.Or(cfg.Logger, slog.Default()),
	}
}
