package sinks

import (
	"log/slog"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/reach"
)

// Config is the configuration of a destination of one kind. It is an object in the configuration file; the tags of its
// fields describe the keys and their valid values ([strictyaml]). All methods except Validate require a valid
// configuration.
type Config interface {
	// Validate reports mistakes that tags can't describe.
	Validate(at *strictyaml.Section)
	// ValidatePlace reports why control events or dead letters can't be sent to a place.
	ValidatePlace(at *strictyaml.Section, to *ControlPlace)
	// ValidateProgress reports why progress events can't be sent. at is the section of the sink, whose key `progress` is
	// set. The configuration may be invalid.
	ValidateProgress(at *strictyaml.Section)
	// Conflict reports in at whether messages of this sink would interfere with the messages of another sink, and returns
	// whether they would. name is the name of the other sink. One of the two configurations may come from Letters or
	// Control. Either may be invalid.
	Conflict(at *strictyaml.Section, other Config, name string) bool

	// NewSink creates the sink. Its only I/O is to read files. Sinks with the same servers should share the prober. If
	// prober is nil, the sink creates a prober.
	NewSink(prober *reach.Prober, log *slog.Logger) (Sink, error)
	// Letters returns the configuration that sends the dead letters of a sink to a place. It returns nil if the sink can't
	// send dead letters to that place.
	Letters(sink string, to *LetterPlace) Config
	// WithControl returns the configuration with which the sink sends control events to a place.
	WithControl(to *ControlPlace) Config
	// Control returns the configuration of that place itself. It returns nil if the sink can't send control events to it.
	Control(to *ControlPlace) Config
	// Client returns the configuration for another process, which does not embed a server.
	Client() Config

	// Describe returns the servers and the stream or topic, for people. It contains no secrets.
	Describe() string
	// Place returns the template of the topic or subject. It returns nil if all messages go to the same place.
	Place() *event.Template
	// KeyTemplate returns the template of event.Message.PartitionKey. It returns nil if messages need no key.
	KeyTemplate() *event.Template
}

// LetterPlace is the place on the sink's servers that dead letters are sent to. Set exactly one of `topic` and
// `subject`.
type LetterPlace struct {
	// A topic of the sink's Kafka cluster. It is a template with the same variables as `kafka.topic`. With
	// `kafka.createTopics`, the bridge creates the topic for messages of up to 16Mi. Otherwise the topic must exist.
	Topic string `yaml:"topic" oneOf:"true" example:"\"dead-letters.{cluster}\""`
	// A subject on the sink's NATS servers. It is a template with the same variables as `nats.subject`. `stream` must name
	// a stream that has this subject.
	Subject string `yaml:"subject" oneOf:"true" example:"\"dead.{cluster}.{resource}\""`
	// The stream that has `subject`. It must not be the stream of the sink. With `nats.stream.create`, the bridge creates
	// the dead-letter stream with the settings of the sink's stream.
	Stream string `yaml:"stream" pattern:"^[^\\s.*>/\\\\]{1,255}$" example:"DEAD"`
}

// ControlPlace configures where control events are sent, so that a topic or stream contains objects only. Set exactly
// one of `topic` and `subject`. A consumer can then read a gap event later than the events that follow the gap: see
// docs/events.md.
type ControlPlace struct {
	// A topic of the sink's Kafka cluster. It is a template with the same variables as `kafka.topic`; `{name}` is `_gap`,
	// `_synced` or `_progress`. With `kafka.createTopics`, the bridge creates the topic, with one partition and not
	// compacted. Otherwise the topic must exist.
	Topic string `yaml:"topic" oneOf:"true" example:"\"k8s-control\""`
	// A subject on the sink's NATS servers. It is a template with the same variables as `nats.subject`; `{name}` is
	// `_gap`, `_synced` or `_progress`. `stream` must name a stream that has this subject.
	Subject string `yaml:"subject" oneOf:"true" example:"\"k8s-control.{cluster}.{group}.{resource}\""`
	// The stream that has `subject`. It must not be the stream of a sink. With `nats.stream.create`, the bridge creates the
	// stream with the settings of the sink's stream, except that it keeps all control events.
	Stream string `yaml:"stream" pattern:"^[^\\s.*>/\\\\]{1,255}$" example:"K8S-CONTROL"`
}

// String returns a description such as "subject dead.letters".
func (p *LetterPlace) String() string {
	if p.Topic != "" {
		return "topic " + p.Topic
	}
	return "subject " + p.Subject
}

// CheckTemplate parses the template that is the value of a key. If the template has a mistake, CheckTemplate reports
// the mistake and returns nil.
func CheckTemplate(at *strictyaml.Section, key, text string, escape event.Escape, example string) *event.Template {
	t, err := event.ParseTemplate(text, escape)
	if err != nil {
		at.Report(key, err.Error(), "example: "+example)
		return nil
	}
	return t
}
