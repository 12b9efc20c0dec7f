package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/pkg/deadletter"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// resend sends dead letters to the destinations of their sinks, one at a time, and removes those that are acknowledged.
func (o *deadLetterOptions) resend(ctx context.Context, ids []string) error {
	all, err := o.choose(ids)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(b sinkDeadLetters) bool { return len(b.letters) == 0 })
	for _, b := range all { // check all sinks before anything is sent
		if b.sink.Destination().LastOnly() && !o.force {
			return fmt.Errorf("sink %s keeps only the last event of each object, so an old event would replace a newer one: "+
				"use `bridge resync` to send the current state, or --force to re-send the old events anyway", b.sink.Name)
		}
	}
	sent, rejected := 0, 0
	for _, b := range all {
		done, again, err := o.resendTo(ctx, &b)
		sent, rejected = sent+done, rejected+again
		if err != nil {
			return fmt.Errorf("sink %s: %w (%d re-sent, the others are kept)", b.sink.Name, err, sent)
		}
	}
	if rejected > 0 {
		return &exitError{fmt.Errorf("%d of %d were rejected again and are kept", rejected, sent+rejected), stillRejected}
	}
	return nil
}

// resendTo sends the dead letters of one sink. It stops at the first one that is neither acknowledged nor rejected, and
// returns its error.
func (o *deadLetterOptions) resendTo(ctx context.Context, b *sinkDeadLetters) (sent, rejected int, err error) {
	d, err := assemble.NewClient(b.sink)
	if err != nil {
		return 0, 0, err
	}
	defer closeDestination(ctx, d)
	if err := o.retry(ctx, d.Connect); err != nil {
		return 0, 0, err
	}
	for _, l := range b.letters {
		letter, err := b.file.Get(l.ID)
		if errors.Is(err, deadletter.ErrNotFound) {
			continue // another command has dropped or re-sent it meanwhile
		}
		if err != nil {
			return sent, rejected, err
		}
		letter.Message.Resent = true
		err = o.retry(ctx, func(ctx context.Context) error {
			results := make([]error, 1)
			d.Send(ctx, []*event.Message{letter.Message}, results)
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
			if _, err := b.file.Drop(l.ID); err != nil {
				return sent, rejected, err
			}
			sent++
		}
		if _, err := fmt.Fprintf(o.stdout, "%s  %s  %s\n", b.sink.Name, console.Clean(l.ID), console.Clean(result)); err != nil {
			return sent, rejected, err
		}
	}
	return sent, rejected, nil
}

// retry calls try until it succeeds, returns a permanent error, or the time limit is over. At the limit it returns the
// last error that the limit itself did not cause.
func (o *deadLetterOptions) retry(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	var last error
	err := backoff.Retry(func() error {
		err := try(ctx)
		if sinks.IsPermanent(err) {
			return backoff.Permanent(err)
		}
		if err != nil && (last == nil || ctx.Err() == nil) { // an error caused by the limit itself says less
			last = err
		}
		return err
	}, backoff.WithContext(backoff.NewConstantBackOff(250*time.Millisecond), ctx))
	if err != nil && ctx.Err() != nil && !sinks.IsPermanent(err) {
		return last
	}
	return err
}
