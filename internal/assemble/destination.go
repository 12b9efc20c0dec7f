package assemble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Destination is where a configured sink writes to.
type Destination struct {
	sinks.Sink

	// Key is that of messages; nil if they have none.
	Key *event.Template
	// Closers close connections besides that of Sink, and before it.
	Closers []func(context.Context) error

	kind   kind
	prober *reach.Prober
	log    *slog.Logger
}

// kind is how the destinations of one kind are made.
type kind struct {
	// build sets the sink of a destination, and its key.
	build func(d *Destination, s *config.Sink) error
	// letters makes the sink for dead letters, and says where it writes to. Nil: there is none, and the configuration was checked.
	letters func(d *Destination, s *config.Sink) (sink sinks.Sink, where string, err error)
	// place tells where a message goes, for people. Nil: all go to one place.
	place func(s *config.Sink) (*event.Template, error)
}

// kinds are all that there are, by config.Sink.Kind: another one is registered here.
func kinds() map[string]kind {
	return map[string]kind{"nats": natsKind(), "kafka": kafkaKind(), "stdout": stdoutKind()}
}

// NewDestination makes the destination of a sink. It does no I/O but reads the sink's files. With a prober all that wait for a server
// share it; nil: each connection has its own.
func NewDestination(s *config.Sink, prober *reach.Prober, log *slog.Logger) (*Destination, error) {
	d := &Destination{prober: prober, log: log, kind: kinds()[s.Kind()]}
	if err := d.kind.build(d, s); err != nil {
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
