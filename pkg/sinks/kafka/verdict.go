package kafka

import kafkago "github.com/segmentio/kafka-go"

// verdict is the meaning of a partition's error code for its batch.
type verdict uint8

const (
	written    verdict = iota
	notWritten         // The batch was certainly not written. Send it again.
	inDoubt            // The batch was perhaps written. Send it again unchanged.
	outOfStep          // The broker and the sink have different epochs or sequence numbers. Begin a new epoch.
	tooLarge           // The batch is too large. Halve it.
	badRecord          // The batch contains bad records. Halve it to find them.
	badTopic           // No event can be written to a topic with this name.
)

// judge maps the error code of a produce response to a verdict on the batch. Source: the Kafka protocol guide, "Error
// Codes". A leader appends a batch before it waits for the followers, so the batch stays in the leader's log even if
// the wait fails.
func judge(code kafkago.Error) verdict {
	switch code {
	case 0:
		return written
	case kafkago.MessageSizeTooLarge, kafkago.RecordListTooLarge:
		return tooLarge
	case kafkago.InvalidRecord:
		return badRecord
	case kafkago.InvalidTopic:
		return badTopic
	case kafkago.RequestTimedOut, kafkago.NotEnoughReplicasAfterAppend, kafkago.NotLeaderForPartition,
		kafkago.FencedLeaderEpoch, kafkago.KafkaStorageError, kafkago.NetworkException, kafkago.Unknown:
		return inDoubt
	case kafkago.OutOfOrderSequenceNumber, kafkago.InvalidProducerEpoch, kafkago.UnknownProducerId,
		kafkago.InvalidProducerIDMapping, kafkago.ProducerFenced, kafkago.DuplicateSequenceNumber:
		return outOfStep
	}
	return notWritten
}
