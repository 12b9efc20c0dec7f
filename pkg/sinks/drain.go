package sinks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/time/rate"

	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/parked"
)

const (
	// DefaultMaxBatch is the default of Drain.MaxBatch.
	DefaultMaxBatch = 2048
	// maxBatchBytes is how large the messages of one Send are together at most.
	maxBatchBytes = 16 << 20
	// RetryInterval is the longest pause before the next attempt at a destination that is away or not ready.
	RetryInterval = 250 * time.Millisecond
	// MaxBackoff is the longest pause before the next attempt at a destination that rejects what it is asked.
	MaxBackoff = 10 * time.Second
	minBackoff = 100 * time.Millisecond
)

// Drain moves messages from a queue to a sink until the queue is closed and empty. The package comment says what
// it promises. Set the fields, then call Run once; Connected and Status may be called at any time.
type Drain struct {
	Name  string // of the sink, for logs
	Sink  Sink   // the caller closes it after Run
	Queue fifo.Queue[*event.Message]

	// MaxBatch is how many messages one Send gets at most; 0 is DefaultMaxBatch. A large batch costs no delay, because the
	// queue gives what it has; it saves the pause between two Sends.
	MaxBatch   int
	Rejections Rejections // what is done with messages that the destination rejects
	// Parked keeps the events of parts of the destination that take no events. The caller closes it after Run. If it is
	// nil, the other parts wait.
	Parked *parked.Store
	Hooks  Hooks
	Logger *slog.Logger // nil: slog.Default()

	state       state
	parking     parking
	rejected    *backoff.ExponentialBackOff // the pause after a Rejected error
	away        *backoff.ExponentialBackOff // the pause after any other failure
	rejectedLog rate.Sometimes
	lostLog     rate.Sometimes

	// Memory that Send calls share.
	taken   []*event.Message
	items   []item
	out     []*event.Message
	outItem []int
	results []error
}

// Hooks are called when something happens to a message. Each may be nil. They run in the goroutine of Run and delay it,
// so they should only count, or pass on.
type Hooks struct {
	// OnSettled is called once for each message that was delivered, in the order of each object. A message that was parked
	// is a copy. sent is when the Send that delivered it returned, latency is how long this Send took.
	OnSettled func(m *event.Message, sent time.Time, latency time.Duration)
	// OnRetry is called each time that a message will be tried again, with the error of the sink.
	OnRetry func(m *event.Message, err error)
	// OnRejected is called once for each message that was rejected, when its replacement was delivered, or when the gap
	// event in its place was rejected too. If the replacement is the event in another form (OutcomeMetadata,
	// OutcomeClaimCheck), OnSettled is called too. In any case the message is settled.
	OnRejected func(m *event.Message, r Rejection)
}

// item is one message of a batch on its way.
type item struct {
	orig      *event.Message
	send      *event.Message // orig, or its replacement; nil: the replacement must be found
	rejection error          // why orig was rejected
	outcome   Outcome        // of the rejection
	park      string         // the unavailable part for which it is to be parked; empty: it is to be sent
	done      bool
}

// Run connects, and then delivers until the queue is closed and empty. If ctx ends before, the error wraps its error,
// and messages that were taken and not delivered stay unacknowledged in the queue.
func (d *Drain) Run(ctx context.Context) error {
	d.init()
	if err := d.connect(ctx); err != nil {
		return d.unfinished(err)
	}
	for {
		d.retryParked(ctx)
		batch, err := d.take(ctx)
		if errors.Is(err, fifo.ErrClosed) {
			return nil
		}
		if err != nil {
			return d.unfinished(err)
		}
		for rest := batch; len(rest) > 0; {
			n := upToControl(rest)
			if err := d.deliver(ctx, rest[:n]); err != nil {
				return d.unfinished(err)
			}
			rest = rest[n:]
		}
		clear(batch) // a quiet queue must not keep the last batch in memory
		d.taken = batch[:0]
	}
}

func (d *Drain) init() {
	if d.MaxBatch <= 0 {
		d.MaxBatch = DefaultMaxBatch
	}
	if d.Logger == nil {
		d.Logger = slog.Default()
	}
	d.Logger = d.Logger.With("sink", d.Name)
	d.rejected, d.away = doubling(MaxBackoff), doubling(RetryInterval)
	d.rejectedLog = rate.Sometimes{First: 3, Interval: 10 * time.Second}
	d.lostLog = rate.Sometimes{First: 3, Interval: 10 * time.Second}
	d.parking.failing, d.parking.retries = make(map[string]time.Time), make(map[string]*retry)
}

// doubling returns pauses that begin with minBackoff and double up to longest, each spread by half in both directions.
func doubling(longest time.Duration) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(minBackoff),
		backoff.WithMaxInterval(longest),
		backoff.WithMultiplier(2),
		backoff.WithMaxElapsedTime(0), // never give up
	)
}

// resetBackoff makes the next pause the shortest again.
func (d *Drain) resetBackoff() {
	d.rejected.Reset()
	d.away.Reset()
}

func (d *Drain) unfinished(err error) error {
	return fmt.Errorf("%d events left undelivered: %w", d.Queue.Stats().Items, err)
}

// connect returns nil once the sink is connected, or ctx's error.
func (d *Drain) connect(ctx context.Context) error {
	for {
		err := d.Sink.Connect(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		d.state.failed(d.Logger, err)
		if err := d.pause(ctx); err != nil {
			return err
		}
	}
	d.resetBackoff()
	d.state.connected(d.Logger)
	return nil
}

// upToControl returns how many messages of batch may be sent together. A control event is sent alone.
func upToControl(batch []*event.Message) int {
	for i, m := range batch {
		if m.Type.IsControl() {
			return max(i, 1)
		}
	}
	return len(batch)
}

// deliver sends batch until each of its messages is settled or parked, and acknowledges those at its front as it goes.
// It returns an error only when ctx ended.
func (d *Drain) deliver(ctx context.Context, batch []*event.Message) error {
	d.items = d.items[:0]
	for _, m := range batch {
		d.items = append(d.items, item{orig: m, send: m, park: d.parkedPart(m)})
	}
	if mutant.On("reorder") {
		mutant.Swap(d.items, func(a, b item) bool { return a.orig.Key() == b.orig.Key() })
	}
	defer func() { clear(d.items) }()
	acked := 0
	for {
		full := d.park()
		a := d.attempt(ctx)
		if d.markUnavailable(a.parts) {
			full = d.park()
		}
		if a.err == nil {
			a.err = full
		}
		d.report(ctx, a)
		from := acked
		for acked < len(d.items) && d.items[acked].done {
			acked++
		}
		if acked > from {
			d.Queue.Ack(acked - from)
		}
		if acked == len(d.items) {
			return nil
		}
		if a.progress {
			d.resetBackoff()
		}
		if a.err != nil || len(a.parts) > 0 {
			if err := d.pause(ctx); err != nil {
				return err
			}
		} else if ctx.Err() != nil { // only gap events are new: nothing to wait for
			return ctx.Err()
		}
		if full != nil { // what is parked must go, or there will never be room
			items := d.items
			d.items = nil
			d.retryParked(ctx)
			d.items = items
		}
	}
}

// attempted is the outcome of one Send.
type attempted struct {
	progress bool             // something was settled, or rejected
	err      error            // why something has to be tried again, except because of unavailable parts
	parts    map[string]error // why parts of the destination take no events; nil if there are none
}

// report updates the status of the destination.
func (d *Drain) report(ctx context.Context, a attempted) {
	if a.err == nil {
		d.state.ok(d.Logger)
	} else if ctx.Err() == nil {
		d.state.failed(d.Logger, a.err)
	}
}

// attempt sends what is not settled yet, in order, and records what became of it.
func (d *Drain) attempt(ctx context.Context) (a attempted) {
	away := d.collect(ctx)
	d.results = append(d.results[:0], make([]error, len(d.out))...)
	start := time.Now()
	if len(d.out) > 0 {
		d.Sink.Send(ctx, d.out, d.results)
	}
	sent := time.Now()

	again := false // something has to be tried again
	for k, err := range d.results {
		if mutant.On("settle-unsent") {
			err = nil
		}
		it := &d.items[d.outItem[k]]
		switch {
		case err == nil:
			d.settle(it, sent, sent.Sub(start))
			d.markAvailable(it.orig)
			a.progress = true
		case IsPermanent(err):
			d.reject(it, err)
			a.progress = true
		default:
			again = true
			if part := d.unavailablePart(it.orig, err); part != "" {
				if a.parts == nil {
					a.parts = make(map[string]error)
				}
				a.parts[part] = err
			} else if a.err == nil && !errors.Is(err, ErrNotAttempted) {
				a.err = err
			}
		}
	}
	clear(d.out)
	if a.err == nil && again && !a.progress && len(a.parts) == 0 { // the sink does not name the cause
		a.err = ErrNotAttempted
	}
	if a.err != nil || len(a.parts) > 0 { // otherwise they waited for the replacement of an earlier event of their object
		d.retry()
	}
	if a.err == nil {
		a.err = away
	}
	return a
}

// collect puts into d.out what is to be sent now: all messages that are not settled, up to the first one whose
// replacement can't be made now. It returns the error of the replacement.
func (d *Drain) collect(ctx context.Context) (away error) {
	d.out, d.outItem = d.out[:0], d.outItem[:0]
	for i := range d.items {
		it := &d.items[i]
		if it.done || it.park != "" {
			continue
		}
		if it.send == nil {
			if err := d.replace(ctx, it); err != nil {
				return err
			}
		}
		d.out, d.outItem = append(d.out, it.send), append(d.outItem, i)
	}
	return nil
}

// retry calls the hook for the messages that will be tried again.
func (d *Drain) retry() {
	if d.Hooks.OnRetry == nil {
		return
	}
	for k, err := range d.results {
		if err != nil && !IsPermanent(err) {
			d.Hooks.OnRetry(d.items[d.outItem[k]].orig, err)
		}
	}
}

func (d *Drain) settle(it *item, sent time.Time, latency time.Duration) {
	it.done = true
	if it.rejection != nil {
		if d.Hooks.OnRejected != nil {
			d.Hooks.OnRejected(it.orig, Rejection{Reason: it.reason(), Err: it.rejection, Outcome: it.outcome})
		}
		if !it.outcome.InStream() {
			return
		}
	}
	if d.Hooks.OnSettled != nil {
		d.Hooks.OnSettled(it.orig, sent, latency)
	}
}

// pause waits before the next attempt, depending on why the last one failed.
func (d *Drain) pause(ctx context.Context) error {
	var pause time.Duration
	if IsRejected(d.state.lastCause()) {
		pause = d.rejected.NextBackOff()
	} else {
		d.rejected.Reset()
		pause = min(d.away.NextBackOff(), RetryInterval)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
