package nats

import (
	"cmp"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/embedded"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
)

// Config configures a sink that sends events to NATS JetStream.
type Config struct {
	Servers `yaml:",inline"`
	// A NATS server inside the bridge, used instead of `url`.
	Embedded *embedded.Config `yaml:"embedded"`
	// The stream that the sink sends events to.
	Stream StreamConfig `yaml:"stream"`
	// The name of a key-value bucket that is used instead of a stream. It contains the current state of each object, so
	// you can use `nats kv get`, `ls` and `watch`. `subject` is then the key. Characters that a key cannot contain are
	// replaced with `=` and two hexadecimal digits. The bucket is created with the settings in `stream`, except for
	// `name`, `subjects` and `lastPerSubject`. An existing bucket must have a history of 1.
	Bucket string `yaml:"bucket" pattern:"^[A-Za-z0-9_-]{1,240}$" example:"STATE"`
	// The subject of a message: a template with the variables `{cluster}`, `{group}`, `{version}`, `{resource}`,
	// `{kind}`, `{namespace}`, `{name}`, `{uid}` and `{operation}`. Each variable becomes one token. Dots in a group
	// become `_`, the core group is `core`, and an empty value is `_`. Other characters that a token cannot contain are
	// percent-encoded.
	Subject string `yaml:"subject" default:"\"k8s.{cluster}.{group}.{resource}.{namespace}.{name}\"" example:"\"audit.{operation}.{resource}.{namespace}.{name}\""`
	// The maximum number of messages that wait for an acknowledgement at the same time.
	MaxInFlight int `yaml:"maxInFlight" default:"512" min:"1" max:"65536" example:"2048"`
	// How long the bridge waits for an acknowledgement before it sends the unacknowledged messages again. It may wait up
	// to twice as long.
	AckTimeout time.Duration `yaml:"ackTimeout" default:"10s" min:"100ms" max:"10m" example:"30s"`

	// LettersOf is the name of the sink whose dead letters are sent. It is empty if the messages are not dead letters. The
	// Nats-Msg-Id of a dead letter differs from that of its event, because the stream may already contain another message
	// about the event.
	LettersOf string
	// ControlSink is the configuration of the sink for control events. It is nil if they go to Stream.
	ControlSink *Config
	// OnlyControl reports whether all messages are control events.
	OnlyControl bool
	// Prober detects when a server is available again. Sinks with the same servers should share it. If it is nil, the sink
	// creates a prober.
	Prober *reach.Prober
	Logger *slog.Logger // if nil, slog.Default() is used
}

// Servers configures how to connect to NATS servers.
type Servers = natsconn.Access

// StreamConfig configures the stream that the sink sends events to. The bridge checks an existing stream, but never
// changes it. All keys except `name`, `create` and `lastPerSubject` are used only to create the stream.
type StreamConfig struct {
	// The name of the stream. Two sinks must not use the same stream of the same server, because JetStream would drop
	// events of one sink as duplicates of the other sink's events.
	Name string `yaml:"name" default:"K8S" pattern:"^[^\\s.*>/\\\\]{1,255}$" example:"AUDIT"`
	// Creates the stream if it does not exist.
	Create bool `yaml:"create" default:"false" example:"true"`
	// The subjects of the stream, with the wildcards `*` and `>`. They must include every subject that the template
	// `subject` can produce. If the list is empty, the stream has the subjects that the template can produce.
	Subjects []string `yaml:"subjects" example:"[\"k8s.>\"]"`
	// The number of servers that store a copy.
	Replicas int `yaml:"replicas" default:"1" min:"1" max:"5" example:"3"`
	// The storage type of the stream.
	Storage string `yaml:"storage" default:"file" enum:"file memory" example:"memory"`
	// What happens when the stream is full. `old`: The stream removes the oldest messages, so slow consumers may miss
	// messages. `new`: The stream accepts no more messages, and the bridge waits.
	Discard string `yaml:"discard" default:"old" enum:"old new" example:"new"`
	// The maximum size of the stream. 0 means no limit.
	MaxBytes int64 `yaml:"maxBytes" default:"0" min:"0" example:"50Gi"`
	// The maximum age of a message. 0s means no limit.
	MaxAge time.Duration `yaml:"maxAge" default:"0s" min:"0s" example:"168h"`
	// How long the server remembers message ids to detect duplicates. 0s means two minutes, or `maxAge` if that is
	// shorter.
	DuplicateWindow time.Duration `yaml:"duplicateWindow" default:"0s" min:"0s" example:"10m"`
	// Keeps only the last message of each subject, so the stream contains the current state of each object. The template
	// `subject` must identify an object by `{group}`, `{resource}`, `{namespace}` and `{name}`, or by `{uid}`. An existing
	// stream must have `max_msgs_per_subject` 1.
	LastPerSubject bool `yaml:"lastPerSubject" default:"false" example:"true"`
	// How long a stream with `lastPerSubject` keeps deletions for consumers that are not connected. 0s means forever.
	// Expiry requires nats-server 2.11 or newer.
	DeletionsKeptFor time.Duration `yaml:"deletionsKeptFor" default:"24h" min:"0s" example:"1h"`
}

// PayloadConfig configures a JetStream object store for the data of events that are too large for the destination.
type PayloadConfig struct {
	// The name of the object store. Several sinks can use the same object store.
	Bucket string `yaml:"bucket" required:"true" pattern:"^[A-Za-z0-9_-]{1,200}$" example:"k8s-claims"`
	// Creates the object store if it does not exist. `ttl`, `maxBytes` and `replicas` are used only to create it.
	Create bool `yaml:"create" default:"false" example:"true"`
	// How long data is kept. 0s means forever. Set it to at least the time that consumers may lag behind.
	TTL time.Duration `yaml:"ttl" default:"0s" min:"0s" example:"168h"`
	// The maximum size of the object store. When it is full, the sink waits until there is room. 0 means no limit.
	MaxBytes int64 `yaml:"maxBytes" default:"0" min:"0" example:"10Gi"`
	// The number of servers that store a copy.
	Replicas int `yaml:"replicas" default:"1" min:"1" max:"5" example:"3"`
	// The NATS servers of the object store. It is required for a sink with `kafka`. If it is not set, a sink with
	// `nats` uses its own connection.
	NATS *Servers `yaml:"nats"`
}

var _ sinks.Config = (*Config)(nil)

// NewSink implements [sinks.Config].
func (cfg *Config) NewSink(prober *reach.Prober, log *slog.Logger) (sinks.Sink, error) {
	c := *cfg
	c.Prober, c.Logger = prober, log
	return New(c), nil
}

// Letters implements [sinks.Config]. It returns the configuration of the sink with the subject and stream for dead
// letters.
func (cfg *Config) Letters(sink string, to *sinks.LetterPlace) sinks.Config {
	if to.Subject == "" || to.Stream == "" || cfg.Embedded != nil {
		return nil
	}
	c := *cfg
	c.LettersOf, c.Subject, c.Bucket = sink, to.Subject, ""
	c.Stream.Name, c.Stream.Subjects = to.Stream, nil
	c.Stream.LastPerSubject, c.Stream.DeletionsKeptFor = false, 0 // dead letters are not states
	return &c
}

// Control implements [sinks.Config]. It returns the configuration of the sink with the subject and stream for control
// events.
func (cfg *Config) Control(to *sinks.ControlPlace) sinks.Config {
	if to.Subject == "" || to.Stream == "" {
		return nil
	}
	c := *cfg.Client().(*Config)
	c.ControlSink, c.OnlyControl, c.Subject, c.Bucket = nil, true, to.Subject, ""
	c.Stream.Name, c.Stream.Subjects = to.Stream, nil
	c.Stream.LastPerSubject, c.Stream.DeletionsKeptFor = false, 0 // all control events are kept
	return &c
}

// WithControl implements [sinks.Config].
func (cfg *Config) WithControl(to *sinks.ControlPlace) sinks.Config {
	c := *cfg
	c.ControlSink, _ = cfg.Control(to).(*Config)
	return &c
}

// Client implements [sinks.Config].
func (cfg *Config) Client() sinks.Config {
	c := *cfg
	if c.Embedded != nil {
		host, port, _ := net.SplitHostPort(c.Embedded.Listen) // the address was validated
		c.URLs, c.Embedded = []string{"nats://" + net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port)}, nil
	}
	return &c
}

// Describe implements [sinks.Config].
func (cfg *Config) Describe() string {
	place := "stream " + cfg.Stream.Name
	if cfg.Bucket != "" {
		place = "bucket " + cfg.Bucket
	}
	if cfg.ControlSink != nil {
		place += ", control events to stream " + cfg.ControlSink.Stream.Name
	}
	if cfg.Embedded != nil {
		return "embedded server, " + place
	}
	return strings.Join(cfg.URLs, ",") + ", " + place
}

// Place implements [sinks.Config].
func (cfg *Config) Place() *event.Template {
	template, _ := event.ParseTemplate(cfg.resolved().Subject, cfg.escape()) // the configuration is valid
	return template
}

// KeyTemplate implements [sinks.Config].
func (cfg *Config) KeyTemplate() *event.Template { return nil }

// escape returns the escaping that Subject requires for values.
func (cfg *Config) escape() event.Escape {
	if cfg.Bucket != "" {
		return event.EscapeKey
	}
	return event.EscapeSubject
}

// resolved returns a copy of cfg. If cfg has a bucket, the copy has the settings of the bucket's stream.
func (cfg *Config) resolved() *Config {
	c := *cfg
	if c.Bucket != "" {
		prefix := "$KV." + c.Bucket + "."
		c.Stream.Name, c.Stream.Subjects, c.Stream.LastPerSubject = "KV_"+c.Bucket, []string{prefix + ">"}, true
		c.Subject = prefix + c.Subject
	}
	return &c
}

// complete sets defaults, and the stream and subject of a bucket.
func (cfg *Config) complete() {
	defaults := strictyaml.Default[Config]()
	cfg.MaxInFlight = cmp.Or(cfg.MaxInFlight, defaults.MaxInFlight)
	cfg.AckTimeout = cmp.Or(cfg.AckTimeout, defaults.AckTimeout)
	cfg.Prober = cmp.Or(cfg.Prober, new(reach.Prober))
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	*cfg = *cfg.resolved()
	cfg.Timeout = cfg.AckTimeout
}

// jetstream returns the settings to create the stream with. wildcard matches the subjects of all messages.
func (cfg *Config) jetstream(wildcard string) jetstream.StreamConfig {
	s := &cfg.Stream
	c := jetstream.StreamConfig{
		Name:        s.Name,
		Description: "created by deltabridge",
		Subjects:    s.Subjects,
		Replicas:    max(s.Replicas, 1),
		Storage:     jetstream.FileStorage,
		Discard:     jetstream.DiscardOld,
		MaxBytes:    cmp.Or(s.MaxBytes, -1),
		MaxMsgs:     -1,
		MaxAge:      s.MaxAge,
		Duplicates:  s.DuplicateWindow,
		AllowDirect: true, // any replica can return the last state of an object
	}
	if len(c.Subjects) == 0 {
		c.Subjects = []string{wildcard}
	}
	if s.Storage == "memory" {
		c.Storage = jetstream.MemoryStorage
	}
	if s.Discard == "new" {
		c.Discard = jetstream.DiscardNew
	}
	if c.Duplicates == 0 {
		c.Duplicates = 2 * time.Minute
		if s.MaxAge > 0 { // the server rejects a window that is longer than the maximum age
			c.Duplicates = min(c.Duplicates, s.MaxAge)
		}
	}
	if s.LastPerSubject {
		c.MaxMsgsPerSubject = 1
		c.AllowMsgTTL = s.DeletionsKeptFor > 0
	}
	if cfg.Bucket != "" { // the same settings as for buckets that NATS clients create
		c.Discard, c.AllowRollup, c.DenyDelete = jetstream.DiscardNew, true, true
	}
	return c
}
