package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
)

// The values of at for [Partition.Offset] that are not a time.
const (
	Earliest = -2 // the offset of the first record
	Latest   = -1 // the high watermark, which is the offset after the last record that all replicas in sync have
)

// Partition is a partition to which requests are sent.
type Partition struct {
	Topic  string
	ID     int32
	Leader string // host:port, or empty if the partition has no leader
}

func (p *Partition) String() string { return fmt.Sprintf("partition %d of topic %s", p.ID, p.Topic) }

// Send sends a request to the partition's leader and returns the response.
func (p *Partition) Send(ctx context.Context, c *Client, req protocol.Message) (protocol.Message, error) {
	if p.Leader == "" {
		return nil, fmt.Errorf("%s: %w", p, kafkago.LeaderNotAvailable)
	}
	return c.Send(ctx, p.Leader, req)
}

// missing returns the error for a response that does not contain the partition.
func (p *Partition) missing() error {
	return &brokerError{addr: p.Leader, sent: true, err: fmt.Errorf("the response does not contain %s", p)}
}

// Offset returns the offset of the first record with at least this timestamp in Unix milliseconds, or -1 if there is
// none.
func (p *Partition) Offset(ctx context.Context, c *Client, at int64) (int64, error) {
	msg, err := p.Send(ctx, c, &listoffsets.Request{ReplicaID: -1, Topics: []listoffsets.RequestTopic{{
		Topic: p.Topic,
		Partitions: []listoffsets.RequestPartition{
			{Partition: p.ID, CurrentLeaderEpoch: -1, Timestamp: at},
		},
	}}})
	if err != nil {
		return 0, err
	}
	topics := msg.(*listoffsets.Response).Topics
	if len(topics) == 0 || len(topics[0].Partitions) == 0 {
		return 0, p.missing()
	}
	found := topics[0].Partitions[0]
	if code := kafkago.Error(found.ErrorCode); code != 0 {
		return 0, c.CodeError("topic "+p.Topic, code, "")
	}
	return found.Offset, nil
}

// Fetch returns batches, beginning with the one that contains offset. If there are none, it waits for them. If offset
// is not in the log, the error wraps kafkago.OffsetOutOfRange.
func (p *Partition) Fetch(
	ctx context.Context, c *Client, offset int64, maxBytes int32, wait time.Duration,
) (*fetch.ResponsePartition, error) {
	msg, err := p.Send(ctx, c, &fetch.Request{
		ReplicaID: -1, MaxWaitTime: int32(wait.Milliseconds()), MinBytes: 1, MaxBytes: maxBytes, SessionEpoch: -1,
		Topics: []fetch.RequestTopic{{Topic: p.Topic, Partitions: []fetch.RequestPartition{{
			Partition: p.ID, CurrentLeaderEpoch: -1, FetchOffset: offset,
			LogStartOffset: -1, PartitionMaxBytes: maxBytes,
		}}}},
	})
	if err != nil {
		return nil, err
	}
	res := msg.(*fetch.Response)
	if len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1 {
		return nil, p.missing()
	}
	found := &res.Topics[0].Partitions[0]
	if code := kafkago.Error(found.ErrorCode); code != 0 {
		return nil, c.CodeError("topic "+p.Topic, code, "")
	}
	return found, nil
}

// Records returns the records of a fetched batch, or of all fetched batches, from an offset on: a broker sends whole
// batches, which can begin before the offset that was requested. reader may be nil. An error is the last element. A
// record is valid until the next one.
func Records(reader protocol.RecordReader, from int64) iter.Seq2[*protocol.Record, error] {
	return func(yield func(*protocol.Record, error) bool) {
		for reader != nil {
			record, err := reader.ReadRecord()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if record.Offset >= from && !yield(record, nil) {
				return
			}
		}
	}
}

// AcksAll means that all replicas in sync must have a batch before the leader answers.
const AcksAll = -1

// Produce writes a record set, as [Batch.Encode] returns it. If it returns an error, [Sent] reports whether the record
// set was perhaps written. Otherwise the answer contains an error code.
func (p *Partition) Produce(ctx context.Context, c *Client, set []byte) (*produce.ResponsePartition, error) {
	msg, err := p.Send(ctx, c, &rawproduce.Request{
		Acks: AcksAll, Timeout: c.WriteTimeout(), Topics: []rawproduce.RequestTopic{{
			Topic: p.Topic, Partitions: []rawproduce.RequestPartition{{
				Partition: p.ID, RecordSet: protocol.RawRecordSet{Reader: bytes.NewReader(set)},
			}},
		}},
	})
	if err != nil {
		return nil, err
	}
	res := msg.(*produce.Response)
	if len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1 {
		return nil, p.missing()
	}
	return &res.Topics[0].Partitions[0], nil
}
