package assemble

import (
	"time"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/embedded"
)

func natsKind() kind {
	return kind{
		build: func(d *Destination, s *config.Sink) (err error) {
			d.Sink, err = nats.New(d.natsConfig(s.NATS))
			return err
		},
		letters: natsLetters,
		place: func(s *config.Sink) (*event.Template, error) {
			return event.ParseTemplate(s.NATS.Subject, s.NATS.Escape())
		},
	}
}

// natsLetters makes the sink of a subject for dead letters: that of the events, with another subject and stream.
func natsLetters(d *Destination, s *config.Sink) (sinks.Sink, string, error) {
	cfg := d.natsConfig(s.NATS)
	cfg.LettersOf = s.Name
	cfg.Subject, cfg.Stream.Name, cfg.Stream.Subjects = s.DeadLetter.Subject, s.DeadLetter.Stream, nil
	cfg.Stream.LastPerSubject, cfg.Stream.KeyValue, cfg.Stream.DeletionsKeptFor = false, false, 0 // it is no mirror, whatever the sink's is
	sink, err := nats.New(cfg)
	return sink, "subject " + s.DeadLetter.Subject, err
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
		cfg.Embedded = &embedded.Config{Listen: e.Listen, StoreDir: e.StoreDir, MaxStore: int64(e.MaxStore), SyncAlways: e.SyncAlways}
	}
	return cfg
}
