package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/addpartitionstotxn"
	"github.com/segmentio/kafka-go/protocol/endtxn"
	"github.com/segmentio/kafka-go/protocol/findcoordinator"
	"github.com/segmentio/kafka-go/protocol/initproducerid"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

// Producer identifies a producer to the brokers. A broker rejects batches of a producer id with an older epoch than the
// newest epoch in the partition.
type Producer struct {
	ID    int64
	Epoch int16
}

// NoProducer returns the Producer in a request for a new producer.
func NoProducer() Producer { return Producer{ID: -1, Epoch: -1} }

// ProducerID requests an id for an idempotent producer without a transactional id. The first epoch is 0.
func (c *Client) ProducerID(ctx context.Context) (int64, error) {
	msg, err := c.Ask(ctx, &initproducerid.Request{ProducerID: -1, ProducerEpoch: -1})
	if err != nil {
		return 0, err
	}
	res := msg.(*initproducerid.Response)
	switch code := kafkago.Error(res.ErrorCode); code {
	case 0:
		return res.ProducerID, nil
	case kafkago.ClusterAuthorizationFailed, kafkago.TransactionalIDAuthorizationFailed:
		return 0, &sinks.ConnectError{
			Step: sinks.StepAuthorize, Key: "kafka.topic", Rejected: true,
			Remedy: fmt.Sprintf("give %s the permission Write on the topic; Kafka before 3.0 also requires IdempotentWrite "+
				"on the cluster", c.Config.SASL.Who()),
			Err: access.Words(code, "the cluster does not grant a producer id (%s)", code.Title()),
		}
	default:
		return 0, fmt.Errorf("request a producer id: %w", code)
	}
}

const (
	// TransactionPrefix is the beginning of all transactional ids, for prefixed ACLs.
	TransactionPrefix = "deltabridge."
	// FenceInterval is the interval at which fences are renewed, so that neither the partition
	// (producer.id.expiration.ms, by default a day) nor the coordinator (transactional.id.expiration.ms, a week) forgets
	// the producer.
	FenceInterval = 4 * time.Hour
	// transactionTimeout is the default of the Java client. If a process hangs for longer while its transaction is open,
	// the coordinator aborts the transaction and raises the epoch.
	transactionTimeout = time.Minute
)

// Transactions sends the requests of a transactional id to its coordinator. It must not be used by several goroutines
// at a time. The errors of its methods wrap the broker's kafkago.Error.
type Transactions struct {
	Client *Client
	ID     string // the transactional id
	// Coordinator is the coordinator's host:port. If it is empty, the next request looks it up.
	Coordinator string
}

// NoTransactions reports whether err is the answer of a proxy, or of a server that is compatible with Kafka, which does
// not support the requests of transactional ids.
func NoTransactions(err error) bool {
	return errors.Is(err, kafkago.UnsupportedVersion) || errors.Is(err, kafkago.InvalidRequest)
}

// Find finds the coordinator, unless it is known. It requires the permission Describe on the transactional id.
func (t *Transactions) Find(ctx context.Context) error {
	if t.Coordinator != "" {
		return nil
	}
	const transaction = 1 // the type of the key
	msg, err := t.Client.Ask(ctx, &findcoordinator.Request{Key: t.ID, KeyType: transaction})
	if err != nil {
		return err
	}
	res := msg.(*findcoordinator.Response)
	if res.ErrorCode == 0 {
		t.Coordinator = net.JoinHostPort(res.Host, strconv.Itoa(int(res.Port)))
	}
	return t.error("find the coordinator", res.ErrorCode)
}

// send sends a request to the coordinator, and forgets the coordinator if there is no response.
func (t *Transactions) send(ctx context.Context, req protocol.Message) (protocol.Message, error) {
	if err := t.Find(ctx); err != nil {
		return nil, err
	}
	msg, err := t.Client.Send(ctx, t.Coordinator, req)
	if err != nil {
		t.Coordinator = ""
	}
	return msg, err
}

// error converts an error code, and forgets the coordinator if it may have changed.
func (t *Transactions) error(what string, code int16) error {
	switch err := kafkago.Error(code); err {
	case 0:
		return nil
	case kafkago.NotCoordinatorForGroup, kafkago.GroupCoordinatorNotAvailable:
		t.Coordinator = ""
		fallthrough
	default:
		return fmt.Errorf("transactional id %s: %s: %w", t.ID, what, err)
	}
}

// Init requests a producer. The coordinator increments the epoch that the transactional id had, and ends its open
// transaction. If own is not NoProducer, the request fails if another process has requested a producer since then. If
// transactionTimeout is longer than transaction.max.timeout.ms of the brokers, Init halves it.
func (t *Transactions) Init(ctx context.Context, own Producer) (Producer, error) {
	for timeout := transactionTimeout; ; {
		msg, err := t.send(ctx, &initproducerid.Request{
			TransactionalID: t.ID, TransactionTimeoutMs: int32(timeout.Milliseconds()),
			ProducerID: own.ID, ProducerEpoch: own.Epoch,
		})
		if err != nil {
			return NoProducer(), err
		}
		res := msg.(*initproducerid.Response)
		timeout /= 2
		if kafkago.Error(res.ErrorCode) != kafkago.InvalidTransactionTimeout || timeout < time.Millisecond {
			return Producer{res.ProducerID, res.ProducerEpoch}, t.error("request a producer", res.ErrorCode)
		}
	}
}

// Permitted returns an error if a permission on the transactional id is missing: Describe or Write. It changes nothing,
// and fences no process: its request for a producer is invalid, which brokers notice after they have checked the
// permission. The timeout is 0, and the producer has an id without an epoch.
func (t *Transactions) Permitted(ctx context.Context) error {
	msg, err := t.send(ctx, &initproducerid.Request{TransactionalID: t.ID, ProducerEpoch: -1})
	if err != nil {
		return err
	}
	if code := msg.(*initproducerid.Response).ErrorCode; code == int16(kafkago.TransactionalIDAuthorizationFailed) {
		return t.error("request a producer", code)
	}
	return nil
}

// Add adds a partition to the transaction of p. It begins a transaction if none is open.
func (t *Transactions) Add(ctx context.Context, p Producer, topic string, partition int32) error {
	msg, err := t.send(ctx, &addpartitionstotxn.Request{
		TransactionalID: t.ID, ProducerID: p.ID, ProducerEpoch: p.Epoch,
		Topics: []addpartitionstotxn.RequestTopic{{Name: topic, Partitions: []int32{partition}}},
	})
	if err != nil {
		return err
	}
	results := msg.(*addpartitionstotxn.Response).Results
	if len(results) != 1 || len(results[0].Results) != 1 {
		return errors.New("the response to AddPartitionsToTxn does not contain the partition")
	}
	return t.error("begin a transaction", results[0].Results[0].ErrorCode)
}

// End aborts the transaction of p. The coordinator then writes a control batch to each of its partitions.
func (t *Transactions) End(ctx context.Context, p Producer) error {
	msg, err := t.send(ctx, &endtxn.Request{
		TransactionalID: t.ID, ProducerID: p.ID, ProducerEpoch: p.Epoch,
	})
	if err != nil {
		return err
	}
	return t.error("end the transaction", msg.(*endtxn.Response).ErrorCode)
}
