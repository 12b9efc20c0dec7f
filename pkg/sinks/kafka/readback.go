package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/kafkaread"
)

const (
	// readBackBytes is the maximum size of a fetch response. It limits the memory of the read-back.
	readBackBytes = 512 << 10
	// rivalTimeout is the time limit for finding out since when another process writes.
	rivalTimeout = 5 * time.Second
)

// read reads the log and passes the records to note. Before the transaction, it reads up to the end of the log, and
// after the transaction up to the marker. If the marker is missing, the next attempt writes another one.
func (f *fence) read(ctx context.Context) error {
	var atEnd time.Time // since when everything is read
	for {
		found, err := f.fetch(ctx)
		if err != nil {
			return err
		}
		if f.isUsed(found) {
			f.startOver()
			return errUsed
		}
		marker, err := f.take(found, f.note)
		if marker || err != nil {
			return err
		}
		switch {
		case f.next < found.HighWatermark:
			atEnd = time.Time{}
		case !f.ended:
			return nil
		case atEnd.IsZero():
			atEnd = time.Now()
		case time.Since(atEnd) > markerWait:
			f.ended = false
			return errNoMarker
		}
	}
}

// fetch reads from f.next on. If f.next is not in the log, fetch reads from the start of the log: either the records
// were deleted, or the topic was deleted and created again.
func (f *fence) fetch(ctx context.Context) (found *fetch.ResponsePartition, err error) {
	for {
		if err := f.findLeader(ctx); err != nil {
			return nil, err
		}
		wait := min(markerWait, f.sink.cfg.RequestTimeout) / 2
		if !f.ended {
			wait = 0
		}
		f.request(ctx, f.Leader, func(ctx context.Context) {
			found, err = f.Fetch(ctx, f.sink.client, f.next, readBackBytes, wait)
		})
		if !errors.Is(err, kafkago.OffsetOutOfRange) {
			return found, f.readError(err)
		}
		if f.next, err = f.offset(ctx, wire.Earliest); err != nil {
			return nil, err
		}
	}
}

func (f *fence) offset(ctx context.Context, at int64) (offset int64, err error) {
	if err := f.findLeader(ctx); err != nil {
		return 0, err
	}
	f.request(ctx, f.Leader, func(ctx context.Context) { offset, err = f.Offset(ctx, f.sink.client, at) })
	return offset, f.readError(err)
}

// readError forgets the leader after an error, because another broker may be the leader now.
func (f *fence) readError(err error) error {
	switch {
	case err == nil:
		return nil
	case codeOf(err) == kafkago.TopicAuthorizationFailed:
		return fmt.Errorf("%w: read %s: %w", errNoFence, &f.Partition, codeOf(err))
	}
	f.Leader = ""
	return err
}

func (f *fence) findLeader(ctx context.Context) error {
	if f.Leader != "" {
		return nil
	}
	topics, err := f.sink.client.Topics(ctx, f.Topic)
	switch {
	case err != nil:
		return err
	case len(topics) != 1 || topics[0].Err == nil && int(f.ID) >= len(topics[0].Leaders):
		return fmt.Errorf("%s: %w", &f.Partition, kafkago.UnknownTopicOrPartition)
	case topics[0].Err != nil:
		return topics[0].Err
	}
	if f.Leader = topics[0].Leaders[f.ID]; f.Leader == "" {
		return fmt.Errorf("%s: %w", &f.Partition, kafkago.LeaderNotAvailable)
	}
	return nil
}

// isUsed reports whether found contains batches of the fence's producer with the fence's epoch or a later one.
func (f *fence) isUsed(found *fetch.ResponsePartition) bool {
	stream, _ := found.RecordSet.Records.(*protocol.RecordStream)
	return stream != nil && !f.renewal && slices.ContainsFunc(stream.Records, func(r protocol.RecordReader) bool {
		batch, ok := r.(*protocol.RecordBatch)
		return ok && batch.ProducerID == f.producer.ID && batch.ProducerEpoch >= f.producer.Epoch
	})
}

// take calls note for each record up to the fence's marker. It reports whether the marker was found.
func (f *fence) take(found *fetch.ResponsePartition, note func(*protocol.Record)) (marker bool, err error) {
	before := f.next
	stream, _ := found.RecordSet.Records.(*protocol.RecordStream)
	if stream == nil {
		return false, nil
	}
	for _, batch := range stream.Records {
		if control, ok := batch.(*protocol.ControlBatch); ok {
			if control.BaseOffset < f.next {
				continue
			}
			if control.ProducerID == f.own.ID && control.ProducerEpoch > f.own.Epoch && f.rivalSince.IsZero() {
				if record, err := control.ReadRecord(); err == nil {
					f.rivalSince = record.Time
				}
			}
			f.next = control.BaseOffset + 1
			if f.producer == (wire.Producer{ID: control.ProducerID, Epoch: control.ProducerEpoch}) {
				return true, nil
			}
			continue
		}
		for record, err := range wire.Records(batch, f.next) {
			if err != nil {
				return false, fmt.Errorf("read %s: %w", &f.Partition, err)
			}
			f.next = record.Offset + 1
			note(record)
		}
	}
	if f.next == before {
		f.next++ // Skip the rest of a batch whose records were removed by compaction.
	}
	return false, nil
}

// note adds a record to the found records if it has the header of a sink.
func (f *fence) note(record *protocol.Record) {
	if f.renewal {
		return
	}
	r := sinks.FoundRecord{Part: f.part, Place: f.place}
	for _, h := range record.Headers {
		if h.Key == sinks.MarkHeader {
			r.Mark = string(h.Value)
		} else if name, ok := strings.CutPrefix(h.Key, kafkaread.HeaderPrefix); ok && sinks.Identifies(name) {
			r.Set(name, string(h.Value))
		}
	}
	if r.Mark != "" {
		f.sink.fences.note(r)
	}
}

// rival returns the error of a partition that another process has taken over. If the partition shows since when, the
// error contains this time, and the source of the first record that the other process wrote.
func (f *fence) rival(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(ctx, rivalTimeout)
	defer cancel()
	var source string
	for source == "" && f.own != wire.NoProducer() {
		found, err := f.fetch(ctx)
		if err != nil || f.next >= found.HighWatermark {
			break
		}
		if _, err := f.take(found, func(r *protocol.Record) {
			for _, h := range r.Headers {
				if source == "" && !f.rivalSince.IsZero() && h.Key == kafkaread.HeaderPrefix+"source" {
					source = ", with the source " + string(h.Value)
				}
			}
		}); err != nil {
			break
		}
	}
	since := ""
	if !f.rivalSince.IsZero() {
		since = " since " + f.rivalSince.UTC().Format(time.RFC3339)
	}
	return fmt.Errorf("%s: a process with the same identity writes to it%s%s; stop one of the two processes, which have "+
		"the same state or copies of it, and then restart the other: %w", &f.Partition, since, source, cause)
}
