package sinks

import (
	"context"
	"errors"
	"strings"
)

// The steps on the way to a destination, in their order: what ConnectError.Step and Finding.Step hold.
const (
	StepFiles        = "files"        // certificates, keys and passwords can be read and understood
	StepResolve      = "resolve"      // the host has an address
	StepConnect      = "connect"      // something listens there
	StepTLS          = "TLS"          // both sides accept each other's certificates
	StepProtocol     = "protocol"     // it speaks the broker's protocol, in a version that will do
	StepAuthenticate = "authenticate" // it accepts the credentials
	StepAuthorize    = "authorize"    // who they belong to may do what is needed
	StepTopic        = "topic"        // Kafka: the topic is there and keeps what the bridge promises
	StepStream       = "stream"       // NATS: so does the stream
	StepName         = "cluster name" // no other cluster writes there under this one's name
)

// ConnectError is why a destination can't be used, in words for who has to mend it. It holds no secret.
type ConnectError struct {
	Step    string // one of the Step constants
	Address string // of the server or broker, as host:port; empty: the failure is not about one of them
	// Key of the configuration to look at first, below sinks[], as in "kafka.tls.caFile"; empty: there is none.
	Key    string
	Remedy string // what to do, as an imperative clause; empty: plain from Err and Key
	Err    error  // what was expected, and what came
	// Rejected: the server answered, and its answer will not change soon; see RejectedError.
	Rejected bool
}

// Error is one line: address, step, cause, remedy and key, as far as they are known.
func (e *ConnectError) Error() string {
	var b strings.Builder
	if e.Address != "" {
		b.WriteString(e.Address + ": ")
	}
	b.WriteString(e.Step + ": " + e.Err.Error())
	if e.Remedy != "" {
		b.WriteString("; " + e.Remedy)
	}
	if e.Key != "" && !strings.Contains(e.Remedy, e.Key) {
		b.WriteString(" (see " + e.Key + ")")
	}
	return b.String()
}

func (e *ConnectError) Unwrap() error { return e.Err }

// Advice is Remedy and Key in one clause; empty if there is neither.
func (e *ConnectError) Advice() string {
	switch {
	case e.Key == "" || strings.Contains(e.Remedy, e.Key):
		return e.Remedy
	case e.Remedy == "":
		return "see " + e.Key
	}
	return e.Remedy + " (see " + e.Key + ")"
}

// Finding is the outcome of one step of a check.
type Finding struct {
	Step   string // one of the Step constants
	Target string // what was tried: a broker's address, a topic, a stream
	Detail string // what was found, for people: versions, expiry of certificates, settings
	Err    error  // why the step failed; nil if it passed. A *ConnectError where the cause is known.
	Remedy string // what to do about Err, or about a warning
	Warn   bool   // it works, but keeps less than the bridge promises, or soon will not work. Err is nil
}

// Failed makes the Finding of an error. step and target hold where err is no *ConnectError that says better.
func Failed(step, target string, err error) Finding {
	f := Finding{Step: step, Target: target, Err: err}
	if ce, ok := errors.AsType[*ConnectError](err); ok {
		f.Step, f.Err, f.Remedy = ce.Step, ce, ce.Advice()
		if ce.Address != "" {
			f.Target = ce.Address
		}
	}
	return f
}

// Checker is implemented by sinks that can be tried without changing anything.
type Checker interface {
	// Check goes to the destination step by step, on connections of its own, and reports each step in order. It
	// creates, changes and delivers nothing. A step that fails ends the way of that server; other servers are
	// tried all the same. It works on a sink that is not connected, and needs no Close. It returns soon after ctx
	// ends.
	Check(ctx context.Context) []Finding
}
