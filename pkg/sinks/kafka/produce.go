package kafka

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

const acksAll = -1

// request sends the slots in one request and records the results.
func (w *work) request(ctx context.Context, slots []slot) {
	req := &rawproduce.Request{Acks: acksAll, Timeout: w.s.client.WriteTimeout()}
	var sent []slot
	for _, sl := range slots {
		set, err := sl.b.encode(w.s.codec, producer{w.s.producer, sl.p.epoch, sl.p.sequence})
		switch {
		case err != nil:
			w.fail(sl.p, fmt.Errorf("compressing with %s: %w", w.s.codec.Name(), err))
		case len(set) > maxRecordBytes:
			w.refuse(sl.p, fmt.Errorf("%w: %d bytes", sinks.ErrOversize, len(set)))
		default:
			addToRequest(req, sl.p, set)
			sent = append(sent, sl)
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
	for _, sl := range sent {
		if answer := answerFor(msg.(*produce.Response), sl.p); answer != nil {
			w.noteAnswer(sl, answer)
		} else {
			w.noteDoubt(sl, fmt.Errorf("kafka broker %s: the produce response has no result for %s", w.leader, sl.p))
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
func (w *work) noteFailure(err error, sent []slot) {
	// If another broker answered recently, the cluster is reachable, so only the partitions of this leader must wait.
	of := func(p *partition, err error) error {
		if w.s.client.WorksWithout(w.leader) {
			return w.s.partUnavailable(p, err)
		}
		return err
	}
	for _, sl := range sent {
		if wire.Sent(err) {
			w.noteDoubt(sl, err)
		} else {
			w.noteNotWritten(sl, of(sl.p, err))
		}
		w.moved = append(w.moved, sl.p.topic)
	}
	for _, p := range w.partitions {
		w.fail(p, of(p, fmt.Errorf("another request failed: %w", err)))
	}
}

func answerFor(res *produce.Response, p *partition) *produce.ResponsePartition {
	for i := range res.Topics {
		if res.Topics[i].Topic != p.topic.name {
			continue
		}
		for j := range res.Topics[i].Partitions {
			if answer := &res.Topics[i].Partitions[j]; answer.Partition == p.id {
				return answer
			}
		}
	}
	return nil
}

func (w *work) noteAnswer(sl slot, answer *produce.ResponsePartition) {
	p, code := sl.p, kafkago.Error(answer.ErrorCode)
	if wire.MovesLeader(code) {
		w.moved = append(w.moved, p.topic)
	}
	v := judge(code)
	if code == kafkago.DuplicateSequenceNumber && sl.again {
		v = written // The first attempt wrote the batch.
	}
	if v == written {
		w.noteWritten(sl)
		return
	}
	err := w.s.client.CodeError(p.String(), code, answer.ErrorMessage)
	switch {
	case v == badTopic || v == badRecord:
	case v == outOfStep:
		err = w.s.partUnavailable(p, fmt.Errorf("%s: %w", p, code)) // The next attempt uses a new epoch and succeeds.
	case code == kafkago.UnknownTopicOrPartition || code == kafkago.TopicAuthorizationFailed:
		err = w.s.unavailable(p.topic, err)
	default:
		err = w.s.partUnavailable(p, err)
	}
	switch v {
	case notWritten:
		w.noteNotWritten(sl, err)
	case inDoubt:
		w.noteDoubt(sl, err)
	case outOfStep:
		w.noteDoubt(sl, err)
		w.fence(p)
	case tooLarge, badRecord:
		if sl.again { // The batch was perhaps written and will be divided, so it will not be sent again unchanged.
			w.fence(p)
		}
		switch {
		case v == tooLarge:
			w.halve(sl, code)
		case sl.n > 1: // Halving finds the bad messages. The broker has not written any part of the batch.
			p.limit = sl.n / 2
		default:
			for _, e := range answer.RecordErrors {
				err = fmt.Errorf("%w: %s", err, e.BatchIndexErrorMessage)
			}
			w.refuse(p, err)
		}
	case badTopic:
		w.fail(p, sinks.Permanent(err))
	}
}

func (w *work) noteWritten(sl slot) {
	p := sl.p
	for _, i := range p.queue[:sl.n] {
		w.results[i] = nil
	}
	p.queue, p.inDoubt = p.queue[sl.n:], nil
	p.advance(sl.b.records)
	p.limit = min(2*p.limit, len(w.batch))
}

// noteNotWritten records that this request did not write the slot. If the slot was also sent earlier, the result of the
// earlier attempt is still unknown.
func (w *work) noteNotWritten(sl slot, err error) {
	if sl.again {
		w.noteDoubt(sl, err)
	} else {
		w.fail(sl.p, err)
	}
}

// noteDoubt records that the slot's messages were perhaps written. The result of the partition's other messages remains
// ErrNotAttempted.
func (w *work) noteDoubt(sl slot, err error) {
	p := sl.p
	if !sl.again {
		p.inDoubt = make([]string, sl.n)
	}
	err = sinks.MaybeWritten(err)
	for k, i := range p.queue[:sl.n] {
		w.results[i] = err
		p.inDoubt[k] = w.batch[i].ID
	}
	p.queue = p.queue[:0]
}

// fence must be called if a batch was perhaps written and will not be sent again unchanged. The broker then rejects
// this batch, so it cannot be written after newer events.
func (w *work) fence(p *partition) {
	if !p.fence() {
		w.exhausted = true
	}
}

// halve divides a batch that is too large, or rejects its message if it contains only one. The broker has not written
// any part of the batch.
func (w *work) halve(sl slot, code kafkago.Error) {
	if sl.n > 1 {
		sl.p.batchBytes = sl.b.size() / 2
		return
	}
	w.refuse(sl.p, fmt.Errorf("%w: %d bytes, more than max.message.bytes of topic %s: %w",
		sinks.ErrOversize, sl.b.size(), sl.p.topic.name, code))
}

// fail records that the partition's queue was not sent. If err is permanent, it is the result of all queued messages.
// Otherwise err is the result of the first message, and the result of the others remains ErrNotAttempted.
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
