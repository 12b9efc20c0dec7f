package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

// request sends the batches of the partitions in one request and records the results.
func (w *work) request(ctx context.Context, partitions []*partition) {
	req := &rawproduce.Request{Acks: wire.AcksAll, Timeout: w.s.client.WriteTimeout()}
	var sent []*partition
	for _, p := range partitions {
		set, err := p.batch.encode(w.s.codec, p.producer)
		switch {
		case err != nil:
			w.fail(p, fmt.Errorf("compress with %s: %w", w.s.codec.Name(), err))
		case len(set) > maxRecordBytes:
			w.refuse(p, fmt.Errorf("%w: %d bytes", sinks.ErrOversize, len(set)))
		default:
			addToRequest(req, p, set)
			sent = append(sent, p)
		}
	}
	if len(sent) == 0 {
		return
	}
	msg, err := w.s.client.Send(ctx, w.leader, req)
	if err != nil {
		w.noteFailure(err, sent)
		return
	}
	for _, p := range sent {
		if answer := answerFor(msg.(*produce.Response), p); answer != nil {
			w.noteAnswer(p, answer)
		} else {
			w.noteDoubt(p, fmt.Errorf("kafka broker %s: the response does not contain %s", w.leader, p))
		}
	}
}

func addToRequest(req *rawproduce.Request, p *partition, set []byte) {
	i := slices.IndexFunc(req.Topics, func(t rawproduce.RequestTopic) bool { return t.Topic == p.topic.name })
	if i < 0 {
		i = len(req.Topics)
		req.Topics = append(req.Topics, rawproduce.RequestTopic{Topic: p.topic.name})
	}
	t := &req.Topics[i]
	t.Partitions = append(t.Partitions, rawproduce.RequestPartition{
		Partition: p.id,
		RecordSet: protocol.RawRecordSet{Reader: bytes.NewReader(set)},
	})
}

// noteFailure records that a request failed without a response. The broker's other partitions are not tried.
func (w *work) noteFailure(err error, sent []*partition) {
	// If another broker answered recently, the cluster is reachable, so only the partitions of this leader must wait.
	of := func(p *partition, err error) error {
		if w.s.client.WorksWithout(w.leader) {
			return w.s.partUnavailable(p, err)
		}
		return err
	}
	for _, p := range sent {
		p.moved = true
		if wire.Sent(err) {
			w.noteDoubt(p, err)
		} else {
			w.noteNotWritten(p, of(p, err))
		}
	}
	for _, p := range w.partitions {
		w.fail(p, of(p, fmt.Errorf("not sent, because another request to the broker failed: %w", err)))
	}
}

func answerFor(res *produce.Response, p *partition) *produce.ResponsePartition {
	for _, t := range res.Topics {
		for i := range t.Partitions {
			if t.Topic == p.topic.name && t.Partitions[i].Partition == p.id {
				return &t.Partitions[i]
			}
		}
	}
	return nil
}

// noteAnswer records what a partition's error code means for its batch. Source: the Kafka protocol guide, "Error
// Codes". An unknown code means that the batch was not written.
func (w *work) noteAnswer(p *partition, answer *produce.ResponsePartition) {
	code := kafkago.Error(answer.ErrorCode)
	if code == 0 || code == kafkago.DuplicateSequenceNumber && p.again { // The first attempt wrote the batch.
		w.noteWritten(p, answer.BaseOffset)
		return
	}
	err := w.s.client.CodeError(p.String(), code, answer.ErrorMessage)
	switch code {
	case kafkago.MessageSizeTooLarge, kafkago.RecordListTooLarge:
		w.divide(p, fmt.Errorf("%w: %d bytes, more than max.message.bytes of topic %s: %w",
			sinks.ErrOversize, p.batch.Size(), p.topic.name, code))
	case kafkago.InvalidRecord: // Smaller batches show which records are bad.
		for _, e := range answer.RecordErrors {
			err = fmt.Errorf("%w: %s", err, e.BatchIndexErrorMessage)
		}
		w.divide(p, err)
	case kafkago.InvalidTopic: // No event can be written to a topic with this name.
		w.fail(p, sinks.Permanent(err))
	case kafkago.OutOfOrderSequenceNumber, kafkago.InvalidProducerEpoch, kafkago.UnknownProducerId,
		kafkago.InvalidProducerIDMapping, kafkago.ProducerFenced, kafkago.DuplicateSequenceNumber:
		// The broker and the sink have different epochs or sequence numbers. The next attempt uses a new epoch.
		w.noteDoubt(p, w.s.partUnavailable(p, fmt.Errorf("%s: %w", p, code)))
		p.unsettle()
	case kafkago.RequestTimedOut, kafkago.NotEnoughReplicasAfterAppend, kafkago.NotLeaderForPartition,
		kafkago.FencedLeaderEpoch, kafkago.KafkaStorageError, kafkago.NetworkException, kafkago.Unknown:
		// A leader appends a batch before it waits for the followers. The batch stays in its log even if the wait fails.
		p.moved = true // The leader may have moved.
		w.noteDoubt(p, w.s.partUnavailable(p, err))
	case kafkago.UnknownTopicOrPartition, kafkago.TopicAuthorizationFailed:
		p.moved = true
		w.noteNotWritten(p, w.s.unavailable(p.topic, err))
	default:
		p.moved = true
		w.noteNotWritten(p, w.s.partUnavailable(p, err))
	}
}

// noteWritten records that the batch was written at the offset base, which is negative if it is not known.
func (w *work) noteWritten(p *partition, base int64) {
	for _, i := range p.queue[:p.n] {
		w.results[i] = nil
		if m := w.batch[i]; m.Origin.Left && p.fenced {
			w.s.fences.sent(m, w.s.partName(p), p.name)
		}
	}
	p.queue, p.inDoubt = p.queue[p.n:], nil
	p.producer.advance(p.batch.Records())
	if p.end = -1; base >= 0 {
		p.end = base + int64(p.batch.Records())
	}
	if base < 0 || !p.fenced {
		return
	}
	if base < p.next { // The topic was deleted and created again, so it contains no marker.
		p.unsettle()
	}
	p.next = base + int64(p.batch.Records())
}

// noteNotWritten records that this request did not write the batch. If the batch was also sent earlier, the result of
// the earlier attempt is still unknown.
func (w *work) noteNotWritten(p *partition, err error) {
	if p.again {
		w.noteDoubt(p, err)
	} else {
		w.fail(p, err)
	}
}

// noteDoubt records that the batch was perhaps written. The result of the partition's other messages remains
// ErrNotAttempted.
func (w *work) noteDoubt(p *partition, err error) {
	err = sinks.MaybeWritten(err)
	p.inDoubt, p.end = nil, -1
	for _, i := range p.queue[:p.n] {
		w.results[i] = err
		p.inDoubt = append(p.inDoubt, w.batch[i].ID)
	}
	p.queue = p.queue[:0]
}

// divide halves a batch of which the broker has not written any part, because at least one message is too large or
// bad. If the batch contains only one message, divide rejects the message with err.
func (w *work) divide(p *partition, err error) {
	if p.again { // The batch was perhaps written and will not be sent again unchanged.
		p.unsettle()
	}
	if p.n > 1 {
		p.batchBytes = p.batch.Size() / 2
	}
	if p.unsettled {
		w.noteDoubt(p, w.s.partUnavailable(p, err))
		return
	}
	if p.n > 1 {
		return
	}
	if !errors.Is(err, sinks.ErrOversize) {
		p.batchBytes = defaultBatchBytes // The batches were not too large.
	}
	w.refuse(p, err)
}

// fail marks the messages in the partition's queue as not sent. If err is permanent, it is the result of all queued
// messages. Otherwise err is the result of the first message, and the result of the others remains ErrNotAttempted.
func (w *work) fail(p *partition, err error) {
	for k, i := range p.queue {
		if k == 0 || sinks.IsPermanent(err) {
			w.results[i] = err
		}
	}
	p.queue = p.queue[:0]
}

// refuse rejects the partition's next message and removes it from the queue. It also removes all later messages of the
// same object, whose result remains ErrNotAttempted.
func (w *work) refuse(p *partition, err error) {
	w.results[p.queue[0]] = sinks.Permanent(err)
	key := w.batch[p.queue[0]].Key()
	p.queue = slices.DeleteFunc(p.queue[1:], func(i int) bool { return w.batch[i].Key() == key })
}
