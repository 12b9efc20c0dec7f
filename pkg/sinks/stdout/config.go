package stdout

import (
	"log/slog"
	"os"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Config writes each event as one line of JSON to standard output.
type Config struct{}

var _ sinks.Config = (*Config)(nil)

// NewSink implements [sinks.Config].
func (*Config) NewSink(*reach.Prober, *slog.Logger) (sinks.Sink, error) { return New(os.Stdout), nil }

// Validate implements [sinks.Config]. There are no keys to check.
func (*Config) Validate(*strictyaml.Section) {}

// ValidatePlace implements [sinks.Config].
func (*Config) ValidatePlace(at *strictyaml.Section, _ *sinks.ControlPlace) {
	for _, key := range at.Given("topic", "subject") {
		at.Report(key, "is not possible for stdout, which is one sequence of events", "remove it")
	}
}

// ValidateProgress implements [sinks.Config].
func (*Config) ValidateProgress(*strictyaml.Section) {}

// Conflict implements [sinks.Config]. Lines of several sinks never conflict.
func (*Config) Conflict(*strictyaml.Section, sinks.Config, string) bool { return false }

// Letters implements [sinks.Config].
func (*Config) Letters(string, *sinks.LetterPlace) sinks.Config { return nil }

// WithControl implements [sinks.Config].
func (c *Config) WithControl(*sinks.ControlPlace) sinks.Config { return c }

// Control implements [sinks.Config].
func (*Config) Control(*sinks.ControlPlace) sinks.Config { return nil }

// Client implements [sinks.Config].
func (c *Config) Client() sinks.Config { return c }

// Describe implements [sinks.Config].
func (*Config) Describe() string { return "standard output" }

// Place implements [sinks.Config].
func (*Config) Place() *event.Template { return nil }

// KeyTemplate implements [sinks.Config].
func (*Config) KeyTemplate() *event.Template { return nil }
