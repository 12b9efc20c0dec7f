package natslog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
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
	info := stream.CachedInfo()
	if again := !l.created.IsZero() && !l.created.Equal(info.Created); again && from > 1 {
		l.created = info.Created
		l.log.Warn("the stream of the state log was created again", "stream", info.Config.Name, "created", info.Created)
		return 1, nil
	}
	l.created = info.Created
	next, last := uint64(max(from, 1)), info.State.LastSeq
	if info.State.Msgs == 0 {
		return endOf(stream), nil
	}
	var refused error
	deliver := func(position int64, record []byte) error {
		refused = each(position, record)
		return refused
	}
	err = l.repeat(ctx, func(ctx context.Context) error {
		before := next
		err := l.readPart(ctx, &next, last, deliver)
		if next > before {
			l.pause.Reset()
		}
		return permanent(err)
	})
	switch {
	case refused != nil:
		return int64(next), refused
	case err != nil:
		return int64(next), l.explain("read stream "+info.Config.Name, err)
	}
	return endOf(stream), nil
}

// readPart reads the messages up to the sequence last from one consumer. It counts next up to the sequence after the last
// message that each has received.
func (l *Log) readPart(
	ctx context.Context, next *uint64, last uint64, each func(position int64, record []byte) error,
) error {
	if *next > last {
		return nil
	}
	messages, stop, err := l.consume(ctx, *next)
	if err != nil {
		return err
	}
	defer stop()
	for read := uint64(1); *next <= last; read++ {
		m, err := messages.Next(jetstream.NextMaxWait(l.client.Timeout / requestsInTimeout))
		if errors.Is(err, natsgo.ErrTimeout) {
			return l.isRead(ctx, *next, last)
		}
		if err != nil {
			return cmp.Or(ctx.Err(), err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if meta.Sequence.Consumer != read {
			return errGap
		}
		at := meta.Sequence.Stream
		if at > last {
			return nil // the rest was removed in the meantime
		}
		if at < *next {
			continue // the consumer is on a replica that did not have next yet
		}
		if err := each(int64(at), m.Data()); err != nil {
			return backoff.Permanent(err)
		}
		*next = at + 1
	}
	return nil
}

// isRead returns nil if the stream has no messages from next to last, because they were deleted. The consumer may be on
// a replica that does not have them yet, so the leader must confirm that.
func (l *Log) isRead(ctx context.Context, next, last uint64) error {
	m, err := l.get(ctx, server.JSApiMsgGetRequest{Seq: next, NextFor: ">"})
	if err == nil && m != nil && m.Sequence <= last {
		err = errStalled
	}
	return err
}

// consume begins to read at a sequence. An ordered consumer of nats.go is the same, but it recovers by itself, even after
// ctx has ended.
func (l *Log) consume(ctx context.Context, from uint64) (jetstream.MessagesContext, func(), error) {
	limited, cancel := l.request(ctx)
	defer cancel()
	js, name := l.client.JetStream(), l.stream.Config.Name
	consumer, err := js.CreateConsumer(limited, name, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: consumerKept,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("create a consumer: %w", err)
	}
	remove := func() {
		ctx, cancel := l.request(context.WithoutCancel(ctx))
		defer cancel()
		_ = js.DeleteConsumer(ctx, name, consumer.CachedInfo().Name) // if it fails, the server removes it later
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(pullMessages, max(pullBytes, 2*l.limit)))
	if err != nil {
		remove()
		return nil, nil, err
	}
	atEnd := context.AfterFunc(ctx, messages.Stop)
	return messages, func() { atEnd(); messages.Stop(); remove() }, nil
}
