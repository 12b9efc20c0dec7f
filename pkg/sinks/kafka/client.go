package kafka

import (
	"context"
	"fmt"
	"maps"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/kafkacheck"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/kafkaread"
)

// The methods in this file implement checks and reading. They use the packages kafkacheck and kafkaread.

var (
	_ diagnose.Checker    = (*Sink)(nil)
	_ diagnose.Reader     = (*Sink)(nil)
	_ sinks.Identified    = (*Sink)(nil)
	_ diagnose.NameReader = (*Sink)(nil)
)

const cleanupPolicy = "cleanup.policy" // the topic setting of Kafka

// wire returns the connection configuration.
func (cfg *Config) wire() *wire.Config {
	return &wire.Config{
		Brokers: cfg.Brokers, TLS: cfg.TLS, SASL: cfg.SASL, RequestTimeout: cfg.RequestTimeout,
		Prober: cfg.Prober, Logger: cfg.Logger, Dial: cfg.dial,
	}
}

// newTopics returns the settings for missing topics, or nil if the sink does not create topics.
func (cfg *Config) newTopics() *wire.NewTopic {
	if cfg.CreateTopics == nil {
		return nil
	}
	how := *cfg.CreateTopics
	how.Config = make(map[string]string)
	if cfg.Tombstones {
		how.Config[cleanupPolicy] = "compact" // Kafka keeps the last record of each key.
	}
	maps.Copy(how.Config, cfg.CreateTopics.Config)
	return &how
}

// beside returns a sink with the same configuration and separate connections, so both sinks can be used concurrently.
func (s *Sink) beside() *Sink {
	o := &Sink{cfg: s.cfg, template: s.template, volatile: s.volatile, single: s.single, parts: s.parts}
	o.topics, o.client = make(map[string]*topic), wire.New(s.cfg.wire())
	return o
}

// Check implements [diagnose.Checker].
func (s *Sink) Check(ctx context.Context) []diagnose.Finding {
	o := s.beside()
	defer o.client.Close()
	check := kafkacheck.Check{
		Client: o.client, Config: s.cfg.wire(), Topic: s.template, Create: s.create, Tombstones: s.cfg.Tombstones,
	}
	findings := check.Run(ctx)
	if id := o.client.ClusterID; id != "" {
		s.client.ClusterID = id
	}
	return findings
}

// Read implements [diagnose.Reader].
func (s *Sink) Read(ctx context.Context, o diagnose.ReadOptions, handle func(*diagnose.Record) error) error {
	return kafkaread.Read(ctx, s.client, s.template, o, handle)
}

// Destination implements [sinks.Identified]. It returns the id of the Kafka cluster and the topic template.
func (s *Sink) Destination() string {
	if s.client.ClusterID == "" {
		return ""
	}
	return fmt.Sprintf("topic %s of the Kafka cluster %s", s.template, s.client.ClusterID)
}

func (s *Sink) register() *kafkaread.Register {
	r := &kafkaread.Register{Client: s.client, Template: s.template.String()}
	if s.create != nil {
		r.ReplicationFactor = s.create.ReplicationFactor
	}
	return r
}

// Registered implements [sinks.Identified].
func (s *Sink) Registered(ctx context.Context, cluster string) (sinks.Registration, error) {
	return s.register().Lookup(ctx, cluster)
}

// Register implements [sinks.Identified].
func (s *Sink) Register(ctx context.Context, owner sinks.Owner, replaced string) error {
	return s.register().Add(ctx, owner, replaced)
}

// ReadName implements [diagnose.NameReader].
func (s *Sink) ReadName(ctx context.Context, cluster string) (sinks.Registration, error) {
	o := s.beside()
	defer o.client.Close()
	return o.Registered(ctx, cluster)
}
