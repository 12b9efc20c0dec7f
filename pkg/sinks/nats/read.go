package nats

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

var _ diagnose.Reader = (*Sink)(nil)

// forgotten is after how long the server removes a reader that went away without a word.
const forgotten = time.Minute

// Read implements [diagnose.Reader], by an ephemeral ordered consumer, which acknowledges nothing. The stream is not created.
// With an embedded server it reads from the one that runs at its address, in another process.
func (s *Sink) Read(ctx context.Context, o diagnose.ReadOptions, handle func(*diagnose.Record) error) error {
	if e := s.cfg.Embedded; e != nil {
		s.cfg.URLs, s.cfg.Embedded = []string{(&url.URL{Scheme: "nats", Host: e.Listen}).String()}, nil
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	stream, consumer, err := s.consumer(ctx, o)
	if err != nil {
		return err
	}
	defer func() { // by its present name, which changes with each recovery
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
		defer cancel()
		_ = stream.DeleteConsumer(last, consumer.CachedInfo().Name) // the server forgets it anyway
	}()
	if !o.Follow && consumer.CachedInfo().NumPending == 0 {
		return nil
	}
	end := stream.CachedInfo().State.LastSeq
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("read stream %s: %w", s.cfg.Stream.Name, err)
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
			return fmt.Errorf("read stream %s: %w", s.cfg.Stream.Name, err)
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

// consumer finds the stream and makes the consumer.
func (s *Sink) consumer(ctx context.Context, o diagnose.ReadOptions) (jetstream.Stream, jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AckTimeout)
	defer cancel()
	js, err := jetstream.New(s.conn)
	if err != nil {
		return nil, nil, err
	}
	watched, end := s.denials.during(ctx)
	stream, err := js.Stream(watched, s.cfg.Stream.Name)
	config := jetstream.OrderedConsumerConfig{InactiveThreshold: forgotten, NamePrefix: "deltabridge-tail-" + natsgo.NewInbox()[len(natsgo.InboxPrefix):]}
	if !o.Since.IsZero() {
		config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &o.Since
	}
	var consumer jetstream.Consumer
	if err == nil {
		consumer, err = stream.OrderedConsumer(watched, config)
	}
	denial := end()
	if err != nil {
		return nil, nil, s.streamError(err, denial)
	}
	return stream, consumer, nil
}

// record is a message as [diagnose.Record], with its sequence number.
func (s *Sink) record(m jetstream.Msg) (*diagnose.Record, uint64, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, 0, fmt.Errorf("read stream %s: %w", s.cfg.Stream.Name, err)
	}
	r := &diagnose.Record{
		Place:  m.Subject() + " #" + strconv.FormatUint(meta.Sequence.Stream, 10),
		Stored: meta.Timestamp, Behind: int64(meta.NumPending),
	}
	headers := m.Headers()
	if strings.HasPrefix(headers.Get(contentType), "application/cloudevents+json") {
		r.Received, r.Foreign = event.ParseStructured(m.Data())
		return r, meta.Sequence.Stream, nil
	}
	r.Attributes, r.Data = make(map[string]string, len(headers)), m.Data()
	for name, values := range headers {
		if attribute, ok := strings.CutPrefix(name, attributePrefix); ok && len(values) > 0 {
			r.Attributes[attribute] = decode(values[0])
		}
	}
	if r.Attributes["id"] == "" {
		r.Foreign = errors.New("it has no header " + attributePrefix + "id")
	}
	return r, meta.Sequence.Stream, nil
}

// decode undoes encode. What is no encoding is left as it is.
func decode(value string) string {
	if !strings.Contains(value, "%") {
		return value
	}
	if text, err := url.PathUnescape(value); err == nil {
		return text
	}
	return value
}
