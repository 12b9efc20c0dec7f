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

// Destination is the destination of a configured sink. It also contains the additional connections that the sink uses.
type Destination struct {
	sinks.Sink

	// Key is the template of the message keys. If it is nil, messages have no key.
	Key *event.Template
	// Closers close the additional connections. They are called before the Sink is closed.
	Closers []func(context.Context) error

	prober *reach.Prober
	log    *slog.Logger
}

// NewDestination returns the destination of a sink. It reads the files that the sink's configuration names, and does no
// other I/O. If prober is not nil, all connections that wait for a server share it. If prober is nil, each connection
// uses its own.
func NewDestination(s *config.Sink, prober *reach.Prober, log *slog.Logger) (*Destination, error) {
	return newDestination(s.Name, s.Destination(), prober, log)
}

// NewClient returns the destination of a sink for a command. If the sink has an embedded server, the destination
// connects to the server in the running bridge and does not start another one.
func NewClient(s *config.Sink) (*Destination, error) {
	return newDestination(s.Name, s.Destination().Client(), nil, slog.New(slog.DiscardHandler))
}

func newDestination(name string, cfg sinks.Config, prober *reach.Prober, log *slog.Logger) (*Destination, error) {
	sink, err := cfg.NewSink(prober, log)
	if err != nil {
		return nil, fmt.Errorf("sink %s: %w", name, err)
	}
	return &Destination{Sink: sink, Key: cfg.KeyTemplate(), prober: prober, log: log}, nil
}

// Close closes all connections.
func (d *Destination) Close(ctx context.Context) error {
	var errs []error
	// The sink is closed last because an object store can use its connection.
	for _, closer := range append(d.Closers, d.Sink.Close) {
		errs = append(errs, closer(ctx))
	}
	return errors.Join(errs...)
}
