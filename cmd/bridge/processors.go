package main

import (
	"os"
	"runtime"
	"slices"

	"github.com/deltabridge/deltabridge/internal/config"
)

// sinksPerProcessor is for how many sinks one processor is enough: at 50,000 events a second, one sink keeps one busy.
const sinksPerProcessor = 4

// processors is how many of the processors there are the bridge uses. Its goroutines hand each other an event at a time:
// on several processors that wakes threads, which cost a fifth of all CPU time where there is much to do, and half where
// there is little (docs/performance.md).
func processors(cfg *config.Config, available int) int {
	if slices.ContainsFunc(cfg.Sinks, func(s config.Sink) bool { return s.NATS != nil && s.NATS.Embedded != nil }) {
		return available // a server runs inside
	}
	return min(available, 1+(len(cfg.Sinks)-1)/sinksPerProcessor)
}

// limitProcessors leaves it at what people have set in the environment.
func limitProcessors(cfg *config.Config) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(processors(cfg, runtime.GOMAXPROCS(0)))
	}
}
