package reload

import (
	"reflect"

	"github.com/deltabridge/deltabridge/internal/config"
)

// keepsDelivery reports whether a sink is delivered in the same way with both configurations: its destination, its
// queue, and what happens to rejected events are the same. Its filters, and what its events contain, can differ.
func keepsDelivery(before, after *config.Config, sink string) bool {
	a, b := deliveryOf(before, sink), deliveryOf(after, sink)
	return a != nil && b != nil && reflect.DeepEqual(a, b)
}

// deliveryOf returns the part of a sink's configuration that is about delivery, or nil if there is no such sink.
func deliveryOf(cfg *config.Config, sink string) *config.Sink {
	found := cfg.Sink(sink)
	if found == nil {
		return nil
	}
	s := *found
	s.Filters, s.Resync, s.Progress, s.Enrich = nil, 0, 0, config.Sink{}.Enrich
	s.Payload, s.Content, s.Secrets = "", "", ""
	return &s
}
