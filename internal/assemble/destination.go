package assemble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"time"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/stdout"
)

// Destination is where a configured sink writes to.
type Destination struct {
	sinks.Sink

	// Key is that of messages; nil if they have none.
	Key *event.Template
	// Closers close connections besides that of Sink, and before it.
	Closers []func(context.Context) error

	prober *reach.Prober
	log    *slog.Logger
}

// NewDestination makes the destination of a sink. It does no I/O but reads the sink's files. With a prober all that wait for a server
// share it; nil: each connection has its own.
func NewDestination(s *config.Sink, prober *reach.Prober, log *slog.Logger) (*Destination, error) {
	d := &Destination{prober: prober, log: log}
	var err error
	switch {
	case s.NATS != nil:
		d.Sink, err = nats.New(d.natsConfig(s.NATS))
	case s.Kafka != nil:
		cfg := d.kafkaConfig(s.Kafka)
		d.Sink, err = kafka.New(cfg)
		if err == nil {
			d.Key, err = cfg.KeyTemplate()
		}
	case s.Stdout != nil:
		d.Sink = stdout.New(os.Stdout)
	default: // the configuration was checked
		err = errors.New("no destination")
	}
	if err != nil {
		return nil, fmt.Errorf("sink %s: %w", s.Name, err)
	}
	return d, nil
}

// NewClient makes the destination of a sink as a command uses it: an embedded server is inside of the bridge that runs.
func NewClient(s *config.Sink) (*Destination, error) {
	client := *s
	if n := s.NATS; n != nil && n.Embedded != nil {
		nats := *n
		nats.URL, nats.Embedded = (&url.URL{Scheme: "nats", Host: n.Embedded.Listen}).String(), nil
		client.NATS = &nats
	}
	return NewDestination(&client, nil, slog.New(slog.DiscardHandler))
}

// Close closes all connections.
func (d *Destination) Close(ctx context.Context) error {
	var errs []error
	for _, closer := range append(d.Closers, d.Sink.Close) { // claims may use the connection of the sink
		errs = append(errs, closer(ctx))
	}
	return errors.Join(errs...)
}

func (d *Destination) natsConfig(c *config.NATS) nats.Config {
	cfg := nats.Config{
		URLs:    c.Servers(),
		Subject: c.Subject, MaxInFlight: c.MaxInFlight, AckTimeout: time.Duration(c.AckTimeout), Prober: d.prober, Logger: d.log,
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
