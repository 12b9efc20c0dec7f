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
	ctx context.Context, c *natsconn.Client, o diagnose.ReadOptions, handle func(*diagnose.Record) error,
) error {
	if err := c.Connect(ctx); err != nil {
		return err
	}
	consumer, err := s.consumer(ctx, c, o)
	if err != nil {
		return err
	}
	defer func() { // the current name is required because the name changes after every recovery
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
		defer cancel()
		// If it fails, the server removes the consumer later.
		_ = c.JetStream().DeleteConsumer(last, s.Config.Name, consumer.CachedInfo().Name)
	}()
	existing := consumer.CachedInfo().NumPending
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("read stream %s: %w", s.Config.Name, err)
	}
	defer messages.Stop()
	for o.Follow || existing > 0 {
		m, err := messages.Next(jetstream.NextContext(ctx))
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, jetstream.ErrNoHeartbeat):
			continue // the consumer recovers by itself
		case err != nil:
			return fmt.Errorf("read stream %s: %w", s.Config.Name, err)
		}
		r, err := s.record(m)
		if err == nil {
			err = handle(r)
		}
		if err != nil {
			return err
		}
		existing = min(existing-1, uint64(r.Behind)) // messages can expire before they are read
	}
	return nil
}

// consumer returns a new consumer.
func (s *Stream) consumer(
	ctx context.Context, c *natsconn.Client, o diagnose.ReadOptions,
) (consumer jetstream.Consumer, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.Access.Timeout)
	defer cancel()
	config := jetstream.OrderedConsumerConfig{InactiveThreshold: forgotten, NamePrefix: "deltabridge-tail-" + rand.Text()}
	if !o.Since.IsZero() {
		config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &o.Since
	}
	err = c.Ask(ctx, func(ctx context.Context) (err error) {
		consumer, err = c.JetStream().OrderedConsumer(ctx, s.Config.Name, config)
		return err
	})
	if err != nil {
		return nil, s.Error(err)
	}
	return consumer, nil
}

// record converts a message to a [diagnose.Record].
func (s *Stream) record(m jetstream.Msg) (*diagnose.Record, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", s.Config.Name, err)
	}
	r := &diagnose.Record{
		Place:  m.Subject() + " #" + strconv.FormatUint(meta.Sequence.Stream, 10),
		Stored: meta.Timestamp, Behind: int64(meta.NumPending),
	}
	headers := m.Headers()
	if strings.HasPrefix(headers.Get("content-type"), "application/cloudevents+json") {
		r.Received, r.Foreign = event.ParseStructured(m.Data())
		return r, nil
	}
	r.Attributes, r.Data = make(map[string]string, len(headers)), m.Data()
	for name, values := range headers {
		if attribute, ok := strings.CutPrefix(name, "ce-"); ok && len(values) > 0 {
			r.Attributes[attribute] = Decode(values[0])
		}
	}
	if r.Attributes["id"] == "" {
		r.Foreign = errors.New("it has no header ce-id")
	}
	return r, nil
}

// Decode decodes the percent-encoded value of a header. If the encoding is invalid, it returns the value unchanged.
func Decode(value string) string {
	if text, err := url.PathUnescape(value); err == nil {
		return text
	}
	return value
}
