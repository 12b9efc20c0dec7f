package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/reach"
)

// checkStream checks the stream. If the stream does not exist, checkStream creates it if the configuration allows that.
func (s *Sink) checkStream(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AckTimeout)
	defer cancel()
	var info *jetstream.StreamInfo
	err := s.client.Ask(ctx, func(ctx context.Context) (err error) {
		info, err = s.findStream(ctx)
		return err
	}, s.client.API()+".STREAM.")
	if err != nil {
		s.progress.failing = time.Time{} // without the stream, nothing can be read
		return s.stream.Error(err)
	}
	s.info, s.destination = info, s.stream.Destination(info)
	if err := s.stream.Unfit(&info.Config); err != nil {
		return err
	}
	for _, w := range s.stream.Warnings(&info.Config, s.client.Conn().MaxPayload()) {
		if text := w.Detail + "; " + w.Remedy; !s.warned[text] { // every warning is logged only once
			s.warned[text] = true
			s.cfg.Logger.Warn("stream can lose events", "cause", text, "stream", s.cfg.Stream.Name)
		}
	}
	s.headers.ttl = ""
	if info.Config.AllowMsgTTL {
		s.headers.ttl = s.cfg.Stream.deletionTTL()
	}
	return nil
}

func (s *Sink) findStream(ctx context.Context) (*jetstream.StreamInfo, error) {
	js, name := s.client.JetStream(), s.cfg.Stream.Name
	stream, err := s.lookUp(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) && s.cfg.Stream.Create {
		// CreateOrUpdateStream would change a stream that someone else has created since the lookup.
		stream, err = js.CreateStream(ctx, s.stream.Config)
		if err == nil && s.info != nil {
			const warning = "stream no longer existed and was created again, sending all existing objects to it"
			s.cfg.Logger.Warn(warning, "stream", name)
		} else if err == nil {
			s.cfg.Logger.Info("created stream", "stream", name, "subjects", stream.CachedInfo().Config.Subjects)
		}
	}
	if err != nil {
		return nil, err
	}
	return stream.CachedInfo(), nil
}

func (s *Sink) lookUp(ctx context.Context) (jetstream.Stream, error) {
	return repeat(ctx, func(ctx context.Context) (jetstream.Stream, error) {
		return s.client.JetStream().Stream(ctx, s.cfg.Stream.Name)
	})
}

// repeat sends a request again every half second until there is a response. Requests that are sent while a cluster has
// no leader are never answered, but later requests are.
func repeat[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer)
	tick := time.NewTicker(2 * reach.Interval)
	defer tick.Stop()
	for waiting := 0; ; {
		go func() {
			value, err := request(ctx)
			answers <- answer{value, err}
		}()
		waiting++
		select {
		case <-tick.C:
			continue
		case a := <-answers:
			cancel()
			for range waiting - 1 {
				<-answers
			}
			return a.value, a.err
		}
	}
}

// silent handles that no answer has arrived for some time.
func (s *Sink) silent() {
	f := &s.flight
	if f.flying == 0 || slices.Contains(f.status, flying) {
		f.giveUp(s.noAnswer())
		return
	}
	// The stream answers messages, but not requests for its last messages.
	err := fmt.Errorf("no answer to requests to %s: if the JetStream API belongs to another account, does it export this?",
		s.lookUpSubject())
	if s.cannotRead(err) {
		s.stopLookingUp(err)
	} else {
		f.giveUp(err)
	}
}

// noAnswer returns the error of messages that were not acknowledged in time.
func (s *Sink) noAnswer() error {
	err := fmt.Errorf("no acknowledgement within %s", s.cfg.AckTimeout.Round(time.Millisecond))
	cause := s.client.Conn().LastError()
	switch {
	case cause == nil:
		return err
	case errors.Is(cause, natsgo.ErrPermissionViolation): // the server does not answer such messages
		return s.client.Denied(err.Error(), cause, s.stream.Wildcard)
	}
	return fmt.Errorf("%w; last connection error: %w", err, cause)
}
