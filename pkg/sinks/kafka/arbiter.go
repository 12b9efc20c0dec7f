package kafka

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

// lateClaim is how long the broker may still handle a claim that has ended without an answer. During this time, the
// sink asks the arbiter again and again: later, it could not tell its own claim from that of a newer process.
const lateClaim = time.Minute

// arbiter tells whether the process is the newest one of the sink. A process that hung, and goes on after its successor
// has started, therefore does not keep a partition that it takes from its successor.
//
// The arbiter is a transactional id of the sink, which the process claims with its first fence. No partition is ever
// added to its transactions, so that a partition that is unavailable does not block it.
type arbiter struct {
	lost atomic.Bool // reports whether a newer process has claimed the id

	mu         sync.Mutex // held during a request
	txn        wire.Transactions
	producer   wire.Producer // wire.NoProducer before the process has claimed the id
	verified   time.Time     // when the last successful request began
	unanswered time.Time     // when a claim that was perhaps sent last ended without an answer, or zero
}

// verify returns nil if the process was the newest one after the moment asOf, and errFenced if there is a newer one. If
// asOf is zero, verify sends no request.
func (a *arbiter) verify(ctx context.Context, asOf time.Time) error {
	if !asOf.IsZero() && !a.lost.Load() {
		if err := a.confirm(ctx, asOf); err != nil {
			return err
		}
	}
	if a.lost.Load() {
		return errFenced
	}
	return nil
}

// isDue reports whether the arbiter must be asked because an earlier claim may have been handled late by now.
func (a *arbiter) isDue(now time.Time) bool {
	if !a.mu.TryLock() { // it is being asked
		return false
	}
	defer a.mu.Unlock()
	return now.Sub(a.unanswered) < lateClaim && now.Sub(a.verified) >= advanceEvery
}

// confirm requests the next epoch, unless another fence has done so since asOf. If the broker may have handled an
// earlier claim of this process late, and has thereby fenced the process itself, confirm claims the id once more.
func (a *arbiter) confirm(ctx context.Context, asOf time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lost.Load() || !a.verified.Before(asOf) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := a.request(ctx)
	switch codeOf(err) {
	case kafkago.ProducerFenced, kafkago.InvalidProducerEpoch:
		if time.Since(a.unanswered) > lateClaim {
			a.lost.Store(true)
			return nil
		}
		a.unanswered, a.producer = time.Time{}, wire.NoProducer()
		return a.request(ctx)
	case kafkago.InvalidProducerIDMapping: // The coordinator has forgotten the id, so nobody has claimed it.
		a.producer = wire.NoProducer()
	}
	return barred(err)
}

// request claims the id, or requests the epoch after that of the process.
func (a *arbiter) request(ctx context.Context) error {
	if err := a.txn.Find(ctx); err != nil {
		return err
	}
	began := time.Now()
	p, err := a.txn.Init(ctx, a.producer)
	switch {
	case err == nil:
		a.producer, a.verified = p, began
	case wire.Sent(err) && a.producer == wire.NoProducer():
		a.unanswered = time.Now()
	}
	return err
}
