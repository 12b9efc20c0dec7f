package natsaudit

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natscheck"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
)

const (
	defaultTimeout = 10 * time.Second
	batchBytes     = 1 << 20 // the size of the events after which Read returns
	// pullMessages and pullBytes limit what a server sends ahead of the reader.
	pullMessages, pullBytes = 1024, 16 << 20
	// lingering is how long Read collects messages after the first one.
	lingering = 20 * time.Millisecond
	// consumerKept is the time after which the server removes the consumer of a process that was killed.
	consumerKept = time.Minute
	// typeHeader is the header of a CloudEvent in binary mode that has its type.
	typeHeader = "ce-type"
)

var (
	errMissed   = errors.New("messages were lost on their way")
	errReplaced = errors.New("the stream was just created again")
)

// position is a place in a stream.
type position struct {
	Created time.Time `json:"created"` // when the stream was created
	Next    uint64    `json:"next"`    // the sequence of the next message
}

// Source reads a stream. It implements audit.Source.
type Source struct {
	stream  string
	client  natsconn.Client
	at      position
	started bool
	idle    time.Duration
	linger  time.Duration

	messages jetstream.MessagesContext // nil if there is no consumer
	consumer string
	received uint64 // messages of this consumer
}

// New returns a source that is not connected. The configuration must be valid.
func New(cfg Config) *Source {
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	s := &Source{stream: cfg.Stream, idle: audit.Idle, linger: lingering}
	s.client.Access, s.client.Prober = cfg.Access, new(reach.Prober)
	return s
}

// Name implements audit.Source.
func (s *Source) Name() string { return "nats stream " + s.stream }

// Close implements audit.Source.
func (s *Source) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.stop(ctx)
	s.client.Close(ctx)
}

// stop removes the consumer. If that is not possible, the server removes it after some time.
func (s *Source) stop(ctx context.Context) {
	if s.messages != nil {
		s.messages.Stop()
		s.messages = nil
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_ = s.client.Ask(ctx, func(ctx context.Context) error {
			return s.client.JetStream().DeleteConsumer(ctx, s.stream, s.consumer)
		})
	}
}

// Read implements audit.Source.
func (s *Source) Read(ctx context.Context, after json.RawMessage) (*audit.Batch, error) {
	if !s.started && len(after) > 0 {
		if err := json.Unmarshal(after, &s.at); err != nil {
			return nil, fmt.Errorf("the stored position: %w", err)
		}
	}
	s.started = true
	batch := &audit.Batch{}
	err := s.read(ctx, batch)
	if batch.Len() > 0 || err == nil { // the next call returns the error
		batch.Position, err = json.Marshal(s.at)
		return batch, err
	}
	return nil, cmp.Or(ctx.Err(), err)
}

// read reads what there is. If nothing arrives for the time audit.Idle, it reads nothing.
func (s *Source) read(ctx context.Context, batch *audit.Batch) (err error) {
	defer func() {
		if err != nil {
			s.stop(context.WithoutCancel(ctx))
		}
	}()
	if s.messages == nil {
		if err := s.consume(ctx, batch); err != nil {
			return err
		}
	}
	end := time.Now().Add(s.idle)
	for n := 0; batch.Bytes() < batchBytes; n++ {
		m, err := s.next(ctx, time.Until(end))
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("read stream %s: %w", s.stream, err)
		case m == nil && n == 0:
			s.stop(ctx) // and look whether the stream is still the same
			return nil
		case m == nil:
			return nil
		}
		if n == 0 {
			end = time.Now().Add(s.linger)
		}
		if err := s.take(m, batch); err != nil {
			return err
		}
	}
	return nil
}

// next returns the next message, or nil if there is none for a while.
func (s *Source) next(ctx context.Context, wait time.Duration) (jetstream.Msg, error) {
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	m, err := s.messages.Next(jetstream.NextContext(limited))
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	return m, err
}

// take adds the events of a message to the batch.
func (s *Source) take(m jetstream.Msg, batch *audit.Batch) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	s.received++
	sequence := meta.Sequence.Stream
	switch {
	case meta.Sequence.Consumer != s.received:
		return errMissed
	case sequence < s.at.Next: // the consumer is on a replica that did not have the next message yet
		return nil
	case sequence > s.at.Next:
		batch.Lose(int64(sequence-s.at.Next), fmt.Sprintf("messages %d to %d of stream %s were removed before they were read",
			s.at.Next, sequence-1, s.stream))
	}
	s.at.Next = sequence + 1
	batch.AddMessage(m.Headers().Get(typeHeader), m.Data(), "messages of stream "+s.stream)
	return nil
}

// consume connects, and creates a consumer that begins with the next message.
func (s *Source) consume(ctx context.Context, batch *audit.Batch) error {
	if err := s.client.Connect(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.client.Timeout)
	defer cancel()
	return s.client.Ask(ctx, func(ctx context.Context) error {
		stream, err := s.client.JetStream().Stream(ctx, s.stream)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return &sinks.ConnectError{
				Step: sinks.StepStream, Key: "audit.nats.stream", Rejected: true,
				Remedy: "create it, or correct audit.nats.stream", Err: fmt.Errorf("%s does not exist", s.stream),
			}
		case err == nil:
			err = s.check(stream.CachedInfo(), batch)
		}
		if err != nil {
			return fmt.Errorf("stream %s: %w", s.stream, err)
		}
		s.consumer, s.received = "deltabridge-audit-"+rand.Text(), 0
		consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
			Name: s.consumer, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: s.at.Next,
			AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: consumerKept,
		})
		if err != nil {
			return fmt.Errorf("create a consumer of stream %s: %w", s.stream, err)
		}
		switch now, err := stream.Info(ctx); {
		case err != nil:
			return fmt.Errorf("stream %s: %w", s.stream, err)
		case !now.Created.Equal(s.at.Created): // the consumer would begin in the middle of the new stream
			return fmt.Errorf("stream %s: %w", s.stream, errReplaced)
		}
		s.messages, err = consumer.Messages(
			natscheck.RepeatPull(jetstream.PullMaxMessagesWithBytesLimit(pullMessages, pullBytes))...)
		return err
	})
}

// check compares the position with the stream, and returns an error if the stream cannot be read.
func (s *Source) check(info *jetstream.StreamInfo, batch *audit.Batch) error {
	if info.Config.Retention != jetstream.LimitsPolicy {
		return &sinks.ConnectError{
			Step: sinks.StepStream, Key: "audit.nats.stream", Rejected: true, Remedy: "use a stream with retention: limits, " +
				"such as one that has this stream as a source",
			Err: fmt.Errorf("its retention is %v, so consumers remove its messages", info.Config.Retention),
		}
	}
	first := max(info.State.FirstSeq, 1)
	isNew, isSame := s.at.Next == 0, info.Created.Equal(s.at.Created)
	switch {
	case !isNew && (!isSame || s.at.Next > info.State.LastSeq+1):
		batch.Lose(0, fmt.Sprintf("stream %s was created again after it was read up to message %d", s.stream, s.at.Next-1))
	case !isNew && s.at.Next < first:
		batch.Lose(0, fmt.Sprintf("messages %d to %d of stream %s were removed before they were read", s.at.Next, first-1,
			s.stream))
	case !isNew:
		return nil
	}
	s.at = position{Created: info.Created, Next: first}
	return nil
}
