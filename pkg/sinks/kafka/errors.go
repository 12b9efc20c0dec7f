package kafka

import (
	"errors"
	"fmt"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

// verdict is what a partition's error code means for its batch.
type verdict uint8

const (
	written     verdict = iota
	notWritten          // certainly; send it again
	maybe               // perhaps written; send it again as the same batch
	outOfStep           // the broker and the sink disagree about epoch or sequence; begin a new epoch
	tooLarge            // halve the batch
	badRecord           // the broker names the bad records, or halving the batch finds them
	notTopicFit         // no event can be written to a topic of this name
)

// judge tells what a produce response's error code says of the batch.
// Source: the Kafka protocol guide, "Error Codes", and for what may have been written the broker's rules: a leader
// appends before it waits for its followers, so that an error of the wait leaves the batch in its log.
func judge(code kafkago.Error) verdict {
	switch code {
	case 0:
		return written
	case kafkago.MessageSizeTooLarge, kafkago.RecordListTooLarge:
		return tooLarge
	case kafkago.InvalidRecord:
		return badRecord
	case kafkago.InvalidTopic:
		return notTopicFit
	case kafkago.OutOfOrderSequenceNumber, kafkago.InvalidProducerEpoch, kafkago.UnknownProducerId,
		kafkago.InvalidProducerIDMapping, kafkago.ProducerFenced, kafkago.DuplicateSequenceNumber:
		return outOfStep
	case kafkago.RequestTimedOut, kafkago.NotEnoughReplicasAfterAppend, kafkago.NotLeaderForPartition,
		kafkago.FencedLeaderEpoch, kafkago.KafkaStorageError, kafkago.NetworkException, kafkago.Unknown:
		return maybe
	}
	return notWritten
}

// movesLeader reports whether the metadata must be read again after this code.
func movesLeader(code kafkago.Error) bool {
	switch code {
	case kafkago.UnknownTopicOrPartition, kafkago.LeaderNotAvailable, kafkago.NotLeaderForPartition,
		kafkago.ReplicaNotAvailable, kafkago.KafkaStorageError, kafkago.FencedLeaderEpoch,
		kafkago.UnknownLeaderEpoch, kafkago.UnknownTopicID, kafkago.InconsistentTopicID, kafkago.NetworkException:
		return true
	}
	return false
}

// passing reports whether a code is that of a cluster which is starting, or chooses a leader: it is about to change.
func passing(code kafkago.Error) bool {
	switch code {
	case kafkago.RequestTimedOut, kafkago.BrokerNotAvailable, kafkago.GroupLoadInProgress, kafkago.GroupCoordinatorNotAvailable,
		kafkago.NotCoordinatorForGroup, kafkago.NotController, kafkago.Unknown, kafkago.InvalidReplicationFactor:
		return true // the last one: there are not enough brokers yet
	}
	return movesLeader(code) || judge(code) == outOfStep
}

// remedy is what an operator can do about it, where it is not plain from the code's own words.
func (s *Sink) remedy(code kafkago.Error) string {
	switch code {
	case kafkago.UnsupportedCompressionType:
		return "the broker is too old for this compression; choose another"
	case kafkago.InvalidTimestamp:
		return "this clock and the broker's differ by more than message.timestamp.after.max.ms or before.max.ms"
	case kafkago.NotEnoughReplicas, kafkago.NotEnoughReplicasAfterAppend:
		return "fewer replicas are in sync than the topic's min.insync.replicas"
	case kafkago.UnsupportedForMessageFormat:
		return "the topic's message format is older than Kafka 0.11 and holds no headers"
	}
	return ""
}

func (s *SASLConfig) who() string {
	switch s.Mechanism {
	case "":
		return "the client (which does not authenticate)"
	case mechanismIAM:
		return "the IAM role"
	}
	return fmt.Sprintf("user %q", s.Username)
}

// codeError is a broker's error code about a topic or one of its partitions, in words.
func (s *Sink) codeError(where string, code kafkago.Error, message string) error {
	text := where
	if message != "" {
		text += ": " + message
	}
	switch code {
	case kafkago.TopicAuthorizationFailed, kafkago.ClusterAuthorizationFailed:
		return &sinks.ConnectError{
			Step: sinks.StepAuthorize, Key: "kafka.topic",
			Remedy: fmt.Sprintf("give %s the permissions Describe and Write on the topic", s.cfg.SASL.who()),
			Err:    access.Words(code, "%s: not allowed (%s)", text, code.Title()), Rejected: true,
		}
	}
	if r := s.remedy(code); r != "" {
		text += " (" + r + ")"
	}
	err := fmt.Errorf("%s: %w", text, code)
	if passing(code) {
		return err
	}
	return sinks.Rejected(err)
}

// noTopic is the error of a topic that is not there.
func noTopic(name string) error {
	return &sinks.ConnectError{
		Step: sinks.StepTopic, Key: "kafka.createTopics", Remedy: "create it, correct kafka.topic, or set kafka.createTopics",
		Err: access.Words(kafkago.UnknownTopicOrPartition, "topic %s does not exist", name), Rejected: true,
	}
}

// notCreated is why a topic could not be created.
func (c *cluster) notCreated(name string, code kafkago.Error, message string) error {
	e := &sinks.ConnectError{
		Step: sinks.StepTopic, Key: "kafka.createTopics", Rejected: !passing(code),
		Err: access.Words(code, "creating the topic %s: %s: %s", name, code.Title(), message),
	}
	switch code {
	case kafkago.TopicAuthorizationFailed, kafkago.ClusterAuthorizationFailed:
		e.Step = sinks.StepAuthorize
		e.Remedy = fmt.Sprintf("give %s the permission Create on the topic (or create it by hand)", c.cfg.SASL.who())
	case kafkago.InvalidReplicationFactor:
		e.Key += ".replicationFactor"
	case kafkago.InvalidPartitionNumber:
		e.Key += ".partitions"
	case kafkago.InvalidConfiguration:
		e.Key += ".config"
	}
	return e
}

// classify marks an error of an exchange in which records were sent.
func classify(err error) error {
	var b *brokerError
	if errors.As(err, &b) && b.sent {
		return sinks.MaybeWritten(err)
	}
	return err
}

// unmarked is err without the mark that something may have been written.
func unmarked(err error) error {
	if m, ok := errors.AsType[*sinks.MaybeWrittenError](err); ok {
		return m.Err
	}
	return err
}
