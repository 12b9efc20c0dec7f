package diagnose

import (
	"context"
	"errors"

	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Finding is the outcome of one step of a check.
type Finding struct {
	Step   string // one of the Step constants of package sinks
	Target string // what was tried: a broker's address, a topic, a stream
	Detail string // what was found, for people: versions, expiry of certificates, settings
	Err    error  // why the step failed; nil if it passed. A *sinks.ConnectError where the cause is known.
	Remedy string // what to do about Err, or about a warning
	Warn   bool   // it works, but keeps less than the bridge promises, or soon will not work. Err is nil
}

// Failed makes the Finding of an error. step and target hold where err is no *sinks.ConnectError that says better.
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

// Checker is implemented by sinks that can be checked without changing anything.
type Checker interface {
	// Check goes to the destination step by step, on connections of its own, and reports each step in order. It
	// creates, changes and delivers nothing. A step that fails ends the check of that server, not of the others. The
	// sink need not be connected, or closed afterwards. It returns soon after ctx ends.
	Check(ctx context.Context) []Finding
}

// NameReader is implemented by sinks that can be asked for the owner of a cluster's name without being connected.
type NameReader interface {
	// ReadName is [sinks.Identified].Registered on a connection of its own. Call it after a Check that found nothing
	// wrong.
	ReadName(ctx context.Context, cluster string) (sinks.Registration, error)
}
