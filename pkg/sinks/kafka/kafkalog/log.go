package kafkalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"

	"github.com/cenkalti/backoff/v4"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

// maxRecord is the maximum size of a record with which a batch has less than 1 MiB, the default of max.message.bytes.
const maxRecord = 1<<20 - 128

// Log implements [statelog.Log] in a Kafka topic. See the package comment.
type Log struct {
	cfg     Config
	client  *wire.Client
	txn     wire.Transactions
	part    wire.Partition
	checked bool // reports whether the topic is known to be suitable
	batch   wire.Batch

	producer wire.Producer // wire.NoProducer() if Fence must be called
	fenced   time.Time     // when the producer was requested; not monotonic, because that clock stops with a paused VM
	sequence int32         // the sequence number of the next record
	unclear  bool          // reports whether a record with this sequence number was perhaps written
}

var _ statelog.Log = (*Log)(nil)

// New returns a log that is not connected. The configuration must be valid. New returns an error if a file that it
// names exists but cannot be used.
func New(cfg Config) (*Log, error) {
	// Connections read the files again, and report a file that is missing.
	if err := cfg.CheckFiles(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	client := wire.New(&cfg.Config)
	return &Log{
		cfg: cfg, client: client, part: wire.Partition{Topic: cfg.Topic}, producer: wire.NoProducer(),
		txn: wire.Transactions{Client: client, ID: wire.TransactionPrefix + "state." + cfg.Topic},
	}, nil
}

// MaxRecord implements [statelog.Log].
func (l *Log) MaxRecord() int { return maxRecord }

// Close implements [statelog.Log].
func (l *Log) Close() error {
	l.client.Close()
	return nil
}

// Fence implements [statelog.Log]. It writes a record with a null value, which readers skip.
func (l *Log) Fence(ctx context.Context) (end int64, err error) {
	if err := l.initProducer(ctx, wire.NoProducer()); err != nil {
		return 0, err
	}
	base, err := l.produce(ctx, nil)
	if err == nil && base < 0 {
		err = errors.New("the broker did not return the offset of the record")
	}
	if err != nil {
		l.producer = wire.NoProducer()
		return 0, err
	}
	l.advance()
	return base + 1, nil
}

// initProducer requests a producer, or the next epoch of the log's producer.
func (l *Log) initProducer(ctx context.Context, own wire.Producer) error {
	began := time.Now().Round(0)
	p := wire.NoProducer()
	err := l.retry(ctx, func() (err error) {
		if p, err = l.txn.Init(ctx, own); own != wire.NoProducer() && isFenced(err) {
			err = conflict(err)
		}
		return err
	})
	if errors.Is(err, statelog.ErrConflict) || err != nil && own == wire.NoProducer() {
		l.producer = wire.NoProducer()
	}
	if err == nil {
		l.producer, l.fenced, l.sequence, l.unclear = p, began, 0, false
	}
	return err
}

// renew requests the next epoch in time before Kafka forgets the producer.
func (l *Log) renew(ctx context.Context) error {
	age := time.Since(l.fenced)
	switch {
	case l.producer == wire.NoProducer():
		return conflict(errors.New("Fence was not called"))
	case age >= 0 && age < wire.FenceInterval: // otherwise, the clock was set back, so the age is not known
		return nil
	case !l.unclear:
		return l.initProducer(ctx, l.producer)
	case age < 2*wire.FenceInterval: // A record is in doubt, and must be sent again with the same epoch.
		return nil
	}
	l.producer = wire.NoProducer()
	return conflict(fmt.Errorf("no acknowledgement of a record for %v", age.Round(time.Second)))
}

// Append implements [statelog.Log].
func (l *Log) Append(ctx context.Context, after int64, record []byte) (end int64, err error) {
	if err := l.renew(ctx); err != nil {
		return 0, err
	}
	base, err := l.produce(ctx, record)
	lost := errors.Is(err, statelog.ErrConflict)
	if err != nil && !lost {
		return 0, err
	}
	if err == nil && base < 0 || lost && l.unclear {
		// The response does not say where, or whether, an earlier attempt has written the record.
		var findErr error
		if base, findErr = l.find(ctx, after, record); findErr != nil {
			return 0, findErr
		}
	}
	if base < after {
		if err == nil {
			err = conflict(fmt.Errorf("the record is not behind offset %d: the topic was deleted and created again", after))
		}
		l.producer = wire.NoProducer()
		return 0, err
	}
	if l.advance(); lost { // after an earlier attempt had written the record
		l.producer = wire.NoProducer()
	}
	return base + 1, nil
}

// advance notes that the record with the next sequence number was written. After the maximum int32, sequence numbers
// start at 0 again.
func (l *Log) advance() { l.sequence, l.unclear = (l.sequence+1)&math.MaxInt32, false }

// find returns the offset of a record, or -1 if the log does not contain the record.
func (l *Log) find(ctx context.Context, from int64, record []byte) (int64, error) {
	found := int64(-1)
	errFound := errors.New("found")
	_, err := l.Read(ctx, from, func(offset int64, r []byte) error {
		if !bytes.Equal(r, record) {
			return nil
		}
		found = offset
		return errFound
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return found, err
}

// conflict returns an ErrConflict.
func conflict(cause error) error { return fmt.Errorf("%w: %w", statelog.ErrConflict, cause) }

// isFenced reports whether a broker rejects a producer because there is a newer one, or because it has forgotten it.
func isFenced(err error) bool {
	code, _ := errors.AsType[kafkago.Error](err)
	switch code {
	case kafkago.InvalidProducerEpoch, kafkago.ProducerFenced, kafkago.OutOfOrderSequenceNumber,
		kafkago.UnknownProducerId, kafkago.InvalidProducerIDMapping:
		return true
	}
	return false
}

// retry finds the leader and calls do until it succeeds, until it fails with an error that a retry does not fix, or
// until the request timeout.
func (l *Log) retry(ctx context.Context, do func() error) error {
	wait := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(time.Second),
		backoff.WithMaxElapsedTime(l.cfg.RequestTimeout),
	)
	var failed error
	err := backoff.Retry(func() error {
		if ctx.Err() != nil {
			return backoff.Permanent(ctx.Err())
		}
		if failed = l.findLeader(ctx); failed == nil {
			failed = do()
		}
		switch {
		case failed == nil:
			return nil
		case errors.Is(failed, statelog.ErrConflict), errors.Is(failed, statelog.ErrTooLarge):
			return backoff.Permanent(failed)
		}
		l.part.Leader = "" // It may have moved.
		if failed = l.denied(failed); sinks.IsRejected(failed) {
			return backoff.Permanent(failed)
		}
		return failed
	}, backoff.WithContext(wait, ctx))
	if err == nil {
		return nil
	}
	if failed != nil && !errors.Is(failed, err) { // err is that of the context
		err = fmt.Errorf("%w: %w", err, failed)
	}
	return fmt.Errorf("state log in topic %s: %w", l.part.Topic, err)
}

// denied returns err with the required permissions if one is missing.
func (l *Log) denied(err error) error {
	switch code, _ := errors.AsType[kafkago.Error](err); code {
	case kafkago.TopicAuthorizationFailed, kafkago.TransactionalIDAuthorizationFailed, kafkago.ClusterAuthorizationFailed:
		return &sinks.ConnectError{
			Step: sinks.StepAuthorize, Key: "kafka.topic", Rejected: true,
			Remedy: fmt.Sprintf("give %s the permissions Describe, Read, Write and Delete on the topic %s, and Describe and "+
				"Write on the transactional id %s", l.cfg.SASL.Who(), l.part.Topic, l.txn.ID),
			Err: access.Words(code, "not allowed (%s)", code.Title()),
		}
	}
	return err
}
