package main

import (
	"testing"

	"github.com/deltabridge/deltabridge/internal/config"
)

func TestProcessors(t *testing.T) {
	for _, tt := range []struct {
		name                   string
		sinks, available, want int
		embedded               bool
	}{
		{"one sink", 1, 8, 1, false},
		{"four sinks", 4, 8, 1, false},
		{"five sinks", 5, 8, 2, false},
		{"sixteen sinks", 16, 8, 4, false},
		{"sixteen sinks on two processors", 16, 2, 2, false},
		{"a server inside", 1, 8, 8, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := &config.Config{Sinks: make([]config.Sink, tt.sinks)}
			if tt.embedded {
				cfg.Sinks[0] = config.Default().Sinks[0]
			}
			if got := processors(cfg, tt.available); got != tt.want {
				t.Errorf("%d processors, want %d", got, tt.want)
			}
		})
	}
}
