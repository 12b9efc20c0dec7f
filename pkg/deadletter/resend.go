package deadletter

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Resend sends dead letters to a destination, one at a time, and removes those that it acknowledges. It calls each with
// the result: nil, or the error with which the destination has rejected the message again. It stops at the first dead
// letter that is neither acknowledged nor rejected, and returns the error, and if each returns an error. timeout is the
// time limit for connecting and for each message. Resend does not close the sink.
func (s *Store) Resend(
	ctx context.Context, to sinks.Sink, ids []string, timeout time.Duration, each func(id string, rejection error) error,
) error {
	if err := retry(ctx, timeout, to.Connect); err != nil {
		return err
	}
	for _, id := range ids {
		l, err := s.Get(id)
		if errors.Is(err, ErrNotFound) {
			continue // another command has dropped or re-sent the dead letter since it was listed
		}
		if err != nil {
			return err
		}
		l.Message.Resent = true
		rejection := retry(ctx, timeout, func(ctx context.Context) error {
			results := make([]error, 1)
			to.Send(ctx, []*event.Message{l.Message}, results)
			return results[0]
		})
		if rejection != nil && !sinks.IsPermanent(rejection) {
			return rejection
		}
		if rejection == nil {
			if _, err := s.Drop(id); err != nil {
				return err
			}
		}
		if err := each(id, rejection); err != nil {
			return err
		}
	}
	return nil
}

// retryInterval is the time between two attempts.
const retryInterval = 250 * time.Millisecond

// retry calls try until try succeeds or returns a permanent error, or until the time limit expires. If the time limit
// expires, retry returns the last error that was not caused by the time limit.
func retry(ctx context.Context, timeout time.Duration, try func(context.Context) error) (last error) {
	_ = wait.PollUntilContextTimeout(ctx, retryInterval, timeout, true, func(ctx context.Context) (bool, error) {
		err := try(ctx)
		done := err == nil || sinks.IsPermanent(err)
		if done || last == nil || ctx.Err() == nil { // an error caused by the time limit is less helpful
			last = err
		}
		return done, nil
	})
	return last
}
