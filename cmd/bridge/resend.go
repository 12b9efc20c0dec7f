package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/console"
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

// resendTo sends dead letters of one sink.
func (o *deadLetterOptions) resendTo(ctx context.Context, letters []deadLetter) (sent, rejected int, err error) {
	d, err := assemble.NewClient(letters[0].config)
	if err != nil {
		return 0, 0, err
	}
	defer closeDestination(ctx, d)
	var ids []string
	for _, l := range letters {
		ids = append(ids, l.ID)
	}
	err = letters[0].store.Resend(ctx, d, ids, o.timeout, func(id string, rejection error) error {
		result := "re-sent"
		if rejection != nil {
			rejected++
			result = "still rejected: " + rejection.Error()
		} else {
			sent++
		}
		_, err := fmt.Fprintf(o.stdout, "%s  %s  %s\n", letters[0].Sink, console.Clean(id), console.Clean(result))
		return err
	})
	return sent, rejected, err
}
