package diagnose

import "context"

// Survey is what a new configuration requires to know about a destination.
type Survey struct {
	Servers int    // the number of servers of the broker's cluster, as far as it is known; at least 1
	Exists  bool   // the stream exists, or a topic that matches the template
	Detail  string // human-readable details of what exists, or of what prevents its creation; may be empty
}

// Surveyor is implemented by sinks that can report what their destination has.
type Surveyor interface {
	// Survey connects to the destination and changes nothing. It returns an error if it cannot read what the destination
	// has. The sink need not be connected, must not be used for delivery during Survey, and need not be closed afterwards.
	Survey(ctx context.Context) (Survey, error)
}
