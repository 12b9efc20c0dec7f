package sinks

import (
	"context"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// DeadLetterSink delivers dead letters to a destination of their own: a topic, or a subject of another stream.
type DeadLetterSink struct {
	Sink  Sink   // only used here; the caller closes it
	Where string // describes the destination, as in "topic dead-letters"

	connected bool
}

var _ DeadLetters = (*DeadLetterSink)(nil)

// Keep implements [DeadLetters]. The message is sent as it is, with the attributes that say why it is a dead letter.
func (l *DeadLetterSink) Keep(
	ctx context.Context,
	m *event.Message,
	reason string,
	cause error,
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
