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

// resend sends letters to the destinations of their sinks, one after the other, and removes what is acknowledged.
func (o *letterOptions) resend(ctx context.Context, ids []string) error {
	all, err := o.chosen(ids)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(b box) bool { return len(b.letters) == 0 })
	for _, b := range all { // before anything is sent
		if b.sink.Destination().LastOnly() && !o.force {
			return fmt.Errorf("sink %s keeps the last event of each object: an old one would take the place of a newer one; "+
				"`bridge resync` brings the present state, and --force sends it all the same", b.sink.Name)
		}
	}
	sent, refused := 0, 0
	for _, b := range all {
		done, again, err := o.resendTo(ctx, &b)
		sent, refused = sent+done, refused+again
		if err != nil {
			return fmt.Errorf("sink %s: %w (%d sent again, the others stay)", b.sink.Name, err, sent)
		}
	}
	if refused > 0 {
		return &exitError{fmt.Errorf("%d of %d are still refused, and stay", refused, sent+refused), stillRefused}
	}
	return nil
}

// resendTo sends the letters of one sink. The error is that of the first which was neither acknowledged nor refused.
func (o *letterOptions) resendTo(ctx context.Context, b *box) (sent, refused int, err error) {
	d, err := assemble.NewClient(b.sink)
	if err != nil {
		return 0, 0, err
	}
	defer closeDestination(ctx, d)
	if err := o.patiently(ctx, d.Connect); err != nil {
		return 0, 0, err
	}
	for _, l := range b.letters {
		letter, err := b.file.Get(l.ID)
		if errors.Is(err, deadletter.ErrNotFound) {
			continue // another command has dropped it meanwhile, or sent it
		}
		if err != nil {
			return sent, refused, err
		}
		letter.Message.Resent = true
		err = o.patiently(ctx, func(ctx context.Context) error {
			results := make([]error, 1)
			d.Send(ctx, []*event.Message{letter.Message}, results)
			return results[0]
		})
		word := "sent again"
		switch {
		case sinks.IsPermanent(err):
			refused++
			word = "still refused: " + err.Error()
		case err != nil:
			return sent, refused, err
		default:
			if _, err := b.file.Drop(l.ID); err != nil {
				return sent, refused, err
			}
			sent++
		}
		if _, err := fmt.Fprintf(o.stdout, "%s  %s  %s\n", b.sink.Name, console.Clean(l.ID), console.Clean(word)); err != nil {
			return sent, refused, err
		}
	}
	return sent, refused, nil
}

// patiently tries until it succeeds, is refused for good, or the time for one letter is over.
func (o *letterOptions) patiently(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	var last error
	err := backoff.Retry(func() error {
		err := try(ctx)
		if sinks.IsPermanent(err) {
			return backoff.Permanent(err)
		}
		if err != nil && (last == nil || ctx.Err() == nil) { // what the end of the time makes of it tells less
			last = err
		}
		return err
	}, backoff.WithContext(backoff.NewConstantBackOff(250*time.Millisecond), ctx))
	if err != nil && ctx.Err() != nil && !sinks.IsPermanent(err) {
		return last
	}
	return err
}
