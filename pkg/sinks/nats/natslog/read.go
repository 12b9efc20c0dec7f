package natslog

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natscheck"
)

const (
	// few is the maximum number of messages that are requested one by one. More messages are read with a consumer.
	few = 10
	// pullMessages and pullBytes limit what a server sends ahead of the reader.
	pullMessages, pullBytes = 1024, 16 << 20
	// consumerKept is the time after which the server removes a consumer that the reader could not remove.
	consumerKept = time.Minute
)

var (
	errStalled = errors.New("the server stopped delivering messages")
	errGap     = errors.New("messages were lost on their way")
)

// Read implements [statelog.Log]. After a failure it continues with the next record.
func (l *Log) Read(
	ctx context.Context, from int64, each func(position int64, record []byte) error,
) (end int64, err error) {
	stream, err := l.find(ctx)
	if err != nil {
		return from, err
	}
	info, again := stream.CachedInfo(), l.isAnother(stream)
	if l.created = info.Created; again && from > 1 {
		l.log.Warn("the stream of the state log was created again", "stream", info.Config.Name, "created", info.Created)
		return 1, nil
	}
	if info.State.Msgs == 0 {
		return endOf(stream), nil
	}
	r := reader{Log: l, each: each, next: uint64(max(from, 1)), last: info.State.LastSeq}
	defer r.removeConsumers(ctx)
	err = l.repeat(ctx, func(ctx context.Context) error {
		before := r.next
		err := r.read(ctx)
		if r.next > before {
			l.pause.Reset()
		}
		return permanent(err)
	})
	switch {
	case r.refused != nil:
		return int64(r.next), r.refused
	case err != nil:
		return int64(r.next), l.explain("read stream "+info.Config.Name, err)
	}
	return endOf(stream), nil
}

// reader is the state of one Read.
type reader struct {
	*Log
	each       func(position int64, record []byte) error
	refused    error    // the error that the function each has returned
	next, last uint64   // the sequences of the first and the last message that are still to be read
	consumers  []string // the names of the consumers that must be removed
}

// read reads the messages from next to last. If they are few, it requests them one by one, because creating a consumer
// involves all servers of a cluster. It also requests the first one by itself, because the caller may require no other,
// and the server sends a consumer many.
func (r *reader) read(ctx context.Context) error {
	for first := true; r.next <= r.last; first = false {
		if !first && r.next+few <= r.last {
			return r.readMany(ctx)
		}
		m, err := r.get(ctx, server.JSApiMsgGetRequest{Seq: r.next, NextFor: ">"})
		if err != nil {
			return err
		}
		if m == nil || m.Sequence > r.last {
			return nil // the rest was removed
		}
		if err := r.deliver(m.Sequence, m.Data); err != nil {
			return err
		}
	}
	return nil
}

// readMany reads the messages with a consumer. After an error, r.next is the first message that it did not read.
func (r *reader) readMany(ctx context.Context) error {
	messages, err := r.consume(ctx)
	if err != nil {
		return err
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	for n := uint64(1); r.next <= r.last; n++ {
		m, err := messages.Next(jetstream.NextMaxWait(r.client.Timeout / requestsInTimeout))
		if errors.Is(err, natsgo.ErrTimeout) {
			return r.isRead(ctx)
		}
		if err = cmp.Or(ctx.Err(), err); err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		at := meta.Sequence.Stream
		switch {
		case meta.Sequence.Consumer != n:
			return errGap
		case at > r.last: // the rest was removed in the meantime
			return nil
		case at < r.next: // the consumer is on a replica that did not have next yet
			continue
		}
		if err := r.deliver(at, m.Data()); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) deliver(sequence uint64, record []byte) error {
	if r.refused = r.each(int64(sequence), record); r.refused != nil {
		return backoff.Permanent(r.refused)
	}
	r.next = sequence + 1
	return nil
}

// isRead returns nil if the remaining messages were removed. The consumer may be on a replica that does not have them
// yet, so the leader must confirm that they were removed.
func (r *reader) isRead(ctx context.Context) error {
	m, err := r.get(ctx, server.JSApiMsgGetRequest{Seq: r.next, NextFor: ">"})
	if err == nil && m != nil && m.Sequence <= r.last {
		err = errStalled
	}
	return err
}

// consume creates a consumer. An ordered consumer of nats.go is similar, but it recovers by itself, even after ctx has
// ended.
func (r *reader) consume(ctx context.Context) (jetstream.MessagesContext, error) {
	ctx, cancel := r.request(ctx)
	defer cancel()
	name := "deltabridge-state-" + rand.Text()
	r.consumers = append(r.consumers, name) // even if there is no answer, it may exist
	consumer, err := r.client.JetStream().CreateConsumer(ctx, r.stream.Config.Name, jetstream.ConsumerConfig{
		Name: name, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.next,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: consumerKept,
	})
	if err != nil {
		return nil, fmt.Errorf("create a consumer: %w", err)
	}
	limit := jetstream.PullMaxMessagesWithBytesLimit(pullMessages, max(pullBytes, 2*r.limit))
	return consumer.Messages(natscheck.RepeatPull(limit)...)
}

// removeConsumers removes the consumers as far as that is possible. The server removes the others after some time.
func (r *reader) removeConsumers(ctx context.Context) {
	for _, name := range r.consumers {
		ctx, cancel := r.request(context.WithoutCancel(ctx))
		_ = r.client.Ask(ctx, func(ctx context.Context) error {
			return r.client.JetStream().DeleteConsumer(ctx, r.stream.Config.Name, name)
		})
		cancel()
	}
}
