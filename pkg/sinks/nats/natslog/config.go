package natslog

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
)

// Config configures a log in a JetStream stream.
type Config struct {
	natsconn.Access `yaml:",inline"`
	// The stream that contains the log, and nothing else.
	Stream StreamConfig `yaml:"stream"`

	Logger *slog.Logger // if nil, slog.Default() is used
}

// StreamConfig configures the stream of a log. The bridge checks an existing stream, but never changes it.
type StreamConfig struct {
	// The name of the stream. Its only subject is `deltabridge.state.` and this name. Two installations of the bridge
	// must not use the same stream.
	Name string `yaml:"name" default:"DELTABRIDGE_STATE" pattern:"^[A-Za-z0-9_-]{1,200}$" example:"STATE_PROD"`
	// Creates the stream if it does not exist.
	Create bool `yaml:"create" default:"false" example:"true"`
	// The number of servers that store a copy. It is used only to create the stream.
	Replicas int `yaml:"replicas" default:"1" min:"1" max:"5" example:"3"`
}

// validName matches names that are also valid as a token of a subject. It is not kept compiled, because that needs
// 0.2 MB.
const validName = `^[A-Za-z0-9_-]{1,200}$`

// Validate reports invalid keys.
func (cfg *Config) Validate(at *strictyaml.Section) {
	if len(cfg.URLs) == 0 {
		at.Report("", "has no server", "add url: nats://127.0.0.1:4222")
	}
	cfg.Access.Validate(at)
	if !regexp.MustCompile(validName).MatchString(cfg.Stream.Name) {
		problem := strictyaml.Quote(cfg.Stream.Name) + " is not a valid name"
		at.Report("stream.name", problem, "use letters, digits, - and _")
	}
}

// subject returns the subject of the records.
func (s *StreamConfig) subject() string { return "deltabridge.state." + s.Name }

// jetstream returns the settings to create the stream with.
func (s *StreamConfig) jetstream() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        s.Name,
		Description: "created by deltabridge",
		Subjects:    []string{s.subject()},
		Retention:   jetstream.LimitsPolicy,
		Storage:     jetstream.FileStorage,
		Discard:     jetstream.DiscardNew, // should limits be added later
		Replicas:    max(s.Replicas, 1),
		MaxMsgs:     -1,
		MaxBytes:    -1,
		Duplicates:  100 * time.Millisecond, // the shortest; records have no Nats-Msg-Id
		AllowDirect: true,
	}
}

// unfit returns an error if the stream would lose records, contain other messages, or keep removed records.
func (l *Log) unfit(c *jetstream.StreamConfig) error {
	if err := l.stream.Unfit(c); err != nil {
		return err
	}
	var err error
	switch {
	case !slices.Equal(c.Subjects, l.stream.Config.Subjects):
		err = fmt.Errorf("its subjects are %q: use %q", c.Subjects, l.stream.Config.Subjects)
	case len(c.Sources) > 0:
		err = errors.New("it has sources, whose messages are not part of the log: use another stream")
	case c.Retention != jetstream.LimitsPolicy:
		err = fmt.Errorf("its retention is %v, so consumers remove its messages: use retention: limits", c.Retention)
	case c.Storage != jetstream.FileStorage:
		err = errors.New("its storage is memory, which a restart of the servers clears: use storage: file")
	case c.PersistMode == jetstream.AsyncPersistMode:
		err = errors.New("it acknowledges messages before it has stored them: use persist_mode: default")
	case c.MaxAge > 0:
		err = fmt.Errorf("it removes messages after %v: set max_age to 0", c.MaxAge)
	case c.MaxMsgsPerSubject > 0:
		err = errors.New("it removes the oldest messages of a subject: remove max_msgs_per_subject")
	case c.Discard != jetstream.DiscardNew && (c.MaxBytes > 0 || c.MaxMsgs > 0):
		err = fmt.Errorf("when full (max_bytes %d, max_msgs %d), it removes its oldest messages: use discard: new, "+
			"or remove the limits", c.MaxBytes, c.MaxMsgs)
	case c.DenyPurge:
		err = errors.New("it can't be purged, so the log would only grow: turn deny_purge off")
	default:
		return nil
	}
	return &sinks.ConnectError{
		Step: sinks.StepStream, Key: "nats.stream", Err: fmt.Errorf("stream %s: %w", c.Name, err), Rejected: true,
	}
}
