package sinks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/time/rate"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
)

// Defaults of a Drain.
const (
	DefaultMaxBatch      = 2048
	DefaultMaxBatchBytes = 16 << 20
	DefaultBackoffMin    = 100 * time.Millisecond
	DefaultBackoffMax    = 30 * time.Second
)

// Drain moves messages from a queue to a sink until the queue is closed and empty. The package comment says what
// it promises. Set the fields, then call Run once; Connected and Status may be called at any time.
type Drain struct {
	Name  string // of the sink, for logs
	Sink  Sink   // the caller closes it after Run
	Queue fifo.Queue[*event.Message]

	// MaxBatch is how many messages one Send gets at most, MaxBatchBytes the sum of their sizes. A large batch
	// costs no delay, since the queue gives what it has; it saves the pause between two Sends.
	MaxBatch      int   // 0: DefaultMaxBatch
	MaxBatchBytes int64 // 0: DefaultMaxBatchBytes
	Backoff       Backoff
	Hooks         Hooks
	Logger        *slog.Logger // nil: slog.Default()

	state   state
	wait    *backoff.ExponentialBackOff
	refused logLimit

	// Memory that Send calls share.
	taken   []*event.Message
	items   []item
	out     []*event.Message
	outItem []int
	results []error
}

// Backoff says how long the loop waits after a failure: Min after the first, then twice as long each time up to
// Max, each spread by half in both directions. It starts again at Min whenever a message was delivered.
type Backoff struct {
	Min time.Duration // 0: DefaultBackoffMin
	Max time.Duration // 0: DefaultBackoffMax
}

// Hooks tell others what happens to messages. Each may be nil. They are called by the goroutine of Run and hold
// it up: they should only count, or pass on.
type Hooks struct {
	// OnConnect is called when Connect has succeeded.
	OnConnect func()
	// OnError is called for each failed Connect, with n = 0, and for each Send after which n messages have to be
	// tried again, with the error of the first that was attempted.
	OnError func(err error, n int)
	// OnSettled is called once for each message that was delivered, in their order for each object. sent is when
	// the Send returned that delivered it, latency how long that Send took.
	OnSettled func(m *event.Message, sent time.Time, latency time.Duration)
	// OnRetry is called each time that a message will be tried again, with what the sink said of it.
	OnRetry func(m *event.Message, err error)
	// OnRefused is called once for each message that was refused for good, when the gap event in its place was
	// delivered (or refused too). Then nothing more is to be done about it: it is settled as well.
	OnRefused func(m *event.Message, err error)
}

// UnfinishedError is what Run returns when its context ended before the queue was drained.
type UnfinishedError struct {
	Left int   // messages that the queue still holds, taken or not
	Err  error // the context's
}

func (e *UnfinishedError) Error() string {
	return fmt.Sprintf("%d events left undelivered: %v", e.Left, e.Err)
}
func (e *UnfinishedError) Unwrap() error { return e.Err }

// item is one message of a batch on its way.
type item struct {
	orig    *event.Message
	send    *event.Message // orig, or the gap event in its place
	refusal error          // why orig was refused
	done    bool
}

// Run connects, and then delivers until the queue is closed and empty (nil) or ctx ends (*UnfinishedError; what
// was taken and not delivered stays unacknowledged in the queue).
func (d *Drain) Run(ctx context.Context) error {
	d.init()
	if err := d.connect(ctx); err != nil {
		return d.unfinished(err)
	}
	for {
		batch, err := d.Queue.Take(ctx, d.taken, d.MaxBatch, d.MaxBatchBytes)
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
	if d.MaxBatchBytes <= 0 {
		d.MaxBatchBytes = DefaultMaxBatchBytes
	}
	if d.Logger == nil {
		d.Logger = slog.Default()
	}
	d.Logger = d.Logger.With("sink", d.Name)
	low, high := d.Backoff.Min, d.Backoff.Max
	if low <= 0 {
		low = DefaultBackoffMin
	}
	if high <= 0 {
		high = DefaultBackoffMax
	}
	d.wait = backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(low),
		backoff.WithMaxInterval(max(low, high)),
		backoff.WithMultiplier(2),
		backoff.WithMaxElapsedTime(0), // never give up
	)
	d.refused.limiter = rate.NewLimiter(rate.Every(10*time.Second), 3)
}

func (d *Drain) unfinished(err error) error {
	return &UnfinishedError{Left: d.Queue.Stats().Items, Err: err}
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
		d.failed(err, 0)
		if err := d.pause(ctx); err != nil {
			return err
		}
	}
	d.wait.Reset()
	d.state.connected(d.Logger)
	if d.Hooks.OnConnect != nil {
		d.Hooks.OnConnect()
	}
	return nil
}

// upToControl is how many of batch may be sent together: a control event goes alone.
func upToControl(batch []*event.Message) int {
	for i, m := range batch {
		if m.Type.IsControl() {
			return max(i, 1)
		}
	}
	return len(batch)
}

// deliver sends batch until each of its messages is settled, and acknowledges the settled ones at its front as it
// goes. It returns an error only when ctx ended.
func (d *Drain) deliver(ctx context.Context, batch []*event.Message) error {
	d.items = d.items[:0]
	for _, m := range batch {
		d.items = append(d.items, item{orig: m, send: m})
	}
	defer func() { clear(d.items) }()
	acked := 0
	for {
		progress := d.attempt(ctx)
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
		if progress {
			d.wait.Reset()
		}
		if d.state.retrying() {
			err := d.pause(ctx)
			if err != nil {
				return err
			}
		} else if ctx.Err() != nil { // only gap events are new: nothing to wait for
			return ctx.Err()
		}
	}
}

// attempt sends what is not settled yet, in order, and records what became of it. It reports whether anything
// was settled, or replaced by a gap event.
func (d *Drain) attempt(ctx context.Context) (progress bool) {
	d.out, d.outItem = d.out[:0], d.outItem[:0]
	for i := range d.items {
		if !d.items[i].done {
			d.out, d.outItem = append(d.out, d.items[i].send), append(d.outItem, i)
		}
	}
	d.results = append(d.results[:0], make([]error, len(d.out))...)
	start := time.Now()
	d.Sink.Send(ctx, d.out, d.results)
	sent := time.Now()

	var first error
	retries := 0
	for k, err := range d.results {
		it := &d.items[d.outItem[k]]
		switch {
		case err == nil:
			d.settle(it, sent, sent.Sub(start))
			progress = true
		case IsPermanent(err):
			d.refuse(it, err)
			progress = true
		default:
			if retries++; first == nil {
				first = err
			}
			if d.Hooks.OnRetry != nil {
				d.Hooks.OnRetry(it.orig, err)
			}
		}
	}
	clear(d.out)
	if retries == 0 {
		d.state.ok(d.Logger)
	} else if ctx.Err() == nil {
		d.failed(first, retries)
	}
	return progress
}

func (d *Drain) settle(it *item, sent time.Time, latency time.Duration) {
	it.done = true
	if it.refusal != nil {
		if d.Hooks.OnRefused != nil {
			d.Hooks.OnRefused(it.orig, it.refusal)
		}
		return
	}
	if d.Hooks.OnSettled != nil {
		d.Hooks.OnSettled(it.orig, sent, latency)
	}
}

// refuse puts a gap event into the place of a message that the destination refuses for good. If it refuses the
// gap event as well, the message is only counted.
func (d *Drain) refuse(it *item, err error) {
	if it.refusal != nil {
		it.refusal = errors.Join(it.refusal, fmt.Errorf("gap event in its place: %w", err))
		d.settle(it, time.Time{}, 0)
		return
	}
	it.refusal = err
	reason := event.ReasonRefused
	if errors.Is(err, ErrOversize) {
		reason = event.ReasonOversize
	}
	d.refused.warn(d.Logger, "event refused for good; a gap event takes its place",
		"id", it.orig.ID, "subject", it.orig.Subject(), "bytes", len(it.orig.Data), "error", err)
	it.send = event.RefusalGap(it.orig, reason, err.Error())
}

func (d *Drain) failed(err error, n int) {
	d.state.failed(d.Logger, err)
	if d.Hooks.OnError != nil {
		d.Hooks.OnError(err, n)
	}
}

func (d *Drain) pause(ctx context.Context) error {
	timer := time.NewTimer(d.wait.NextBackOff())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
