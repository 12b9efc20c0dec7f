package sinks

import "strings"

// The values of ConnectError.Step are the steps of connecting, in order. A step fails if the condition in its comment
// is not met.
const (
	StepFiles        = "files"        // certificates, keys and passwords can be read and parsed
	StepResolve      = "resolve"      // the host name resolves to an address
	StepConnect      = "connect"      // the address accepts connections
	StepTLS          = "TLS"          // client and server accept each other's certificates
	StepProtocol     = "protocol"     // the server speaks the broker's protocol in a supported version
	StepAuthenticate = "authenticate" // the server accepts the credentials
	StepAuthorize    = "authorize"    // the user has the required permissions
	StepSchema       = "schema"       // Kafka: the schema registry has the schema, or accepts it
	StepTopic        = "topic"        // Kafka: the topic exists and meets the requirements
	StepStream       = "stream"       // NATS: the stream exists and meets the requirements
	StepName         = "cluster name" // no other cluster writes to the destination under this cluster's name
)

// ConnectError explains to the operator why a destination can't be used. It contains no secret.
type ConnectError struct {
	Step    string // one of the Step constants
	Address string // host:port of the server or broker; empty if the failure is not about a particular one
	// Key is the configuration key to look at first, relative to sinks[], such as "kafka.tls.caFile". It is empty if no
	// key is involved.
	Key    string
	Remedy string // what to do, as an imperative clause; empty if Err and Key are sufficient
	Err    error  // what was expected, and what was found instead
	// Rejected reports whether the server answered and its answer will not change soon; see [Rejected].
	Rejected bool
}

// Error returns one line with address, step, cause, remedy and key, as far as they are known.
func (e *ConnectError) Error() string {
	text := e.Cause()
	switch advice := e.Advice(); {
	case e.Remedy != "":
		text += "; " + advice
	case advice != "":
		text += " (" + advice + ")"
	}
	return text
}

// Cause returns one line with address, step and cause. It is Error without Advice.
func (e *ConnectError) Cause() string {
	text := e.Step + ": " + e.Err.Error()
	if e.Address != "" {
		text = e.Address + ": " + text
	}
	return text
}

func (e *ConnectError) Unwrap() error { return e.Err }

// Is reports whether e is a [Rejected] error and target is the sentinel error of that class.
func (e *ConnectError) Is(target error) bool { return e.Rejected && target == errRejected }

// Advice returns Remedy and Key in one clause. It returns an empty string if both are empty.
func (e *ConnectError) Advice() string {
	switch {
	case e.Key == "" || strings.Contains(e.Remedy, e.Key):
		return e.Remedy
	case e.Remedy == "":
		return "see " + e.Key
	}
	return e.Remedy + " (see " + e.Key + ")"
}
