package wire

import (
	"errors"
	"fmt"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

// brokerError is the error of a failed exchange with a broker.
type brokerError struct {
	addr string
	sent bool // reports whether the request may have reached the broker
	err  error
}

func (e *brokerError) Error() string {
	if known, ok := e.err.(*sinks.ConnectError); ok && known.Address != "" { //nolint:errorlint // not one that it wraps
		return "kafka broker " + known.Error()
	}
	return "kafka broker " + e.addr + ": " + e.err.Error()
}
func (e *brokerError) Unwrap() error { return e.err }

// Sent reports whether a request may have reached the broker even though it failed with err.
func Sent(err error) bool {
	b, ok := errors.AsType[*brokerError](err)
	return ok && b.sent
}

// isTransient reports whether a cluster can return this code while it starts or elects a leader.
func isTransient(code kafkago.Error) bool {
	switch code {
	case kafkago.NotEnoughReplicas: // Brokers are down, probably for longer.
		return false
	case kafkago.BrokerNotAvailable, kafkago.ReplicaNotAvailable, kafkago.Unknown,
		kafkago.InvalidReplicationFactor: // Not enough brokers have started yet.
		return true
	}
	return code.Temporary()
}

// CodeError converts a broker's error code about a topic or partition into an error.
func (c *Client) CodeError(where string, code kafkago.Error, message string) error {
	if message != "" {
		where += ": " + message
	}
	if code == kafkago.TopicAuthorizationFailed || code == kafkago.ClusterAuthorizationFailed {
		return &sinks.ConnectError{
			Step: sinks.StepAuthorize, Key: "kafka.topic",
			Remedy: fmt.Sprintf("give %s the permissions Describe and Write on the topic", c.Config.SASL.Who()),
			Err:    access.Words(code, "%s: not allowed (%s)", where, code.Title()), Rejected: true,
		}
	}
	err := fmt.Errorf("%s: %w", where, code)
	if isTransient(code) {
		return err
	}
	return sinks.Rejected(err)
}

// NoTopic returns the error for a topic that does not exist.
func NoTopic(name string) error {
	return &sinks.ConnectError{
		Step: sinks.StepTopic, Key: "kafka.createTopics",
		Remedy: "create it, correct kafka.topic, or set kafka.createTopics",
		Err:    access.Words(kafkago.UnknownTopicOrPartition, "topic %s does not exist", name), Rejected: true,
	}
}

// notCreated returns the error for a topic that the cluster did not create.
func (c *Client) notCreated(name string, code kafkago.Error, message string) error {
	e := &sinks.ConnectError{
		Step: sinks.StepTopic, Key: "kafka.createTopics", Rejected: !isTransient(code),
		Err: access.Words(code, "create topic %s: %s: %s", name, code.Title(), message),
	}
	if code == kafkago.TopicAuthorizationFailed || code == kafkago.ClusterAuthorizationFailed {
		e.Step = sinks.StepAuthorize
		e.Remedy = fmt.Sprintf("give %s the permission Create on the topic, or create it", c.Config.SASL.Who())
	}
	e.Key += map[kafkago.Error]string{
		kafkago.InvalidReplicationFactor: ".replicationFactor",
		kafkago.InvalidPartitionNumber:   ".partitions",
		kafkago.InvalidConfiguration:     ".config",
	}[code]
	return e
}
