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

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

const acksAll = -1

// request sends the slots, and settles what the broker says of them.
func (w *work) request(ctx context.Context, slots []slot) {
	// The broker's own limit for the wait for followers is less than the sink's: its answer says more than silence.
	req := &rawproduce.Request{Acks: acksAll, Timeout: int32((w.s.cfg.RequestTimeout * 2 / 3).Milliseconds())}
	var sent []slot
	for _, sl := range slots {
		set, err := sl.b.encode(w.s.codec, w.s.producerOf(sl.p))
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
	msg, err := w.s.cluster.send(ctx, w.leader, req)
	if err != nil {
		w.lost(err, sent)
		return
	}
	w.settleAll(msg.(*produce.Response), sent)
}

func (s *Sink) producerOf(p *partition) producer {
	if s.producer < 0 {
		return producer{-1, -1, -1}
	}
	return producer{s.producer, p.epoch, p.sequence}
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

// lost settles a request without an answer. The broker's other partitions are not tried either.
func (w *work) lost(err error, sent []slot) {
	err = classify(err)
	// If another broker has just named this leader, the connection works, and only what this broker leads has to wait.
	of := func(p *partition, err error) error {
		if w.s.cluster.worksWithout(w.leader) {
			return w.s.partUnavailable(p, err)
		}
		return err
	}
	for _, sl := range sent {
		if sinks.IsMaybeWritten(err) {
			w.unclear(sl, err)
		} else if sl.again {
			w.unclear(sl, of(sl.p, err))
		} else {
			w.fail(sl.p, of(sl.p, err))
		}
		w.moved = append(w.moved, sl.p.topic)
	}
	for _, p := range w.partitions {
		w.fail(p, of(p, fmt.Errorf("another request failed: %w", unmarked(err))))
	}
}

// settleAll settles the slots by what the broker says of each.
func (w *work) settleAll(res *produce.Response, sent []slot) {
	for _, sl := range sent {
		answer := answerFor(res, sl.p)
		if answer == nil {
			w.unclear(sl, fmt.Errorf("kafka broker %s: no word about partition %d of topic %s",
				w.leader, sl.p.id, sl.p.topic.name))
			continue
		}
		w.settle(sl, answer)
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

func (w *work) settle(sl slot, answer *produce.ResponsePartition) {
	p, code := sl.p, kafkago.Error(answer.ErrorCode)
	if movesLeader(code) {
		w.moved = append(w.moved, p.topic)
	}
	err := func() error {
		err := w.s.codeError(fmt.Sprintf("partition %d of topic %s", p.id, p.topic.name), code, answer.ErrorMessage)
		switch {
		case judge(code) == notTopicFit || judge(code) == badRecord:
			return err
		case code == kafkago.UnknownTopicOrPartition || code == kafkago.TopicAuthorizationFailed:
			return w.s.unavailable(p.topic, err)
		}
		return w.s.partUnavailable(p, err)
	}
	v := judge(code)
	if code == kafkago.DuplicateSequenceNumber && sl.again {
		v = written // by the first attempt
	}
	switch v {
	case written:
		w.written(sl)
	case notWritten:
		if sl.again { // this time; the first attempt is as unclear as it was
			w.unclear(sl, err())
		} else {
			w.fail(p, err())
		}
	case maybe:
		w.unclear(sl, err())
	case outOfStep:
		w.unclear(sl, err())
		w.fence(p)
	case tooLarge:
		w.fenceAgain(sl)
		w.tooLarge(sl, code)
	case badRecord:
		w.fenceAgain(sl)
		w.badRecords(sl, answer, err())
	case notTopicFit:
		w.fail(p, sinks.Permanent(err()))
	}
}

func (w *work) written(sl slot) {
	p := sl.p
	for _, i := range p.queue[:sl.n] {
		w.results[i] = nil
	}
	p.queue, p.unsettled = p.queue[sl.n:], nil
	p.advance(sl.b.records())
	p.limit = min(2*p.limit, len(w.batch))
}

// unclear ends the partition's turn: the slot's messages were perhaps written, those behind them not attempted.
func (w *work) unclear(sl slot, err error) {
	if !sinks.IsMaybeWritten(err) {
		err = sinks.MaybeWritten(err)
	}
	p := sl.p
	if !sl.again {
		p.unsettled = make([]string, sl.n)
	}
	for k, i := range p.queue[:sl.n] {
		w.results[i] = err
		p.unsettled[k] = w.batch[i].ID
	}
	p.queue = p.queue[:0]
}

// fenceAgain is for a batch that was perhaps written and is now to be divided.
func (w *work) fenceAgain(sl slot) {
	if sl.again {
		w.fence(sl.p)
	}
}

// fence keeps what was perhaps written, and will not be sent again as the same batch, from being written after what
// comes next.
func (w *work) fence(p *partition) {
	if !p.fence() {
		w.exhausted = true
	}
}

// tooLarge halves the batch, or refuses its only message. The broker has written nothing of it.
func (w *work) tooLarge(sl slot, code kafkago.Error) {
	if sl.n > 1 {
		sl.p.batchBytes = sl.b.size() / 2
		return
	}
	w.refuse(sl.p, fmt.Errorf("%w: %d bytes, more than max.message.bytes of topic %s: %w",
		sinks.ErrOversize, sl.b.size(), sl.p.topic.name, code))
}

// badRecords refuses the messages that the broker names. If it names none, and there are several, halving the batch
// finds them. The broker has written nothing of the batch.
func (w *work) badRecords(sl slot, answer *produce.ResponsePartition, err error) {
	p := sl.p
	bad := make(map[int]string)
	for _, re := range answer.RecordErrors {
		i, found := slices.BinarySearch(sl.b.ends, re.BatchIndex)
		if found { // ends[i] counts the records up to message i: record ends[i] is the next message's
			i++
		}
		if i < sl.n {
			bad[i] = re.BatchIndexErrorMessage
		}
	}
	if len(bad) == 0 && sl.n > 1 {
		p.limit = sl.n / 2
		return
	}
	if len(bad) == 0 {
		bad[0] = ""
	}
	kept := p.queue[:0]
	refused := make(map[event.Key]bool)
	for k, i := range p.queue {
		words, isBad := bad[k]
		key := w.batch[i].Key()
		if !isBad && refused[key] { // not attempted
			continue
		}
		refused[key] = refused[key] || isBad
		switch {
		case isBad && words != "":
			w.results[i] = sinks.Permanent(fmt.Errorf("%w: %s", err, words))
		case isBad:
			w.results[i] = sinks.Permanent(err)
		default:
			kept = append(kept, i)
		}
	}
	p.queue = kept
}

// fail ends the partition's turn before its next message was sent. The first one gets err, the others stay not
// attempted; an error that no retry mends is everyone's.
func (w *work) fail(p *partition, err error) {
	for k, i := range p.queue {
		if k == 0 || sinks.IsPermanent(err) {
			w.results[i] = err
		}
	}
	p.queue = p.queue[:0]
}

// refuse says that the next message of the partition will never be taken, and leaves it out, with those of its object that
// come after it: they are not attempted.
func (w *work) refuse(p *partition, err error) {
	w.results[p.queue[0]] = sinks.Permanent(err)
	key := w.batch[p.queue[0]].Key()
	p.queue = slices.DeleteFunc(p.queue[1:], func(i int) bool { return w.batch[i].Key() == key })
}
