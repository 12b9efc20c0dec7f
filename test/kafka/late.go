package kafka

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deltabridge/deltabridge/test/poll"
)

// WriteLate writes a batch to the partition of a record, as the producer of the record does if it hangs after it has
// sent the record and goes on now. The batch has one record with the same key and value. If the partition is fenced,
// the error is kerr.InvalidProducerEpoch.
func WriteLate(ctx context.Context, addr string, r *kgo.Record) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer client.Close()
	// The partition may have another leader soon, or too few replicas.
	return poll.Until(ctx, 100*time.Millisecond, readTimeout, func() error {
		err := writeOnce(ctx, client, r)
		if err != nil && !kerr.IsRetriable(err) {
			return poll.Permanent(err)
		}
		return err
	})
}

func writeOnce(ctx context.Context, client *kgo.Client, r *kgo.Record) error {
	topics, err := kadm.NewClient(client).ListTopics(ctx, r.Topic)
	if err != nil {
		return err
	}
	topic := topics[r.Topic]
	partition, found := topic.Partitions[r.Partition]
	if !found || partition.Err != nil {
		return fmt.Errorf("partition %d of topic %s: found: %t, %w", r.Partition, r.Topic, found, partition.Err)
	}

	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = r.Partition, lateBatch(r)
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID, t.Partitions = r.Topic, topic.ID, append(t.Partitions, p)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis, req.Topics = -1, int32(readTimeout.Milliseconds()), append(req.Topics, t)
	res, err := client.Broker(int(partition.Leader)).Request(ctx, req)
	if err != nil {
		return err
	}
	written, ok := res.(*kmsg.ProduceResponse)
	if !ok || len(written.Topics) != 1 || len(written.Topics[0].Partitions) != 1 {
		return fmt.Errorf("the response does not contain partition %d of topic %s", r.Partition, r.Topic)
	}
	return kerr.ErrorForCode(written.Topics[0].Partitions[0].ErrorCode)
}

// lateBatch encodes the batch. Its sequence number is not the next one, which makes no difference to a broker that
// rejects the epoch, and without a fence leads to another error.
func lateBatch(r *kgo.Record) []byte {
	record := kmsg.Record{Key: r.Key, Value: r.Value}
	const lengthSize = 1 // of the length 0
	record.Length = int32(len(record.AppendTo(nil)) - lengthSize)
	now := time.Now().UnixMilli()
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: r.ProducerID, ProducerEpoch: r.ProducerEpoch, FirstSequence: 1 << 20,
		NumRecords: 1, Records: record.AppendTo(nil),
	}
	encoded := batch.AppendTo(nil)
	const length, afterLength, crc, afterCRC = 8, 12, 17, 21 // offsets in the record batch format 2
	binary.BigEndian.PutUint32(encoded[length:], uint32(len(encoded)-afterLength))
	binary.BigEndian.PutUint32(encoded[crc:], crc32.Checksum(encoded[afterCRC:], crc32.MakeTable(crc32.Castagnoli)))
	return encoded
}
