package sinks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/time/rate"

	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/internal/pause"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/parked"
)

const (
	// defaultMaxBatch is the default of Drain.MaxBatch.
	defaultMaxBatch = 2048
	// maxBatchBytes is the maximum total size of the messages of one Send.
	maxBatchBytes = 16 << 20
	// RetryInterval is the longest pause before the next attempt if the destination is unavailable or not ready.
	RetryInterval = 250 * time.Millisecond
	// MaxBackoff is the longest pause before the next attempt if the destination answers with errors.
	MaxBackoff = 10 * time.Second
	minBackoff = 100 * time.Millisecond
	// checkInterval is the interval between checks of a working destination while there is nothing to send.
	checkInterval = 15 * time.Second
)

// Drain moves messages from a queue to a sink until the queue is closed and empty. The package comment lists its
// guarantees. Set the fields, then call Run once. Pause, Resume, and the methods that return the status may be called
// at any time.
type Drain struct {
	Sink  Sink // the caller closes it after Run
	Queue *fifo.Queue[*event.Message]

	// MaxBatch is the maximum number of messages per Send; 0 means defaultMaxBatch. A large batch causes no delay,
	// because the queue returns the messages that it has without waiting for more. It saves the pause between two
	// Sends.
	MaxBatch   int
	Rejections Rejections // Rejections configures how messages that the destination rejects are handled.
	// Parked stores the events of parts of the destination that take no events. The caller closes it after Run.
	Parked *parked.Store
	Hooks  Hooks
	Logger *slog.Logger // required; should name the sink
	// ReadsBack means that the sink is a Resumer, whose Send decides about messages with IfFound. Otherwise the drain
	// settles these messages.
	ReadsBack bool
	// Leads reports whether no other process can have become the leader. If it returns false, the drain writes only to a
	// destination for which Fenced returns true, and stores no dead letters or payloads. If Leads is nil, there is only
	// one process. Fenced may be nil; see Resumer.
	Leads, Fenced func() bool

	state       state
	gate        gate
	parking     parking
	rejected    *backoff.ExponentialBackOff // the pause after a Rejected error
	away        *backoff.ExponentialBackOff // the pause after any other failure
	rejectedLog rate.Sometimes
	lostLog     rate.Sometimes
	progressLog rate.Sometimes
	progressAt  time.Time // when sendProgress must be called again; zero if it need not be
	checkAt     time.Time // when the destination is checked next; zero if there are messages to send

	// These buffers are reused by all Send calls.
	taken   []*event.Message
	items   []item
	out     []*event.Message
	outItem []int
	results []error
	// left contains, by object, the resourceVersions of the events in out that an earlier process has left on disk.
	left map[event.Key]uint64
}

// item is one message of a batch that is being delivered.
type item struct {
	orig      *event.Message
	send      *event.Message // orig or its replacement; nil if the replacement must be created
	rejection error          // why orig was rejected
	outcome   Outcome        // outcome of the rejection
	park      string         // the unavailable part for which orig is to be parked; empty if orig is to be sent
	done      bool
}

// Run connects and then delivers messages until the queue is closed and empty. If ctx ends first, the returned error
// wraps the error of ctx. Messages that were taken from the queue and not delivered then stay unacknowledged in the
// queue.
func (d *Drain) Run(ctx context.Context) error {
	d.init()
	d.noteMoved()
	if err := d.connect(ctx); err != nil {
		return d.unfinished(err)
	}
	for {
		d.retryParked(ctx)
		d.sendProgress(ctx)
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
		clear(batch) // otherwise an idle drain would keep the last batch in memory
		d.taken = batch[:0]
	}
}

func (d *Drain) init() {
	d.MaxBatch = cmp.Or(d.MaxBatch, defaultMaxBatch)
	d.rejected, d.away = doubling(MaxBackoff), doubling(RetryInterval)
	d.rejectedLog = rate.Sometimes{First: 3, Interval: 10 * time.Second}
	d.lostLog = rate.Sometimes{First: 3, Interval: 10 * time.Second}
	d.progressLog = rate.Sometimes{First: 1, Interval: relogInterval}
	d.parking.mu.Lock() // Unavailable may have been called already
	defer d.parking.mu.Unlock()
	d.parking.parts = make(map[string]*part)
}

// doubling returns a back-off that begins with minBackoff and doubles up to longest. Every pause is randomized by up to
// 50 % in both directions.
func doubling(longest time.Duration) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(minBackoff),
		backoff.WithMaxInterval(longest),
		backoff.WithMultiplier(2),
		backoff.WithMaxElapsedTime(0), // never give up
	)
}

// resetBackoff resets the next pause to the shortest.
func (d *Drain) resetBackoff() {
	d.rejected.Reset()
	d.away.Reset()
}

func (d *Drain) unfinished(err error) error {
	return fmt.Errorf("%d events left undelivered: %w", d.Queue.Stats().Items, err)
}

// connect returns nil once the sink is connected. It returns the error of ctx if ctx ends first.
func (d *Drain) connect(ctx context.Context) error {
	for {
		if err := d.gate.enter(ctx); err != nil {
			return err
		}
		err := d.Sink.Connect(ctx)
		d.gate.leave()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		d.state.failed(d.Logger, err)
		if err := d.pause(ctx, err); err != nil {
			return err
		}
	}
	d.resetBackoff()
	d.state.connected(d.Logger)
	return nil
}

// check records whether the destination is available, unless the sink is paused. The next message is sent in any case.
// It returns the time until the next check. If the destination is unavailable, this is the pause of any other attempt:
// audit events are pushed only when the destination is available again.
func (d *Drain) check(ctx context.Context) time.Duration {
	if !d.gate.tryEnter() { // the queue can be closed during a pause
		return checkInterval
	}
	defer d.gate.leave()
	d.Hooks.between()
	err := d.Sink.Connect(ctx)
	d.report(ctx, attempted{err: err})
	if err != nil {
		return d.backoff(err)
	}
	d.resetBackoff()
	return checkInterval
}

// upToControl returns how many messages at the front of batch may be sent together. A control event is sent alone.
func upToControl(batch []*event.Message) int {
	for i, m := range batch {
		if m.Type.IsControl() {
			return max(i, 1)
		}
	}
	return len(batch)
}

// deliver sends batch until all messages are settled or parked. After every attempt it acknowledges the settled
// messages at the front of the batch. It returns an error only if ctx ended.
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
		if d.markUnavailable(a) {
			full = d.park()
		}
		a.err = cmp.Or(a.err, full)
		d.report(ctx, a)
		from := acked
		for acked < len(d.items) && d.items[acked].done {
			acked++
		}
		if acked > from {
			d.Queue.Ack(acked - from)
		}
		d.Hooks.between()
		if acked == len(d.items) {
			return nil
		}
		if a.progress {
			d.resetBackoff()
		}
		if a.err != nil || len(a.parts) > 0 {
			if err := d.pause(ctx, a.err); err != nil {
				return err
			}
		} else if ctx.Err() != nil { // only gap events are left to send, so no pause is necessary
			return ctx.Err()
		}
		if full != nil { // parked events must be delivered first, otherwise there will never be room
			items := d.items
			d.items = nil
			d.retryParked(ctx)
			d.items = items
			for i := range d.items { // messages that are not parked are tried again
				if it := &d.items[i]; !it.done {
					it.park = d.parkedPart(it.orig)
				}
			}
		}
	}
}

// errNotLeading is the error of writes that another process may do now.
var errNotLeading = errors.New("another process may be the leader")

func (d *Drain) leads() bool { return d.Leads == nil || d.Leads() }

// backoff returns the pause before the next attempt. It depends on the cause of the last failure. cause is nil if only
// parts of the destination failed.
func (d *Drain) backoff(cause error) time.Duration {
	if IsRejected(cause) {
		return d.rejected.NextBackOff()
	}
	d.rejected.Reset()
	return min(d.away.NextBackOff(), RetryInterval)
}

// pause waits before the next attempt.
func (d *Drain) pause(ctx context.Context, cause error) error {
	if !pause.For(ctx, d.backoff(cause)) {
		return ctx.Err()
	}
	return nil
}
