package sinks

import "strings"

// The steps on the way to a destination, in their order: the values of ConnectError.Step.
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

// ConnectError is why a destination can't be used, in words for the person who has to fix it. It holds no secret.
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
