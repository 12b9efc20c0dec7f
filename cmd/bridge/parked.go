package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/parked"
)

// openParked opens the place for events of topics, partitions and subjects that take none. It shares the bound of the spill.
func (p *pipeline) openParked(b config.Buffer, state string) (*parked.Store, error) {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, fmt.Errorf("state.path: %w", err)
	}
	return parked.Open(parked.Options{
		Dir: state, Sink: p.name, MaxBytes: int64(b.Spill.MaxBytes), Logger: p.log,
		Used: func() int64 {
			_, bytes, _, _, _ := p.queue.SpillStats()
			return bytes
		},
	})
}

// orphanedEvents is an error if the state has parked events of sinks that the configuration does not have: a sink was removed
// or has another name, and nobody would deliver them.
func orphanedEvents(cfg *config.Config) error {
	names, err := parked.Sinks(cfg.State.Path)
	if err != nil {
		return fmt.Errorf("state.path: %w", err)
	}
	var errs []error
	for _, name := range names {
		if slices.ContainsFunc(cfg.Sinks, func(s config.Sink) bool { return s.Name == name }) {
			continue
		}
		queues, err := parked.Read(cfg.State.Path, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		events := 0
		var destinations []string
		for _, q := range queues {
			events += q.Events
			destinations = append(destinations, q.Destination)
		}
		errs = append(errs, fmt.Errorf("sinks: %d events of the sink %q are parked for %s and would never be delivered; give the sink its name back until they are, or remove %s",
			events, name, strings.Join(destinations, ", "), filepath.Join(cfg.State.Path, "parked-"+name+".db")))
	}
	return errors.Join(errs...)
}
