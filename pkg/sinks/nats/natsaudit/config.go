// Package natsaudit reads audit events that are in a JetStream stream already, such as those that a log collector has
// published there. It has no durable consumer: the bridge stores the sequence itself.
package natsaudit

import (
	"regexp"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
)

// Config configures a stream that has audit events.
type Config struct {
	natsconn.Access `yaml:",inline"`
	// The name of the stream. The bridge reads all of its messages, beginning with the oldest one. The stream must have
	// `retention: limits`.
	Stream string `yaml:"stream" required:"true" pattern:"^[^ .*>/\\\\]+$" example:"KUBE_AUDIT"`
}

var validName = regexp.MustCompile(`^[^\s.*>/\\]+$`)

// Validate reports invalid keys.
func (cfg *Config) Validate(at *strictyaml.Section) {
	if len(cfg.URLs) == 0 {
		at.Report("", "has no server", "add url: nats://127.0.0.1:4222")
	}
	cfg.Access.Validate(at)
	if !validName.MatchString(cfg.Stream) && at.Fine("stream") {
		at.Report("stream", strictyaml.Quote(cfg.Stream)+" is not a valid name", "use letters, digits, - and _")
	}
}
