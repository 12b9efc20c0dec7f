package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// checkStream finds the stream fit, or creates it where it is missing and the configuration says so.
func (s *Sink) checkStream(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AckTimeout)
	defer cancel()
	js, err := jetstream.New(s.conn)
	if err != nil {
		return fmt.Errorf("jetstream: %w", err)
	}
	want := s.cfg.Stream
	stream, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if !want.Create {
			return fmt.Errorf("stream %s does not exist: create it, or set stream.create: true", want.Name)
		}
		// Not CreateOrUpdate: whoever created it meanwhile wins.
		stream, err = js.CreateStream(ctx, want.jetstream(s.subject.Wildcard()))
		if err == nil && s.found {
			s.cfg.Logger.Warn("the stream was gone, with all that it held; created it again", "stream", want.Name)
		} else if err == nil {
			s.cfg.Logger.Info("created stream", "stream", want.Name, "subjects", stream.CachedInfo().Config.Subjects)
		}
	}
	switch {
	case errors.Is(err, natsgo.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled),
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("the server, or this account, has no JetStream, or it is not up yet: enable it there: %w", err)
	case err != nil:
		return fmt.Errorf("stream %s: %w", want.Name, err)
	}
	s.found = true
	config := stream.CachedInfo().Config
	if err := unfit(&config, s.subject.Wildcard()); err != nil {
		return fmt.Errorf("stream %s: %w", want.Name, err)
	}
	s.warn(doubts(&config, s.subject.Wildcard(), s.conn.MaxPayload()))
	return nil
}

// warn logs each doubt once in the sink's life.
func (s *Sink) warn(found []string) {
	for _, doubt := range found {
		if !s.warned[doubt] {
			s.warned[doubt] = true
			s.cfg.Logger.Warn("stream can lose events", "doubt", doubt, "stream", s.cfg.Stream.Name)
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

// doubts says how a stream that takes messages may lose events, each with its remedy.
func doubts(c *jetstream.StreamConfig, wildcard string, maxPayload int64) (out []string) {
	doubt := func(on bool, format string, args ...any) {
		if on {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	doubt(!slices.ContainsFunc(c.Subjects, func(filter string) bool { return covers(filter, wildcard) }),
		"no subject of it covers all of %q (it has %q): events outside them are not delivered until the stream takes them", wildcard, c.Subjects)
	old := c.Discard == jetstream.DiscardOld
	doubt(old && (c.MaxBytes > 0 || c.MaxMsgs > 0),
		"when full (max_bytes %d, max_msgs %d) it drops its oldest messages, read or not; with discard: new the bridge would wait instead", c.MaxBytes, c.MaxMsgs)
	doubt(c.MaxMsgsPerSubject > 0 && old,
		"it keeps the last %d messages of each subject (max_msgs_per_subject): readers that lag behind miss the states before", c.MaxMsgsPerSubject)
	doubt(c.Retention == jetstream.InterestPolicy,
		"its retention is interest: what arrives while it has no consumer is gone at once; use retention: limits")
	doubt(c.Duplicates < DefaultDuplicateWindow && (c.MaxAge == 0 || c.Duplicates < c.MaxAge),
		"it remembers ids for %s only (duplicate_window): what is sent again later than that is stored twice; use %s or more", c.Duplicates, DefaultDuplicateWindow)
	limit := maxPayload
	if c.MaxMsgSize > 0 {
		limit = min(limit, int64(c.MaxMsgSize))
	}
	doubt(limit < largestObject,
		"it takes messages of %d bytes at most, and an object can have %d: larger ones become gap events; raise max_payload of the server (and max_msg_size of the stream)", limit, largestObject)
	return out
}

// largestObject is the largest request that etcd takes by default, and so about the largest object, in bytes.
const largestObject = 3 << 19

// covers reports whether every subject that matches pattern matches filter too. Both may hold the wildcards * and >.
func covers(filter, pattern string) bool {
	return match(filter, pattern, func(f, p string) bool { return f == "*" || f == p })
}

// overlap reports whether some subject matches both.
func overlap(filter, pattern string) bool {
	return match(filter, pattern, func(f, p string) bool { return f == "*" || p == "*" || f == p })
}

// match compares token by token. A > in filter stands for one or more further tokens; pattern, which comes of a
// template, has none.
func match(filter, pattern string, token func(f, p string) bool) bool {
	fs, ps := strings.Split(filter, "."), strings.Split(pattern, ".")
	for i, f := range fs {
		if f == ">" {
			return len(ps) > i
		}
		if i >= len(ps) || !token(f, ps[i]) {
			return false
		}
	}
	return len(fs) == len(ps)
}

// noAnswer is the error of messages whose acknowledgement did not come.
func (s *Sink) noAnswer() error {
	err := fmt.Errorf("no acknowledgement for %s", s.cfg.AckTimeout.Round(time.Millisecond))
	if cause := s.dial.lastError(); cause != nil { // a permission violation, for example, is only told like this
		return fmt.Errorf("%w; the last error of the connection: %w", err, cause)
	}
	return err
}
