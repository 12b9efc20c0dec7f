package natslog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natscheck"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
)

const (
	// defaultTimeout is how long a method tries before it returns the last error.
	defaultTimeout = 10 * time.Second
	// requestsInTimeout is how many requests without an answer fit into the timeout.
	requestsInTimeout = 4
	// closeTimeout is the maximum duration of Close if the server does not respond.
	closeTimeout = time.Second
	// changeSubject is the end of a remedy that does not apply to a log, which has no such key.
	changeSubject = ", or change nats.subject"
)

// errNoLeader means that a replica has answered. A replica answers if it has not heard of a leader for some time.
var errNoLeader = errors.New("the stream has no leader")

// Log implements [statelog.Log]. It connects when its first method is called.
type Log struct {
	stream  natscheck.Stream // what the log requires of the stream
	subject string
	client  natsconn.Client
	log     *slog.Logger
	pause   *backoff.ExponentialBackOff // of repeat
	limit   int                         // bytes of the largest message, including headers; 0 if it is not known
	created time.Time                   // the creation time of the stream that was read; zero before the first Read
}

var _ statelog.Log = (*Log)(nil)

// New returns a log that is not connected yet. The configuration must be valid. New does no I/O.
func New(cfg Config) *Log {
	defaults := strictyaml.Default[Config]()
	cfg.Stream.Name = cmp.Or(cfg.Stream.Name, defaults.Stream.Name)
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	l := &Log{
		subject: cfg.Stream.subject(), log: cmp.Or(cfg.Logger, slog.Default()),
		pause: backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
			backoff.WithMultiplier(2), backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(cfg.Timeout)),
	}
	l.client.Access, l.client.Prober = cfg.Access, new(reach.Prober)
	l.stream = natscheck.Stream{
		Access: &l.client.Access, Config: cfg.Stream.jetstream(), Create: cfg.Stream.Create, Wildcard: l.subject,
	}
	return l
}

// Close implements [statelog.Log].
func (l *Log) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	l.client.Close(ctx)
	return nil
}

// MaxRecord implements [statelog.Log].
func (l *Log) MaxRecord() int {
	const headers = "NATS/1.0\r\n" + natsgo.ExpectedStreamHdr + ": \r\n" + natsgo.ExpectedLastSeqHdr + ": \r\n\r\n"
	const digits = 20
	return max(0, l.limit-len(headers)-len(l.stream.Config.Name)-digits)
}

// Fence implements [statelog.Log]. The fence itself is in Append.
func (l *Log) Fence(ctx context.Context) (end int64, err error) {
	stream, err := l.find(ctx)
	if err != nil {
		return 0, err
	}
	return endOf(stream), nil
}

// isAnother reports whether the stream was deleted and created again since it was read.
func (l *Log) isAnother(stream jetstream.Stream) bool {
	return !l.created.IsZero() && !l.created.Equal(stream.CachedInfo().Created)
}

// endOf returns the position after the last record.
func endOf(stream jetstream.Stream) int64 { return int64(stream.CachedInfo().State.LastSeq) + 1 }

// Append implements [statelog.Log].
func (l *Log) Append(ctx context.Context, after int64, record []byte) (end int64, err error) {
	err = l.repeat(ctx, func(ctx context.Context) error {
		if size, largest := len(record), l.MaxRecord(); l.limit > 0 && size > largest {
			return backoff.Permanent(fmt.Errorf("%w: %d bytes, more than %d", statelog.ErrTooLarge, size, largest))
		}
		err := l.publish(ctx, after, record)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, statelog.ErrTooLarge):
			return backoff.Permanent(err)
		}
		return l.resolve(ctx, after, record, err)
	})
	if err != nil {
		return 0, l.explain("append to stream "+l.stream.Config.Name, err)
	}
	return after + 1, nil
}

// publish sends a record once.
func (l *Log) publish(ctx context.Context, after int64, record []byte) error {
	ctx, cancel := l.request(ctx)
	defer cancel()
	ack, err := l.client.JetStream().Publish(ctx, l.subject, record,
		jetstream.WithExpectStream(l.stream.Config.Name), jetstream.WithExpectLastSequence(uint64(after-1)))
	switch {
	case errors.Is(err, natsgo.ErrMaxPayload), isCode(err, server.JSStreamMessageExceedsMaximumErr):
		return fmt.Errorf("%w: %w", statelog.ErrTooLarge, err)
	case err != nil:
		return fmt.Errorf("not acknowledged: %w", err)
	case ack.Sequence != uint64(after):
		return fmt.Errorf("acknowledged with another sequence, %d, by stream %s %s", ack.Sequence, ack.Stream, ack.Domain)
	}
	return nil
}

// resolve finds out whether a record was written although publish failed with cause. It returns cause if the record was
// not written.
func (l *Log) resolve(ctx context.Context, after int64, record []byte, cause error) error {
	conflict := func(format string, args ...any) error {
		return backoff.Permanent(fmt.Errorf("%w: %s", statelog.ErrConflict, fmt.Sprintf(format, args...)))
	}
	l.log.Debug("state log: looking for a record", "position", after, "err", cause)
	stream, err := l.lookUp(ctx)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return conflict("the stream was deleted")
	case err != nil:
		return fmt.Errorf("%w; %w", cause, err)
	case endOf(stream) < after:
		return conflict("the stream ends at sequence %d, before %d", endOf(stream)-1, after-1)
	case endOf(stream) > after:
		stored, err := l.get(ctx, server.JSApiMsgGetRequest{Seq: uint64(after)})
		if err != nil {
			return fmt.Errorf("%w; %w", cause, err)
		}
		if stored == nil || !bytes.Equal(stored.Data, record) {
			return conflict("sequence %d is not this record", after)
		}
		return nil
	case natscheck.IsWrongSequence(cause):
		return cause // a message that the leader has received is not stored yet; perhaps it never will be
	}
	return permanent(cause)
}

// get requests a message from the leader of the stream. It returns nil if there is no such message.
func (l *Log) get(ctx context.Context, request server.JSApiMsgGetRequest) (*server.StoredMsg, error) {
	ctx, cancel := l.request(ctx)
	defer cancel()
	data, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	m, err := l.client.Conn().RequestWithContext(ctx, l.client.API()+".STREAM.MSG.GET."+l.stream.Config.Name, data)
	if err != nil {
		return nil, fmt.Errorf("get a message: %w", err)
	}
	var answer server.JSApiMsgGetResponse
	switch err := json.Unmarshal(m.Data, &answer); {
	case err != nil:
		return nil, fmt.Errorf("get a message: %w", err)
	case answer.Error != nil && answer.Error.ErrCode == uint16(server.JSNoMessageFoundErr):
		return nil, nil
	case answer.Error != nil:
		return nil, fmt.Errorf("get a message: %w", answer.Error)
	}
	return answer.Message, nil
}

// Truncate implements [statelog.Log].
func (l *Log) Truncate(ctx context.Context, before int64) error {
	stream, err := l.find(ctx)
	switch {
	case err != nil:
		return err
	case before <= int64(stream.CachedInfo().State.FirstSeq):
		return nil // a purge up to sequence 0 would remove everything
	case before > endOf(stream), l.isAnother(stream): // a purge up to a later sequence would raise the last one
		return fmt.Errorf("stream %s was created again: not truncated to sequence %d", l.stream.Config.Name, before)
	}
	err = l.repeat(ctx, func(ctx context.Context) error {
		ctx, cancel := l.request(ctx)
		defer cancel()
		return permanent(stream.Purge(ctx, jetstream.WithPurgeSequence(uint64(before))))
	})
	return l.explain("purge stream "+l.stream.Config.Name, err)
}

// Wait implements [statelog.Log]. It also returns if the log ends before from, because the stream was created again.
func (l *Log) Wait(ctx context.Context, from int64) error {
	poll := backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
	for {
		stream, err := l.find(ctx)
		if err != nil || endOf(stream) != max(from, 1) {
			return err
		}
		select {
		case <-time.After(poll.NextBackOff()):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// find looks up and checks the stream. If the stream does not exist, find creates it if the configuration allows that.
func (l *Log) find(ctx context.Context) (stream jetstream.Stream, err error) {
	name := l.stream.Config.Name
	err = l.repeat(ctx, func(ctx context.Context) (err error) {
		stream, err = l.lookUp(ctx)
		if errors.Is(err, jetstream.ErrStreamNotFound) && l.stream.Create {
			ctx, cancel := l.request(ctx)
			defer cancel()
			// CreateOrUpdateStream would change a stream that someone else has created since the lookup.
			if stream, err = l.client.JetStream().CreateStream(ctx, l.stream.Config); err == nil {
				l.log.Info("created stream for the state log", "stream", name)
			}
		}
		return permanent(err)
	})
	if err == nil {
		config := &stream.CachedInfo().Config
		if l.limit = int(l.client.Conn().MaxPayload()); config.MaxMsgSize > 0 {
			l.limit = min(l.limit, int(config.MaxMsgSize))
		}
		return stream, l.unfit(config)
	}
	if _, known := errors.AsType[*sinks.ConnectError](err); known || errors.Is(err, natsgo.ErrPermissionViolation) {
		return nil, l.explain("look up or create stream "+name, err)
	}
	return nil, l.stream.Error(err)
}

// lookUp requests the state of the stream once.
func (l *Log) lookUp(ctx context.Context) (jetstream.Stream, error) {
	ctx, cancel := l.request(ctx)
	defer cancel()
	stream, err := l.client.JetStream().Stream(ctx, l.stream.Config.Name)
	if err == nil {
		if cluster := stream.CachedInfo().Cluster; cluster != nil && cluster.Leader == "" {
			err = errNoLeader
		}
	}
	return stream, err
}

// request limits the time of one request, which is never answered if the leader changes.
func (l *Log) request(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, l.client.Timeout/requestsInTimeout)
}

// repeat connects and calls do, again and again, until it succeeds, returns a [backoff.PermanentError], or has failed
// for the configured timeout. do can extend this time with l.pause.Reset.
func (l *Log) repeat(ctx context.Context, do func(context.Context) error) error {
	var last error
	err := backoff.Retry(func() error {
		if last = ctx.Err(); last == nil { // with a context that has ended, Connect would break the connection
			last = l.client.Connect(ctx)
		}
		if last != nil {
			return backoff.Permanent(last)
		}
		last = l.client.AskOptional(ctx, do)
		if errors.Is(last, natsgo.ErrPermissionViolation) {
			return backoff.Permanent(last)
		}
		return last
	}, backoff.WithContext(l.pause, ctx))
	if err != nil && ctx.Err() != nil && last != nil && !errors.Is(last, ctx.Err()) {
		return fmt.Errorf("%w; before that: %w", ctx.Err(), last)
	}
	return err
}

// permanent marks an answer of the server that another attempt would not change.
func permanent(err error) error {
	if natscheck.IsAnswer(err) {
		return backoff.Permanent(err)
	}
	return err
}

func isCode(err error, code server.ErrorIdentifier) bool {
	api, ok := errors.AsType[jetstream.JetStreamError](err)
	return ok && api.APIError() != nil && api.APIError().ErrorCode == jetstream.ErrorCode(code)
}

// explain adds to an error what failed, and which permission is missing.
func (l *Log) explain(doing string, err error) error {
	_, known := errors.AsType[*sinks.ConnectError](err)
	switch {
	case err == nil, known:
		return err
	case errors.Is(err, natsgo.ErrPermissionViolation):
		e := l.client.Denied(doing, err, l.subject)
		e.Key, e.Remedy = "", strings.TrimSuffix(e.Remedy, changeSubject)
		return e
	}
	return fmt.Errorf("%s: %w", doing, err)
}
