package sinks

import (
	"context"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// DeadLetterSink sends dead letters to a separate destination: a topic, or a subject of another stream.
type DeadLetterSink struct {
	Sink  Sink   // must not be used elsewhere; the caller closes it
	Where string // a description of the destination, such as "topic dead-letters"

	connected bool
}

// Keep sends a rejected message unchanged, with additional attributes that contain the reason. It returns when the
// message is durable. where describes the place. Errors are handled like errors of PayloadStore.Store. Only the drain's
// goroutine calls Keep.
func (l *DeadLetterSink) Keep(
	ctx context.Context, m *event.Message, reason string, cause error,
) (where string, err error) {
	if !l.connected {
		if err := l.Sink.Connect(ctx); err != nil {
			return "", err
		}
		l.connected = true
	}
	letter := *m
	letter.Marks = &event.Marks{Refused: reason, Cause: cause.Error()}
	results := make([]error, 1)
	l.Sink.Send(ctx, []*event.Message{&letter}, results)
	return l.Where, results[0]
}
