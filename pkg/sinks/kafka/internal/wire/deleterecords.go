package wire

import (
	"context"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// deleteRecordsRequest is DeleteRecords, which kafka-go's package protocol does not have. Source: the Kafka protocol
// guide, "DeleteRecords API (Key: 21)".
type deleteRecordsRequest struct {
	Topics    []deleteRecordsTopic `kafka:"min=v0,max=v1"`
	TimeoutMs int32                `kafka:"min=v0,max=v1"`
}

type deleteRecordsTopic struct {
	Name       string                   `kafka:"min=v0,max=v1"`
	Partitions []deleteRecordsPartition `kafka:"min=v0,max=v1"`
}

type deleteRecordsPartition struct {
	Partition int32 `kafka:"min=v0,max=v1"`
	Offset    int64 `kafka:"min=v0,max=v1"`
}

type deleteRecordsResponse struct {
	ThrottleTimeMs int32                 `kafka:"min=v0,max=v1"`
	Topics         []deleteRecordsResult `kafka:"min=v0,max=v1"`
}

type deleteRecordsResult struct {
	Name       string                         `kafka:"min=v0,max=v1"`
	Partitions []deleteRecordsPartitionResult `kafka:"min=v0,max=v1"`
}

type deleteRecordsPartitionResult struct {
	Partition    int32 `kafka:"min=v0,max=v1"`
	LowWatermark int64 `kafka:"min=v0,max=v1"`
	ErrorCode    int16 `kafka:"min=v0,max=v1"`
}

//nolint:staticcheck // the name is that of protocol.Message
func (*deleteRecordsRequest) ApiKey() protocol.ApiKey { return protocol.DeleteRecords }

//nolint:staticcheck // the name is that of protocol.Message
func (*deleteRecordsResponse) ApiKey() protocol.ApiKey { return protocol.DeleteRecords }

//nolint:gochecknoinits // Register writes to a table that every connection reads, so it must run before any of them
func init() { protocol.Register(new(deleteRecordsRequest), new(deleteRecordsResponse)) }

// DeleteBefore deletes the records before an offset. It requires the permission Delete on the topic.
func (p *Partition) DeleteBefore(ctx context.Context, c *Client, offset int64) error {
	msg, err := p.Send(ctx, c, &deleteRecordsRequest{TimeoutMs: c.WriteTimeout(), Topics: []deleteRecordsTopic{{
		Name: p.Topic, Partitions: []deleteRecordsPartition{{Partition: p.ID, Offset: offset}},
	}}})
	if err != nil {
		return err
	}
	res := msg.(*deleteRecordsResponse)
	if len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1 {
		return p.missing()
	}
	if code := kafkago.Error(res.Topics[0].Partitions[0].ErrorCode); code != 0 {
		return c.CodeError("delete records of topic "+p.Topic, code, "")
	}
	return nil
}
