package sinks

import (
	"context"
	"errors"
	"fmt"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// Outcome is the result of handling a rejected message.
type Outcome string

// The possible outcomes.
const (
	OutcomeMetadata   Outcome = "metadata"   // the event was sent with only the metadata of its object
	OutcomeClaimCheck Outcome = "claimCheck" // like OutcomeMetadata, and the payload store has the data
	OutcomeDeadLetter Outcome = "deadLetter" // the message was kept as a dead letter, and a gap event was sent in its place
	OutcomeGap        Outcome = "gap"        // a gap event was sent in its place
	// OutcomeLost means that the message could not be kept as a dead letter; a gap event was sent in its place.
	OutcomeLost Outcome = "lost"
)

// InStream reports whether the event was sent itself, in a reduced form.
func (o Outcome) InStream() bool { return o == OutcomeMetadata || o == OutcomeClaimCheck }

// Outcomes returns the possible outcomes of a rejection with the given reason (event.ReasonOversize or
// event.ReasonRefused).
func Outcomes(reason string) []Outcome {
	lasting := []Outcome{OutcomeDeadLetter, OutcomeGap, OutcomeLost}
	if reason == event.ReasonOversize {
		return append(lasting, OutcomeMetadata, OutcomeClaimCheck)
	}
	return lasting
}

// Rejections configures how messages that the destination rejects (with a [Permanent] error) are handled. With the zero
// value, a gap event is sent in place of each.
type Rejections struct {
	// Oversize is the first outcome to try for a message that is too large. If OutcomeMetadata or OutcomeClaimCheck fails,
	// DeadLetters is tried next, unless it is nil. With OutcomeDeadLetter, DeadLetters is tried first. With OutcomeGap,
	// the default, it is not tried.
	Oversize    Outcome
	Payloads    PayloadStore    // required for OutcomeClaimCheck
	DeadLetters *DeadLetterSink // if nil, no dead letters are kept
}

// PayloadStore stores the data of messages that are too large for their destination. Only the drain's goroutine calls
// it.
type PayloadStore interface {
	// Store returns when the data is durable. ref is the URI of the data and is always the same for the same message.
	// After an error that is not Permanent, the drain calls Store again until it succeeds, and sends no later message
	// before that.
	Store(ctx context.Context, m *event.Message) (ref, digest string, err error)
}

// Rejection records why a message was rejected and how the rejection was handled.
type Rejection struct {
	Reason  string // event.ReasonOversize or event.ReasonRefused
	Outcome Outcome
}

// reason returns the reason of the first rejection of a message.
func (it *item) reason() string {
	if errors.Is(it.rejection, ErrOversize) {
		return event.ReasonOversize
	}
	return event.ReasonRefused
}

// reject records that the destination rejected the message that was sent for an item. If that message was a gap event,
// the item is settled.
func (d *Drain) reject(it *item, err error) {
	switch {
	case it.rejection == nil:
		it.rejection = err
	case it.outcome.InStream():
		it.rejection = fmt.Errorf("%w; sent again as %s, it was rejected too: %w", it.rejection, it.outcome, err)
	default:
		it.rejection = errors.Join(it.rejection, fmt.Errorf("the gap event that replaced it was rejected too: %w", err))
		d.settle(it, nil) // only the gap event was to be in the stream
		return
	}
	it.outcome = d.Rejections.next(it)
	it.send = nil
}

// next returns the outcome to try next for a rejected message.
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

// replace creates the replacement for a rejected message. If it returns an error, it must be called again later.
func (d *Drain) replace(ctx context.Context, it *item) error {
	for it.send == nil {
		if err := d.tryOutcome(ctx, it); IsPermanent(err) {
			it.rejection = fmt.Errorf("%w; %w", it.rejection, err)
			if it.outcome == OutcomeDeadLetter {
				it.outcome = OutcomeLost
				d.lostLog.Do(func() {
					d.Logger.Error("event rejected and lost: cannot store its dead letter",
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
		d.Logger.Warn("event rejected, sending a replacement", "outcome", it.outcome,
			"id", it.orig.ID, "subject", it.orig.Subject(), "bytes", len(it.orig.Data), "err", it.rejection)
	})
	return nil
}

// tryOutcome creates the message that is sent for the item's outcome. A Permanent error means that the outcome is
// impossible.
func (d *Drain) tryOutcome(ctx context.Context, it *item) (err error) {
	if !d.leads() && (it.outcome == OutcomeClaimCheck || it.outcome == OutcomeDeadLetter) {
		return errNotLeading
	}
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
