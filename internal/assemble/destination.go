package assemble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

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

	prober *reach.Prober
	log    *slog.Logger
}

// NewDestination makes the destination of a sink. It does no I/O but reads the sink's files. With a prober all that
// wait for a server share it; nil: each connection has its own.
func NewDestination(s *config.Sink, prober *reach.Prober, log *slog.Logger) (*Destination, error) {
	return newDestination(s.Name, s.Destination(), prober, log)
}

// NewClient makes the destination of a sink as a command uses it: an embedded server is inside of the bridge that runs.
func NewClient(s *config.Sink) (*Destination, error) {
	return newDestination(s.Name, s.Destination().Client(), nil, slog.New(slog.DiscardHandler))
}

func newDestination(name string, cfg sinks.Config, prober *reach.Prober, log *slog.Logger) (*Destination, error) {
	sink, err := cfg.NewSink(prober, log)
	if err != nil {
		return nil, fmt.Errorf("sink %s: %w", name, err)
	}
	key, err := cfg.KeyTemplate()
	if err != nil {
		return nil, fmt.Errorf("sink %s: %w", name, err)
	}
	return &Destination{Sink: sink, Key: key, prober: prober, log: log}, nil
}

// Close closes all connections.
func (d *Destination) Close(ctx context.Context) error {
	var errs []error
	for _, closer := range append(d.Closers, d.Sink.Close) { // claims may use the connection of the sink
		errs = append(errs, closer(ctx))
	}
	return errors.Join(errs...)
}
