package main

import (
	"fmt"
	"os"

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
