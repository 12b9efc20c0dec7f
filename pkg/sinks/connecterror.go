package sinks

import "strings"

// The values of ConnectError.Step: the steps of connecting, in their order.
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

// ConnectError explains to the operator why a destination can't be used. It contains no secret.
type ConnectError struct {
	Step    string // one of the Step constants
	Address string // of the server or broker, as host:port; empty if the failure is not about one of them
	// Key of the configuration to look at first, below sinks[], such as "kafka.tls.caFile"; empty if there is none.
	Key    string
	Remedy string // what to do, as an imperative clause; empty if Err and Key say enough
	Err    error  // what was expected, and what came
	// Rejected: the server answered, and its answer will not change soon; see [Rejected].
	Rejected bool
}

// Error returns one line: address, step, cause, remedy and key, as far as they are known.
func (e *ConnectError) Error() string {
	text := e.Step + ": " + e.Err.Error()
	if e.Address != "" {
		text = e.Address + ": " + text
	}
	switch advice := e.Advice(); {
	case e.Remedy != "":
		text += "; " + advice
	case advice != "":
		text += " (" + advice + ")"
	}
	return text
}

func (e *ConnectError) Unwrap() error { return e.Err }

// Is reports whether target is the class of [Rejected] errors and e belongs to it.
func (e *ConnectError) Is(target error) bool { return e.Rejected && target == errRejected }

// Advice returns Remedy and Key in one clause; empty if there is neither.
func (e *ConnectError) Advice() string {
	switch {
	case e.Key == "" || strings.Contains(e.Remedy, e.Key):
		return e.Remedy
	case e.Remedy == "":
		return "see " + e.Key
	}
	return e.Remedy + " (see " + e.Key + ")"
}
