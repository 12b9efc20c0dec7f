package assemble

import (
	"time"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka"
)

// deadLetterRecord is the largest record of a topic for dead letters that the bridge creates, in bytes, as Kafka's settings
// have it: more than the largest change.
const deadLetterRecord = "16777216"

func kafkaKind() kind {
	return kind{
		build: func(d *Destination, s *config.Sink) (err error) {
			cfg := d.kafkaConfig(s.Kafka)
			if d.Sink, err = kafka.New(cfg); err != nil {
				return err
			}
			d.Key, err = cfg.KeyTemplate()
			return err
		},
		letters: kafkaLetters,
		place: func(s *config.Sink) (*event.Template, error) {
			return event.ParseTemplate(s.Kafka.Topic, event.EscapeTopic)
		},
	}
}

// kafkaLetters makes the sink of a topic for dead letters: that of the events, with another topic.
func kafkaLetters(d *Destination, s *config.Sink) (sinks.Sink, string, error) {
	cfg := d.kafkaConfig(s.Kafka)
	cfg.Topic, cfg.Tombstones = s.DeadLetter.Topic, false
	if cfg.CreateTopics != nil { // a compacted topic would forget letters
		cfg.CreateTopics = &kafka.CreateTopics{
			Partitions: 1, ReplicationFactor: cfg.CreateTopics.ReplicationFactor,
			Config: map[string]string{"max.message.bytes": deadLetterRecord},
		}
	}
	sink, err := kafka.New(cfg)
	return sink, "topic " + s.DeadLetter.Topic, err
}

func (d *Destination) kafkaConfig(c *config.Kafka) kafka.Config {
	cfg := kafka.Config{
		Brokers: c.Brokers, Topic: c.Topic, Key: c.Key, Compression: kafka.Compression(c.Compression),
		Tombstones: c.Tombstones, RequestTimeout: time.Duration(c.RequestTimeout), Prober: d.prober, Logger: d.log,
		TLS: kafka.TLSConfig{
			Enabled: c.TLS.Enabled, CAFile: string(c.TLS.CAFile), CertFile: string(c.TLS.CertFile),
			KeyFile: string(c.TLS.KeyFile), ServerName: c.TLS.ServerName,
		},
		SASL: kafka.SASLConfig{Mechanism: c.SASL.Mechanism, Username: c.SASL.Username, PasswordFile: string(c.SASL.PasswordFile), Region: c.SASL.Region},
	}
	if t := c.CreateTopics; t != nil {
		cfg.CreateTopics = &kafka.CreateTopics{Partitions: t.Partitions, ReplicationFactor: t.ReplicationFactor, Config: t.Config}
	}
	return cfg
}
