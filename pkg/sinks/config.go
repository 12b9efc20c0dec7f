package sinks

import (
	"errors"
	"log/slog"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/reach"
)

// Config is the configuration of a destination of one kind: an object of the configuration file. The tags of its fields
// say what keys there are, with which values ([strictyaml]). All methods but Validate are for values that are valid.
type Config interface {
	// Validate reports what tags can't say.
	strictyaml.Validator
	// ValidateLetters reports why dead letters can't be sent to a place.
	ValidateLetters(at *strictyaml.Section, to *LetterPlace)
	// Conflict reports in at if messages of this sink harm the messages of another sink, and returns whether it did. name
	// is the name of the other sink. One of the two may come from Letters. Either may be invalid.
	Conflict(at *strictyaml.Section, other Config, name string) bool

	// NewSink makes the sink. Its only I/O is to read files. Sinks with the same servers should share the prober; with
	// nil, the sink has its own.
	NewSink(prober *reach.Prober, log *slog.Logger) (Sink, error)
	// Letters returns the configuration that sends the dead letters of a sink to a place; nil if there is none.
	Letters(sink string, to *LetterPlace) Config
	// Client returns the configuration for another process, which does not embed a server.
	Client() Config

	// Place returns the template of the topic or subject. It is nil if all messages go to one place.
	Place() (*event.Template, error)
	// KeyTemplate returns the template of event.Message.PartitionKey. It is nil if messages need no key.
	KeyTemplate() (*event.Template, error)
	// LastOnly reports whether the destination keeps only the last event of each object.
	LastOnly() bool
}

// LetterPlace is where dead letters go on the servers of the sink.
type LetterPlace struct {
	// A topic of the Kafka cluster of the sink. It is a template with the same variables as `kafka.topic`. With
	// `kafka.createTopics`, the bridge creates the topic for messages of up to 16Mi. Otherwise the topic must exist.
	Topic string `yaml:"topic" oneOf:"true" example:"\"dead-letters.{cluster}\""`
	// A subject on the NATS servers of the sink. It is a template with the same variables as `nats.subject`. `stream`
	// must name a stream that has this subject.
	Subject string `yaml:"subject" oneOf:"true" example:"\"dead.{cluster}.{resource}\""`
	// The stream that has `subject`. It must not be the stream of the sink. With `nats.stream.create`, the bridge
	// creates it with the settings of the stream of the sink.
	Stream string `yaml:"stream" pattern:"^[^\\s.*>/\\\\]{1,255}$" example:"DEAD"`
}

// String returns a description such as "subject dead.letters".
func (p *LetterPlace) String() string {
	if p.Topic != "" {
		return "topic " + p.Topic
	}
	return "subject " + p.Subject
}

// CheckTemplate parses the template of a key. If it has a mistake, CheckTemplate reports it and returns nil.
func CheckTemplate(at *strictyaml.Section, key, text string, escape event.Escape, example string) *event.Template {
	t, err := event.ParseTemplate(text, escape)
	if mistake, ok := errors.AsType[*event.TemplateError](err); ok {
		at.ReportIn(key, mistake.Offset, strictyaml.Quote(text)+": "+mistake.Reason, "as in "+example)
		return nil
	}
	return t
}
