package sinks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// Outcome is what became of a message that the destination rejected.
type Outcome string

// The outcomes.
const (
	OutcomeMetadata   Outcome = "metadata"   // it was sent with the metadata of its object instead of the data
	OutcomeClaimCheck Outcome = "claimCheck" // the same, and its data is kept where the event says
	OutcomeDeadLetter Outcome = "deadLetter" // it is kept as a dead letter, and a gap event took its place
	OutcomeGap        Outcome = "gap"        // a gap event took its place
	// OutcomeLost: it was to be kept as a dead letter and could not be; a gap event took its place.
	OutcomeLost Outcome = "lost"
)

// InStream reports whether the event itself is in the stream, in some form.
func (o Outcome) InStream() bool { return o == OutcomeMetadata || o == OutcomeClaimCheck }

// Outcomes returns the possible outcomes of a rejection for a reason: event.ReasonOversize or event.ReasonRefused.
func Outcomes(reason string) []Outcome {
	lasting := []Outcome{OutcomeDeadLetter, OutcomeGap, OutcomeLost}
	if reason == event.ReasonOversize {
		return append(lasting, OutcomeMetadata, OutcomeClaimCheck)
	}
	return lasting
}

// Rejections says what is done with messages that the destination rejects (a [Permanent] error). The zero value sends a
// gap event in place of each.
type Rejections struct {
	// Oversize is what is tried first with a message that is too large. After OutcomeMetadata and OutcomeClaimCheck,
	// DeadLetters are tried, if there are any. OutcomeDeadLetter begins with them; OutcomeGap, the default, skips them.
	Oversize    Outcome
	Payloads    PayloadStore // required with OutcomeClaimCheck
	DeadLetters DeadLetters  // nil: there are none
}

// PayloadStore keeps the data of messages that are too large for their destination. It is used by the drain's goroutine
// alone.
type PayloadStore interface {
	// Store returns when the data is durable. ref is its URI, which is always the same for the same message. After an
	// error that is not Permanent the drain tries again until it succeeds, and sends no later message.
	Store(ctx context.Context, m *event.Message) (ref, digest string, err error)
}

// DeadLetters keeps messages that are rejected. It is used by the drain's goroutine alone.
type DeadLetters interface {
	// Keep returns when the message is durable. where describes the place. Errors are treated like errors of
	// PayloadStore.Store; a Permanent one means that there is no room for the message.
	Keep(ctx context.Context, m *event.Message, reason string, cause error) (where string, err error)
}

// Rejection is why a message was rejected, and what became of it.
type Rejection struct {
	Reason  string // event.ReasonOversize or event.ReasonRefused
	Err     error  // what the destination said
	Outcome Outcome
}

// reason returns the reason of the first rejection of a message.
func (it *item) reason() string {
	if errors.Is(it.rejection, ErrOversize) {
		return event.ReasonOversize
	}
	return event.ReasonRefused
}

// reject records that the destination rejects what was sent for an item. A rejected gap event settles the item.
func (d *Drain) reject(it *item, err error) {
	switch {
	case it.rejection == nil:
		it.rejection = err
	case it.outcome.InStream():
		it.rejection = fmt.Errorf("%w; as %s: %w", it.rejection, it.outcome, err)
	default:
		it.rejection = errors.Join(it.rejection, fmt.Errorf("gap event in its place: %w", err))
		d.settle(it, time.Time{}, 0)
		return
	}
	it.outcome = d.Rejections.next(it)
	it.send = nil
}

// next returns what to try next with a message that was rejected.
func (r *Rejections) next(it *item) Outcome {
	oversize := it.reason() == event.ReasonOversize
	switch {
	case it.orig.Type.IsControl(), oversize && (r.Oversize == OutcomeGap || r.Oversize == ""):
		return OutcomeGap
	case oversize && it.outcome == "" && r.Oversize.InStream():
		return r.Oversize
	case r.DeadLetters != nil && (it.outcome == "" || it.outcome.InStream()):
		return OutcomeDeadLetter
	}
	return OutcomeGap
}

// replace makes the replacement of a rejected message. After an error it must be tried again.
func (d *Drain) replace(ctx context.Context, it *item) error {
	for it.send == nil {
		if err := d.tryOutcome(ctx, it); IsPermanent(err) {
			it.rejection = fmt.Errorf("%w; %w", it.rejection, err)
			if it.outcome == OutcomeDeadLetter {
				it.outcome = OutcomeLost
				d.lostLog.Do(func() {
					d.Logger.Error("event rejected, and not kept as a dead letter",
						"id", it.orig.ID, "subject", it.orig.Subject(), "err", err)
				})
				continue
			}
			it.outcome = d.Rejections.next(it)
		} else if err != nil {
			return err
		}
	}
	d.rejectedLog.Do(func() {
		d.Logger.Warn("event rejected; something else takes its place", "instead", it.outcome,
			"id", it.orig.ID, "subject", it.orig.Subject(), "bytes", len(it.orig.Data), "err", it.rejection)
	})
	return nil
}

// tryOutcome makes what is sent for the item's outcome. A Permanent error means that the outcome is impossible.
func (d *Drain) tryOutcome(ctx context.Context, it *item) (err error) {
	marks := event.Marks{Omitted: it.reason(), Size: int64(len(it.orig.Data))}
	switch where := ""; it.outcome {
	case OutcomeMetadata, OutcomeClaimCheck:
		reduced, err := event.Reduce(it.orig, marks)
		if err != nil {
			return Permanent(err)
		}
		if it.outcome == OutcomeClaimCheck {
			if marks.Ref, marks.Digest, err = d.Rejections.Payloads.Store(ctx, it.orig); err != nil {
				return fmt.Errorf("claim check: %w", err)
			}
			reduced.Marks = &marks
		}
		it.send = reduced
	case OutcomeDeadLetter:
		if where, err = d.Rejections.DeadLetters.Keep(ctx, it.orig, it.reason(), it.rejection); err != nil {
			return fmt.Errorf("dead letter: %w", err)
		}
		fallthrough
	default:
		it.send = event.RefusalGap(it.orig, it.reason(), it.rejection.Error(), where)
	}
	return nil
}
