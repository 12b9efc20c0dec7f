package kafka

import (
	"context"
	"errors"
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
	_ diagnose.Checker = (*Sink)(nil)
	_ diagnose.Reader  = (*Sink)(nil)
	_ sinks.Identified = (*Sink)(nil)
)

const cleanupPolicy = "cleanup.policy" // the topic setting of Kafka

// wire returns the connection configuration.
func (cfg *Config) wire() *wire.Config {
	return &wire.Config{
		Brokers: cfg.Brokers, TLS: cfg.TLS, SASL: cfg.SASL, ClientID: cfg.ClientID,
		RequestTimeout: cfg.RequestTimeout, Prober: cfg.Prober, Logger: cfg.Logger, Dial: cfg.dial,
	}
}

// checkFiles returns an error if a certificate, key or password file is unreadable or invalid.
func (cfg *Config) checkFiles() error {
	err := cfg.wire().CheckFiles()
	if cfg.SchemaRegistry != nil {
		err = errors.Join(err, cfg.SchemaRegistry.CheckFiles())
	}
	return err
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

// Check implements [diagnose.Checker].
func (s *Sink) Check(ctx context.Context) []diagnose.Finding {
	defer s.client.Close()
	check := kafkacheck.Check{
		Client: s.client, Topic: s.template, Create: s.create, Tombstones: s.cfg.Tombstones,
		Letters: s.cfg.role == deadLetters, Control: s.control.template, CreateControl: s.control.create,
		Registry: s.registry,
	}
	return check.Run(ctx)
}

// Read implements [diagnose.Reader].
func (s *Sink) Read(ctx context.Context, o diagnose.ReadOptions, handle func(*diagnose.Record) error) error {
	templates := []string{s.template.String()}
	if s.control.template != nil {
		templates = append(templates, s.control.template.String())
	}
	return kafkaread.Read(ctx, s.client, templates, o, handle)
}

// Destination implements [sinks.Identified]. It returns the id of the Kafka cluster and the topic template.
func (s *Sink) Destination() string {
	if s.client.ClusterID() == "" {
		return ""
	}
	return fmt.Sprintf("topic %s of the Kafka cluster %s", s.template, s.client.ClusterID())
}
