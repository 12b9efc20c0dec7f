package kafkalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/produce"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

const (
	// firstBytes is the maximum size of the first fetch response of a Read, whose caller may require only one record. Each
	// further response can be four times as large, up to fetchBytes. A single batch may be larger.
	firstBytes = 64 << 10
	fetchBytes = 4 << 20
	fetchWait  = 10 * time.Second
)

// produce writes a batch with one record, and repeats it until the broker answers. It returns the record's offset, or
// -1 if the record was written but its offset is not known. If record is nil, the value is null.
func (l *Log) produce(ctx context.Context, record []byte) (base int64, err error) {
	l.batch.Reset(time.Now())
	if record == nil {
		l.batch.AppendNull("")
	} else {
		l.batch.Append("", record)
	}
	set, err := l.batch.Encode(nil, l.producer, l.sequence)
	if err != nil {
		return -1, err
	}
	err = l.retry(ctx, func() error {
		answer, err := l.part.Produce(ctx, l.client, set)
		if err != nil {
			l.unclear = l.unclear || wire.Sent(err)
			return err
		}
		base, err = l.judge(answer)
		return err
	})
	if err != nil {
		base = -1
	}
	return base, err
}

// judge returns the offset in an answer. Source of the codes: the Kafka protocol guide, "Error Codes".
func (l *Log) judge(answer *produce.ResponsePartition) (base int64, err error) {
	switch code := kafkago.Error(answer.ErrorCode); {
	case code == 0:
		return answer.BaseOffset, nil
	case code == kafkago.DuplicateSequenceNumber:
		return -1, nil
	case isFenced(code):
		return -1, conflict(code)
	case (code == kafkago.MessageSizeTooLarge || code == kafkago.RecordListTooLarge) && l.unclear:
		return -1, conflict(code) // The limit was lowered. Nothing else may have this sequence number.
	case code == kafkago.MessageSizeTooLarge, code == kafkago.RecordListTooLarge:
		return -1, fmt.Errorf("%w: %w", statelog.ErrTooLarge, code)
	default: // A leader can append a batch although it returns an error.
		l.unclear = true
		return -1, l.client.CodeError(l.part.String(), code, answer.ErrorMessage)
	}
}

// Read implements [statelog.Log].
func (l *Log) Read(ctx context.Context, from int64, each func(position int64, record []byte) error) (int64, error) {
	end, err := l.offset(ctx, wire.Latest)
	if err != nil {
		return 0, err
	}
	maxBytes := int32(firstBytes)
	for next := from; next < end; maxBytes = min(4*maxBytes, fetchBytes) {
		found, err := l.fetch(ctx, &next, maxBytes)
		if err != nil {
			return 0, err
		}
		if next, err = take(found, next, end, each); err != nil {
			return 0, err
		}
	}
	return end, nil
}

// Wait implements [statelog.Log].
func (l *Log) Wait(ctx context.Context, from int64) error {
	for next := from; ; {
		found, err := l.fetch(ctx, &next, 1)
		if errors.Is(err, kafkago.OffsetOutOfRange) { // The topic was deleted and created again.
			return nil
		}
		if err != nil || next > from || found.HighWatermark > from {
			return err
		}
	}
}

// Truncate implements [statelog.Log].
func (l *Log) Truncate(ctx context.Context, before int64) error {
	first, err := l.offset(ctx, wire.Earliest)
	if err != nil || first >= before {
		return err
	}
	return l.retry(ctx, func() error { return l.part.DeleteBefore(ctx, l.client, before) })
}

func (l *Log) offset(ctx context.Context, at int64) (offset int64, err error) {
	err = l.retry(ctx, func() (err error) {
		offset, err = l.part.Offset(ctx, l.client, at)
		return err
	})
	return offset, err
}

// fetch returns batches from *next on. If there are none, it waits for them. If the record at *next was deleted, fetch
// sets *next to the first offset and returns no batches.
func (l *Log) fetch(ctx context.Context, next *int64, maxBytes int32) (found *fetch.ResponsePartition, err error) {
	wait := min(fetchWait, l.cfg.RequestTimeout/2)
	err = l.retry(ctx, func() error {
		found, err = l.part.Fetch(ctx, l.client, *next, maxBytes, wait)
		if !errors.Is(err, kafkago.OffsetOutOfRange) {
			return err
		}
		first, offsetErr := l.part.Offset(ctx, l.client, wire.Earliest)
		if offsetErr != nil {
			return offsetErr
		}
		if first <= *next { // *next is behind the end.
			return err
		}
		*next, found = first, new(fetch.ResponsePartition)
		return nil
	})
	return found, err
}

// take calls each for the records in a response from the offset next to end, except for those with a null value. It
// returns the offset of the next record.
func take(
	found *fetch.ResponsePartition, next, end int64, each func(position int64, record []byte) error,
) (int64, error) {
	records := found.RecordSet.Records
	if records == nil {
		return next, nil
	}
	before := next
	for record, err := range wire.Records(records, next) {
		if err != nil {
			return next, err
		}
		if record.Offset >= end {
			return end, nil
		}
		next = record.Offset + 1
		value, err := protocol.ReadAll(record.Value)
		if err == nil && value != nil {
			err = each(record.Offset, value)
		}
		if err != nil {
			return next, err
		}
	}
	if next == before {
		next++ // Skip a control batch.
	}
	return next, nil
}
