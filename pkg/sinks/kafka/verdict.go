package kafka

import kafkago "github.com/segmentio/kafka-go"

// verdict is what a partition's error code means for its batch.
type verdict uint8

const (
	written    verdict = iota
	notWritten         // certainly not written; send it again
	inDoubt            // perhaps written; send it again unchanged
	outOfStep          // the broker and the sink disagree about epoch or sequence; begin a new epoch
	tooLarge           // halve the batch
	badRecord          // halving the batch finds the bad records
	badTopic           // no event can be written to a topic of this name
)

// judge returns what a produce response's error code means for the batch.
// Source: the Kafka protocol guide, "Error Codes". A leader appends a batch before it waits for the followers, so that
// the batch stays in the leader's log if the wait fails.
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
