package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/pkg/deadletter"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// resend sends dead letters to the destinations of their sinks, one at a time. It removes acknowledged dead letters.
func (o *deadLetterOptions) resend(ctx context.Context, ids []string) error {
	letters, err := o.choose(ids)
	if err != nil {
		return err
	}
	for _, l := range letters { // check all dead letters before sending the first one
		if l.config.Destination().LastOnly() && !o.force {
			return fmt.Errorf(
				"the destination of sink %s keeps only the last event of each object, so an old event would replace a newer one: "+
					"use `bridge resync` to send the current state, or --force to re-send the old events anyway",
				l.Sink,
			)
		}
	}
	sent, rejected := 0, 0
	for len(letters) > 0 {
		sink := letters[0].Sink
		end := slices.IndexFunc(letters, func(l deadLetter) bool { return l.Sink != sink })
		if end < 0 {
			end = len(letters)
		}
		done, again, err := o.resendTo(ctx, letters[:end])
		sent, rejected = sent+done, rejected+again
		if err != nil {
			return fmt.Errorf("sink %s: %w (%d dead letters re-sent in total; the others are kept)", sink, err, sent)
		}
		letters = letters[end:]
	}
	if rejected > 0 {
		err := fmt.Errorf("%d of %d events were rejected again and are kept", rejected, sent+rejected)
		return &exitError{err, exitPartly}
	}
	return nil
}

// resendTo sends dead letters of one sink. It stops at the first dead letter that is neither acknowledged nor rejected,
// and returns the error.
func (o *deadLetterOptions) resendTo(ctx context.Context, letters []deadLetter) (sent, rejected int, err error) {
	d, err := assemble.NewClient(letters[0].config)
	if err != nil {
		return 0, 0, err
	}
	defer closeDestination(ctx, d)
	if err := o.retry(ctx, d.Connect); err != nil {
		return 0, 0, err
	}
	for _, l := range letters {
		full, err := l.store.Get(l.ID)
		if errors.Is(err, deadletter.ErrNotFound) {
			continue // another command has dropped or re-sent the dead letter since it was read
		}
		if err != nil {
			return sent, rejected, err
		}
		full.Message.Resent = true
		err = o.retry(ctx, func(ctx context.Context) error {
			results := make([]error, 1)
			d.Send(ctx, []*event.Message{full.Message}, results)
			return results[0]
		})
		result := "re-sent"
		switch {
		case sinks.IsPermanent(err):
			rejected++
			result = "still rejected: " + err.Error()
		case err != nil:
			return sent, rejected, err
		default:
			if _, err := l.store.Drop(l.ID); err != nil {
				return sent, rejected, err
			}
			sent++
		}
		if _, err := fmt.Fprintf(o.stdout, "%s  %s  %s\n", l.Sink, console.Clean(l.ID), console.Clean(result)); err != nil {
			return sent, rejected, err
		}
	}
	return sent, rejected, nil
}

// retryInterval is the time between two attempts.
const retryInterval = 250 * time.Millisecond

// retry calls try until try succeeds or returns a permanent error, or until the time limit expires. If the time limit
// expires, retry returns the last error that was not caused by the time limit.
func (o *deadLetterOptions) retry(ctx context.Context, try func(context.Context) error) (last error) {
	_ = wait.PollUntilContextTimeout(ctx, retryInterval, o.timeout, true, func(ctx context.Context) (bool, error) {
		err := try(ctx)
		done := err == nil || sinks.IsPermanent(err)
		if done || last == nil || ctx.Err() == nil { // an error caused by the time limit is less helpful
			last = err
		}
		return done, nil
	})
	return last
}
