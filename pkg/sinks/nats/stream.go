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
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

// checkStream finds the stream fit, or creates it where it is missing and the configuration says so.
func (s *Sink) checkStream(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AckTimeout)
	defer cancel()
	watched, end := s.denials.during(ctx)
	info, err := s.findStream(watched)
	denial := end()
	if err != nil {
		return s.streamError(err, denial)
	}
	s.found, s.subjects = true, info.Config.Subjects
	s.destination, s.replicas = destinationOf(s.cfg.Stream.Name, info), info.Config.Replicas
	if err := s.unfit(&info.Config); err != nil {
		return s.unfitError(err)
	}
	s.warn(s.doubts(&info.Config, s.conn.MaxPayload()))
	s.apply(&info.Config)
	return nil
}

func (s *Sink) findStream(ctx context.Context) (*jetstream.StreamInfo, error) {
	js, err := jetstream.New(s.conn)
	if err != nil {
		return nil, err
	}
	want := s.cfg.Stream
	stream, err := lookUp(ctx, js, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) && want.Create {
		// Not CreateOrUpdate: whoever created it meanwhile wins.
		stream, err = js.CreateStream(ctx, s.cfg.jetstream(s.subject.Wildcard()))
		if err == nil && s.found {
			s.cfg.Logger.Warn("the stream was gone, with all that it held; created it again; it will be sent what exists", "stream", want.Name)
		} else if err == nil {
			s.cfg.Logger.Info("created stream", "stream", want.Name, "subjects", stream.CachedInfo().Config.Subjects)
		}
	}
	if err != nil {
		return nil, err
	}
	return stream.CachedInfo(), nil
}

// lookUp finds the stream. A cluster without a leader leaves requests unanswered, and answers those that come later: so the
// request is sent again while there is no answer.
func lookUp(ctx context.Context, js jetstream.JetStream, name string) (jetstream.Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		stream jetstream.Stream
		err    error
	}
	answers := make(chan answer)
	tick := time.NewTicker(2 * reach.Interval)
	defer tick.Stop()
	for waiting := 0; ; {
		go func() {
			stream, err := js.Stream(ctx, name)
			answers <- answer{stream, err}
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
			return a.stream, a.err
		}
	}
}

// streamError is why the stream could not be found or created, in words. denial is what the server denied meanwhile.
func (s *Sink) streamError(err, denial error) error {
	name := s.cfg.Stream.Name
	e := &sinks.ConnectError{Step: sinks.StepStream, Key: "nats.stream", Err: fmt.Errorf("stream %s: %w", name, err)}
	api, isAPI := errors.AsType[jetstream.JetStreamError](err)
	switch {
	case denial != nil:
		return s.denied("stream "+name+" can't be looked up or created", denial)
	case errors.Is(err, natsgo.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled),
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		e.Key = ""
		e.Err = access.Words(err, "the server, or this account, has no JetStream, or it is not up yet (%v)", err)
		e.Remedy = "enable JetStream on the server, and for the account of " + s.cfg.Auth.who()
	case errors.Is(err, jetstream.ErrStreamNotFound):
		e.Key = "nats.stream.create"
		e.Err, e.Rejected = access.Words(err, "stream %s does not exist", name), true
		e.Remedy = "create it, correct nats.stream.name, or set nats.stream.create: true"
	case errors.Is(err, context.DeadlineExceeded):
		e.Err = access.Words(err, "stream %s: JetStream gives no answer within %v", name, s.cfg.AckTimeout)
		e.Remedy = "see whether the cluster has a JetStream leader (nats server report jetstream)"
	case isAPI && api.APIError() != nil:
		e.Err = access.Words(err, "stream %s can't be created: %s", name, api.APIError().Description)
		e.Key, e.Remedy = creationRemedy(api.APIError().ErrorCode)
		e.Rejected = !passing(api.APIError())
	}
	return e
}

// creationRemedy is what to do about a stream that can't be created. The codes are the server's (errors.json).
func creationRemedy(code jetstream.ErrorCode) (key, remedy string) {
	switch code {
	case 10065: // subjects overlap with an existing stream
		return "nats.stream.subjects", "name that stream in nats.stream.name, or choose other subjects"
	case 10074, 10005: // replicas > 1 not supported in non-clustered mode; no suitable peers
		return "nats.stream.replicas", "ask for no more replicas than the cluster has servers with JetStream"
	case 10023, 10028, 10047, 10002: // insufficient resources, memory or storage; account resources exceeded
		return "nats.stream.maxBytes", "raise the limits of the server or the account, or ask for less"
	case 10027: // maximum number of streams reached
		return "nats.stream.create", "raise the account's limit of streams, or create it by hand"
	}
	return "nats.stream", ""
}

func (s *Sink) unfitError(err error) error {
	return &sinks.ConnectError{Step: sinks.StepStream, Key: "nats.stream", Err: fmt.Errorf("stream %s: %w", s.cfg.Stream.Name, err), Rejected: true}
}

// warn logs each doubt once in the sink's life.
func (s *Sink) warn(found []doubt) {
	for _, d := range found {
		text := d.what + "; " + d.remedy
		if !s.warned[text] {
			s.warned[text] = true
			s.cfg.Logger.Warn("stream can lose events", "doubt", text, "stream", s.cfg.Stream.Name)
		}
	}
}

// unfit says why a stream can't take messages whose subjects match wildcard, if it can't.
func unfit(c *jetstream.StreamConfig, wildcard string) error {
	switch {
	case c.Sealed:
		return errors.New("it is sealed and takes no messages: name another, or create it anew")
	case c.NoAck:
		return errors.New("it gives no acknowledgements (no_ack), without which no event is ever known to be delivered: turn no_ack off")
	case c.Mirror != nil:
		return errors.New("it is a mirror and takes no messages: name the stream that it mirrors")
	case !slices.ContainsFunc(c.Subjects, func(filter string) bool { return overlap(filter, wildcard) }):
		return fmt.Errorf("its subjects %q take none of %q: add the subject to the stream, or change the sink's subject", c.Subjects, wildcard)
	}
	return nil
}

// doubt is a way in which a stream that takes messages may lose some, and what to do about it.
type doubt struct{ what, remedy string }

// doubts are those of a stream for messages whose subjects match wildcard. mirror: it is to keep last messages alone.
func doubts(c *jetstream.StreamConfig, wildcard string, mirror bool, maxPayload int64) (out []doubt) {
	add := func(on bool, remedy, format string, args ...any) {
		if on {
			out = append(out, doubt{fmt.Sprintf(format, args...), remedy})
		}
	}
	add(!slices.ContainsFunc(c.Subjects, func(filter string) bool { return covers(filter, wildcard) }),
		fmt.Sprintf("add %q to its subjects", wildcard),
		"no subject of it covers all of %q (it has %q): events outside them are not delivered until the stream takes them", wildcard, c.Subjects)
	old := c.Discard == jetstream.DiscardOld
	add(old && (c.MaxBytes > 0 || c.MaxMsgs > 0), "with discard: new the bridge would wait instead",
		"when full (max_bytes %d, max_msgs %d) it drops its oldest messages, read or not", c.MaxBytes, c.MaxMsgs)
	add(c.MaxMsgsPerSubject > 0 && old && !mirror, "remove max_msgs_per_subject if each state matters, or set nats.stream.lastPerSubject: true if the last one does",
		"it keeps the last %d messages of each subject (max_msgs_per_subject): readers that lag behind miss the states before", c.MaxMsgsPerSubject)
	add(c.Retention == jetstream.InterestPolicy, "use retention: limits",
		"its retention is interest: what arrives while it has no consumer is gone at once")
	late := "what is sent again later than that is stored twice"
	if mirror {
		late = "after a broken connection, a copy that arrives later than that can replace a newer state"
	}
	add(c.Duplicates < DefaultDuplicateWindow && (c.MaxAge == 0 || c.Duplicates < c.MaxAge), fmt.Sprintf("use %s or more", DefaultDuplicateWindow),
		"it remembers ids for %s only (duplicate_window): %s", c.Duplicates, late)
	limit := maxPayload
	if c.MaxMsgSize > 0 {
		limit = min(limit, int64(c.MaxMsgSize))
	}
	add(limit < largestObject, "raise max_payload of the server (and max_msg_size of the stream)",
		"it takes messages of %d bytes at most, and an object can have %d: what becomes of larger ones says the sink's oversize", limit, largestObject)
	return out
}

// largestObject is the largest request that etcd takes by default, and so about the largest object, in bytes.
const largestObject = 3 << 19

// noAnswer is the error of messages whose acknowledgement did not come.
func (s *Sink) noAnswer() error {
	err := fmt.Errorf("no acknowledgement for %s", s.cfg.AckTimeout.Round(time.Millisecond))
	cause := s.dial.lastError()
	switch {
	case cause == nil:
		return err
	case errors.Is(cause, natsgo.ErrPermissionViolation): // told like this alone
		return s.denied(err.Error(), cause)
	}
	return fmt.Errorf("%w; the last error of the connection: %w", err, cause)
}
