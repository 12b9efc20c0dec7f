package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

const (
	// requestsAtOnce is the maximum number of requests of fences to one broker that are in flight.
	requestsAtOnce = 16
	// requestTimeout is the time limit of a fence's request. Other fences wait while a broker does not answer.
	requestTimeout = 10 * time.Second
	// markerWait is how long a fence waits at the end of the log for its marker before it writes another one.
	markerWait = time.Second
)

// A fence makes a partition safe to write to, and reads back what earlier processes wrote to it. If the partition has
// no position, the fence stores one before it uses the transactional id. Then it has three steps:
//
//  1. InitProducerId returns a producer with a newer epoch. The process requests the epoch after its own. If it has no
//     epoch, or the coordinator has raised the epoch, it requests a producer without naming an epoch, which succeeds
//     even if another process has the partition. Before and after this request, the arbiter must confirm that there is
//     no newer process.
//  2. AddPartitionsToTxn and EndTxn begin and abort an empty transaction, so that the coordinator writes a marker (a
//     control batch of this producer and epoch) to the partition. From then on, the partition rejects the batches of
//     older epochs.
//  3. The log is read up to the marker. Only this marker proves that the partition is fenced: Kafka 4.3 can drop the
//     marker of a partition that has no leader (KAFKA-20734). If it is missing, step 2 is repeated.
//
// A process that could not fence the partition has perhaps raised the epoch itself (partition.unsettle), which the
// coordinator does not know. The log is therefore also read before step 2. If it contains a batch of the producer's
// epoch or of a later one, step 1 is repeated: the broker would take the next batches for repetitions of the batches in
// the log, and the coordinator would wait forever for the marker of an epoch that is too old.
//
// If the fence renews the fence of a producer, it has no step 1, and it does not record what it reads.
type fence struct {
	sink *Sink
	wire.Partition
	part     string // the name of the partition, with the cluster's id
	place    string // the name of the partition
	count    int    // the number of partitions of the topic
	txn      wire.Transactions
	producer wire.Producer
	own      wire.Producer // the producer that the process had, or wire.NoProducer
	after    wire.Producer // step 1 requests the epoch after this one, or any epoch if it is wire.NoProducer
	asOf     time.Time     // the arbiter must be asked after this moment
	renewal  bool          // reports whether the fence renews the fence of own
	next     int64         // the offset of the next record to read, or wire.Latest
	ended    bool          // reports whether step 2 is done

	unused     bool // reports whether the transactional id was not used before, as far as the positions tell
	unanswered int  // the number of times that step 1 was perhaps done without an answer

	rivalSince time.Time // the time of another process's marker, or zero

	began  time.Time
	cancel context.CancelFunc
	done   chan struct{} // closed at the end; outcome is then valid

	// nil if the partition is fenced; otherwise it wraps errFenced, errNoFence, errGone or the error of the context
	outcome error

	mu     sync.Mutex
	failed error // why the last attempt failed, or nil
}

var (
	// errFenced means that there is a newer process or, if the fence is a renewal, that the coordinator has raised the
	// producer's epoch or forgotten it.
	errFenced = errors.New("a newer process has taken over")
	// errNoFence means that a permission is missing, or that the cluster does not support transactional ids.
	errNoFence = errors.New("cannot use fences")
	// errGone means that a partition whose fence was to be renewed does not exist.
	errGone = errors.New("no renewal")

	errNoMarker = errors.New("the transaction's marker is missing")
	errUsed     = errors.New("the epoch was used without a fence")
)

// run repeats attempts until the partition is fenced or can't be fenced. It closes f.done.
func (f *fence) run(ctx context.Context) {
	defer close(f.done)
	wait := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0), // never give up
	)
	f.outcome = backoff.RetryNotify(func() error {
		err := f.attempt(ctx)
		switch {
		case errors.Is(err, errFenced) || errors.Is(err, errNoFence):
			return backoff.Permanent(err)
		case f.renewal && codeOf(err) == kafkago.UnknownTopicOrPartition:
			return backoff.Permanent(fmt.Errorf("%w: %w", errGone, err))
		}
		return err
	}, backoff.WithContext(wait, ctx), func(err error, _ time.Duration) { f.fail(err) })
	if errors.Is(f.outcome, errFenced) && !f.renewal {
		f.outcome = f.rival(ctx, f.outcome)
	}
}

// attempt continues the fence from the step that failed.
func (f *fence) attempt(ctx context.Context) error {
	arbiter := &f.sink.fences.arbiter
	if err := arbiter.verify(ctx, f.asOf); err != nil {
		return err
	}
	if f.next == wire.Latest {
		if err := f.begin(ctx); err != nil {
			return err
		}
	}
	if f.producer == wire.NoProducer() {
		if err := f.init(ctx); err != nil {
			return err
		}
		if err := arbiter.verify(ctx, f.asOf); err != nil {
			return err
		}
	}
	if !f.ended {
		if !f.renewal {
			if err := f.read(ctx); err != nil {
				return err
			}
		}
		if err := f.transact(ctx); err != nil {
			return err
		}
	}
	return f.read(ctx)
}

// begin sets f.next to the end of the log, because no position is stored: no process that knew one has used the
// transactional id, and so none has written to the partition. begin stores this position before the id is used, so that
// even a process that is killed soon after that leaves a position. It stores nothing if a permission is missing.
func (f *fence) begin(ctx context.Context) error {
	if err := f.findLeader(ctx); err != nil {
		return err
	}
	var end int64
	var err error
	f.request(ctx, f.Leader, func(ctx context.Context) {
		if end, err = f.Offset(ctx, f.sink.client, wire.Latest); err == nil && !f.renewal {
			_, err = f.Fetch(ctx, f.sink.client, end, 1, 0) // requires the permission to read
		}
	})
	if err != nil {
		return f.readError(err)
	}
	if !f.renewal {
		at := sinks.Position{Next: end, Partitions: f.count, Key: f.sink.key.String()}
		if err := f.sink.fences.store(f.part, at); err != nil {
			return err
		}
	}
	f.next, f.unused = end, !f.renewal
	return nil
}

// init requests a producer.
func (f *fence) init(ctx context.Context) error {
	var p wire.Producer
	err := f.ask(ctx, func(ctx context.Context) (err error) {
		if p, err = f.txn.Init(ctx, f.after); wire.Sent(err) {
			f.unanswered++
		}
		return err
	})
	if err != nil {
		return f.judge(err)
	}
	if f.unused && int(p.Epoch) > f.unanswered { // The state is from a backup from before the first use of the id.
		at := sinks.Position{Partitions: f.count, Key: f.sink.key.String()}
		if err := f.sink.fences.store(f.part, at); err != nil {
			return err
		}
		f.next = 0
	}
	f.producer, f.unused = p, false
	if f.after == wire.NoProducer() { // The id may have been taken from a newer process.
		f.asOf = time.Now()
	}
	return nil
}

// startOver lets the next attempt request a producer even if another process has the partition.
func (f *fence) startOver() {
	f.producer, f.after, f.asOf, f.ended = wire.NoProducer(), wire.NoProducer(), time.Now(), false
}

// transact begins and aborts a transaction. It returns nil if the coordinator perhaps writes the marker.
func (f *fence) transact(ctx context.Context) error {
	err := f.ask(ctx, func(ctx context.Context) error { return f.txn.Add(ctx, f.producer, f.Topic, f.ID) })
	if err != nil {
		return f.judge(err)
	}
	err = f.ask(ctx, func(ctx context.Context) error { return f.txn.End(ctx, f.producer) })
	switch codeOf(err) {
	case kafkago.InvalidTransactionState, kafkago.ConcurrentTransactions: // The transaction has ended or is ending.
		err = nil
	}
	f.ended = err == nil
	return f.judge(err)
}

// judge returns what the error of a request to the coordinator means for the fence.
func (f *fence) judge(err error) error {
	switch codeOf(err) {
	case kafkago.ProducerFenced, kafkago.InvalidProducerEpoch, kafkago.InvalidProducerIDMapping:
		// The coordinator has raised the epoch, for another process or because the transaction was open for too long, or it
		// has forgotten the producer. The arbiter tells whether there is a newer process.
		if f.renewal {
			return fmt.Errorf("%w: %w", errFenced, err)
		}
		f.startOver()
	case kafkago.TopicAuthorizationFailed, kafkago.UnknownTopicOrPartition:
		return f.sink.client.CodeError(f.String(), codeOf(err), "")
	}
	return barred(err)
}

// barred wraps errNoFence around the answers which mean that the sink can't use transactional ids.
func barred(err error) error {
	code := codeOf(err)
	if code == kafkago.TransactionalIDAuthorizationFailed || code == kafkago.ClusterAuthorizationFailed ||
		wire.NoTransactions(code) {
		return fmt.Errorf("%w: %w", errNoFence, err)
	}
	return err
}

// codeOf returns the error code of a broker, or 0.
func codeOf(err error) kafkago.Error {
	code, _ := errors.AsType[kafkago.Error](err)
	return code
}

// ask calls do, which sends a request to the coordinator.
func (f *fence) ask(ctx context.Context, do func(context.Context) error) (err error) {
	if f.txn.Coordinator == "" {
		f.request(ctx, "", func(ctx context.Context) { err = f.txn.Find(ctx) })
	}
	if err == nil {
		f.request(ctx, f.txn.Coordinator, func(ctx context.Context) { err = do(ctx) })
	}
	return err
}

// request calls do, which sends requests to the broker at addr, or to any broker if addr is empty. It limits the number
// of requests of all fences.
func (f *fence) request(ctx context.Context, addr string, do func(context.Context)) {
	limit := f.sink.fences.limit(addr)
	select {
	case limit <- struct{}{}:
		defer func() { <-limit }()
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	do(ctx)
}

// fail records why the partition is not fenced yet.
func (f *fence) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = err
}

// failure explains why the partition is not fenced yet.
func (f *fence) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		return fmt.Errorf("%s: reading back what was written", &f.Partition)
	}
	return fmt.Errorf("%s: cannot fence earlier processes: %w", &f.Partition, f.failed)
}

func (f *fence) isDone() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}
