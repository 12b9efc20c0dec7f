package diagnose

import (
	"context"
	"errors"

	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Finding is the outcome of one step of a check.
type Finding struct {
	Step   string // one of the Step constants of package sinks
	Target string // the subject of the step: the address of a broker, a topic, a stream
	Detail string // human-readable details, such as versions, expiry dates of certificates and settings
	Err    error  // why the step failed; nil if it passed. It is a *sinks.ConnectError if the cause is known.
	Remedy string // how to resolve Err or the warning
	// Warn reports whether the step passed with a warning: the settings can lose events, or delivery will soon stop
	// working. Err is then nil.
	Warn bool
}

// Failed returns a Finding for err. If err wraps a *sinks.ConnectError, its step and its address (if set) replace step
// and target.
func Failed(step, target string, err error) Finding {
	f := Finding{Step: step, Target: target, Err: err}
	if ce, ok := errors.AsType[*sinks.ConnectError](err); ok {
		f.Step, f.Err, f.Remedy = ce.Step, ce, ce.Advice()
		if ce.Address != "" {
			f.Target = ce.Address
		}
	}
	return f
}

// Checker is implemented by sinks that can check their destination without changing it.
type Checker interface {
	// Check checks the destination step by step and reports each step in order. It creates, changes and delivers nothing.
	// A failed step ends the check of that server, but not of the others. The sink need not be connected, must not be used
	// for delivery during Check, and need not be closed afterwards. Check returns soon after ctx ends.
	Check(ctx context.Context) []Finding
}
