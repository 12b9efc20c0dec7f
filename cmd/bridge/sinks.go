package main

import (
	"fmt"
	"os"
	"time"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/stdout"
)

// buildSink makes the pipeline's sink, and what of it the encoder and the printer need to know.
func (p *pipeline) buildSink(s *config.Sink) (err error) {
	switch {
	case s.NATS != nil:
		p.sink, err = nats.New(p.natsConfig(s.NATS))
		if err == nil {
			p.destination, err = event.ParseTemplate(s.NATS.Subject, s.NATS.Escape())
		}
	case s.Kafka != nil:
		cfg := p.kafkaConfig(s.Kafka)
		p.sink, err = kafka.New(cfg)
		if err == nil {
			p.encoder.PartitionKey, err = cfg.KeyTemplate()
		}
		if err == nil {
			p.destination, err = event.ParseTemplate(s.Kafka.Topic, event.EscapeTopic)
		}
	case s.Stdout != nil:
		p.sink = stdout.New(os.Stdout)
	default: // the configuration was checked
		err = fmt.Errorf("no destination")
	}
	return err
}

func (p *pipeline) natsConfig(c *config.NATS) nats.Config {
	cfg := nats.Config{
		URLs:    c.Servers(),
		Subject: c.Subject, MaxInFlight: c.MaxInFlight, AckTimeout: time.Duration(c.AckTimeout), Prober: p.prober, Logger: p.log,
		Stream: nats.StreamConfig{
			Name: c.Stream.Name, Create: c.Stream.Create, Subjects: c.Stream.Subjects, Replicas: c.Stream.Replicas,
			Storage: nats.Storage(c.Stream.Storage), Discard: nats.Discard(c.Stream.Discard),
			MaxBytes: int64(c.Stream.MaxBytes), MaxMsgs: int64(c.Stream.MaxMsgs),
			MaxAge: time.Duration(c.Stream.MaxAge), DuplicateWindow: time.Duration(c.Stream.DuplicateWindow),
			LastPerSubject: c.Stream.LastPerSubject, KeyValue: c.Bucket != "", DeletionsKeptFor: time.Duration(c.Stream.DeletionsKeptFor),
		},
		Auth: nats.AuthConfig{
			CredentialsFile: string(c.CredentialsFile), NkeyFile: string(c.NkeyFile), TokenFile: string(c.TokenFile),
			User: c.User, PasswordFile: string(c.PasswordFile),
		},
		TLS: nats.TLSConfig{
			CAFile: string(c.TLS.CAFile), CertFile: string(c.TLS.CertFile), KeyFile: string(c.TLS.KeyFile), ServerName: c.TLS.ServerName,
		},
	}
	if e := c.Embedded; e != nil {
		cfg.Embedded = &nats.EmbeddedConfig{Listen: e.Listen, StoreDir: e.StoreDir, MaxStore: int64(e.MaxStore), SyncAlways: e.SyncAlways}
	}
	return cfg
}

func (p *pipeline) kafkaConfig(c *config.Kafka) kafka.Config {
	cfg := kafka.Config{
		Brokers: c.Brokers, Topic: c.Topic, Key: c.Key, Compression: kafka.Compression(c.Compression),
		Tombstones: c.Tombstones, RequestTimeout: time.Duration(c.RequestTimeout), Prober: p.prober, Logger: p.log,
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
