package natscheck

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
)

// forgotten is the time after which the server removes an unused consumer.
const forgotten = time.Minute

// deleteTimeout is the timeout for removing the consumer of Read.
const deleteTimeout = 5 * time.Second

// Read implements [diagnose.Reader] with an ephemeral ordered consumer, which acknowledges nothing. It does not create
// the stream.
func (s *Stream) Read(
	ctx context.Context,
	c *natsconn.Client,
	o diagnose.ReadOptions,
	handle func(*diagnose.Record) error,
) error {
	if err := c.Connect(ctx); err != nil {
		return err
	}
	stream, consumer, err := s.consumer(ctx, c, o)
	if err != nil {
		return err
	}
	defer func() { // the current name is required because the name changes after every recovery
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
		defer cancel()
		_ = stream.DeleteConsumer(last, consumer.CachedInfo().Name) // otherwise the server removes it later
	}()
	if !o.Follow && consumer.CachedInfo().NumPending == 0 {
		return nil
	}
	end := stream.CachedInfo().State.LastSeq
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("read stream %s: %w", s.Config.Name, err)
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, jetstream.ErrNoHeartbeat):
			continue // the consumer recovers by itself
		case err != nil:
			return fmt.Errorf("read stream %s: %w", s.Config.Name, err)
		}
		r, sequence, err := s.record(m)
		if err == nil {
			err = handle(r)
		}
		if err != nil {
			return err
		}
		if !o.Follow && (sequence >= end || r.Behind == 0) {
			return nil
		}
	}
}

// consumer returns the stream and a new consumer.
func (s *Stream) consumer(ctx context.Context, c *natsconn.Client, o diagnose.ReadOptions) (
	stream jetstream.Stream, consumer jetstream.Consumer, err error,
) {
	ctx, cancel := context.WithTimeout(ctx, s.Access.Timeout)
	defer cancel()
	js, err := jetstream.New(c.Conn())
	if err != nil {
		return nil, nil, err
	}
	config := jetstream.OrderedConsumerConfig{InactiveThreshold: forgotten, NamePrefix: "deltabridge-tail-" + rand.Text()}
	if !o.Since.IsZero() {
		config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &o.Since
	}
	err = c.Ask(ctx, func(ctx context.Context) (err error) {
		if stream, err = js.Stream(ctx, s.Config.Name); err == nil {
			consumer, err = stream.OrderedConsumer(ctx, config)
		}
		return err
	})
	if err != nil {
		return nil, nil, s.Error(err)
	}
	return stream, consumer, nil
}

// record converts a message to a [diagnose.Record]. It also returns the sequence number of the message.
func (s *Stream) record(m jetstream.Msg) (*diagnose.Record, uint64, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, 0, fmt.Errorf("read stream %s: %w", s.Config.Name, err)
	}
	r := &diagnose.Record{
		Place:  m.Subject() + " #" + strconv.FormatUint(meta.Sequence.Stream, 10),
		Stored: meta.Timestamp, Behind: int64(meta.NumPending),
	}
	headers := m.Headers()
	if strings.HasPrefix(headers.Get("content-type"), "application/cloudevents+json") {
		r.Received, r.Foreign = event.ParseStructured(m.Data())
		return r, meta.Sequence.Stream, nil
	}
	r.Attributes, r.Data = make(map[string]string, len(headers)), m.Data()
	for name, values := range headers {
		if attribute, ok := strings.CutPrefix(name, "ce-"); ok && len(values) > 0 {
			r.Attributes[attribute] = decode(values[0])
		}
	}
	if r.Attributes["id"] == "" {
		r.Foreign = errors.New("it has no header ce-id")
	}
	return r, meta.Sequence.Stream, nil
}

// decode decodes the value of a header. If the encoding is invalid, decode returns the value unchanged.
func decode(value string) string {
	if text, err := url.PathUnescape(value); err == nil {
		return text
	}
	return value
}
