package kafkaaudit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"

	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

const (
	fetchBytes = 1 << 20 // the maximum size of a response for one partition, unless the first batch is larger
	batchBytes = 4 << 20 // the size of the events after which Read returns
	pollEvery  = 100 * time.Millisecond
	// lookEvery is how often the reader looks for new partitions and leaders.
	lookEvery = 10 * time.Second
	// typeHeader is the header of a CloudEvent in binary mode that has its type.
	typeHeader = "ce_type"
)

// Source reads a topic. It implements audit.Source.
type Source struct {
	topic      string
	client     *wire.Client
	offsets    map[int32]int64 // of the next record, by partition
	partitions []wire.Partition
	looked     time.Time
}

// New returns a source that is not connected. The configuration must be valid. New returns an error if a file that it
// names exists but cannot be used.
func New(cfg Config) (*Source, error) {
	if err := cfg.wire().CheckFiles(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &Source{topic: cfg.Topic, client: wire.New(cfg.wire())}, nil
}

// Name implements audit.Source.
func (s *Source) Name() string { return "kafka topic " + s.topic }

// Close implements audit.Source.
func (s *Source) Close() { s.client.Close() }

// Read implements audit.Source. A position contains the offset of the next record of each partition.
func (s *Source) Read(ctx context.Context, after json.RawMessage) (*audit.Batch, error) {
	if s.offsets == nil {
		offsets := map[int32]int64{}
		if len(after) > 0 {
			if err := json.Unmarshal(after, &offsets); err != nil {
				return nil, fmt.Errorf("the stored position: %w", err)
			}
		}
		s.offsets = offsets
	}
	batch := &audit.Batch{}
	for {
		progress, err := s.fetch(ctx, batch)
		if err != nil {
			s.looked = time.Time{} // another broker may be the leader
		}
		switch {
		case batch.Len() > 0 && (err != nil || !progress || batch.Bytes() >= batchBytes): // the next call returns the error
			batch.Position, err = json.Marshal(s.offsets)
			return batch, err
		case err != nil:
			return nil, cmp.Or(ctx.Err(), err)
		case progress:
			continue
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// look finds the partitions and their leaders.
func (s *Source) look(ctx context.Context) error {
	topics, err := s.client.Topics(ctx, s.topic)
	switch {
	case err != nil:
		return err
	case len(topics) != 1:
		return fmt.Errorf("the metadata does not contain topic %s", s.topic)
	case topics[0].Err != nil:
		return topics[0].Err
	}
	s.partitions = s.partitions[:0]
	for id, leader := range topics[0].Leaders {
		p := wire.Partition{Topic: s.topic, ID: int32(id), Leader: leader}
		if _, known := s.offsets[p.ID]; !known {
			first, err := p.Offset(ctx, s.client, wire.Earliest)
			if err != nil {
				return err
			}
			s.offsets[p.ID] = first
		}
		s.partitions = append(s.partitions, p)
	}
	s.looked = time.Now()
	return nil
}

// fetch reads once from each partition. It reports whether there was something to read.
func (s *Source) fetch(ctx context.Context, batch *audit.Batch) (progress bool, err error) {
	if time.Since(s.looked) > lookEvery {
		if err := s.look(ctx); err != nil {
			return false, err
		}
	}
	for i := range s.partitions {
		p := &s.partitions[i]
		next := s.offsets[p.ID]
		found, err := p.Fetch(ctx, s.client, next, fetchBytes, 0)
		switch {
		case errors.Is(err, kafkago.OffsetOutOfRange):
			err = s.skip(ctx, p, batch)
		case err == nil:
			err = s.take(p, found, batch)
		}
		if err != nil {
			return progress, err
		}
		progress = progress || s.offsets[p.ID] != next
	}
	return progress, nil
}

// skip continues with the first record of a partition that does not have the next one any more.
func (s *Source) skip(ctx context.Context, p *wire.Partition, batch *audit.Batch) error {
	first, err := p.Offset(ctx, s.client, wire.Earliest)
	if err != nil {
		return err
	}
	if next := s.offsets[p.ID]; first > next {
		batch.Lose(0, fmt.Sprintf("Kafka has deleted the records from offset %d to %d of %s before they were read",
			next, first-1, p))
	} else {
		batch.Lose(0, fmt.Sprintf("%s ends before offset %d, up to which it was read: the topic was created again", p, next))
	}
	s.offsets[p.ID] = first
	return nil
}

// take adds the events of a response to the batch.
func (s *Source) take(p *wire.Partition, found *fetch.ResponsePartition, batch *audit.Batch) error {
	before := s.offsets[p.ID]
	for found.RecordSet.Records != nil {
		record, err := found.RecordSet.Records.ReadRecord()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", p, err)
		}
		if record.Offset < s.offsets[p.ID] { // The broker sends whole batches, which can begin before the requested offset.
			continue
		}
		value, err := protocol.ReadAll(record.Value)
		if err != nil {
			return fmt.Errorf("read %s: %w", p, err)
		}
		s.offsets[p.ID] = record.Offset + 1
		kind := ""
		for _, h := range record.Headers {
			if h.Key == typeHeader {
				kind = string(h.Value)
			}
		}
		batch.AddMessage(kind, value, "records of topic "+s.topic)
	}
	if s.offsets[p.ID] == before && found.HighWatermark > before && found.RecordSet.Version > 0 {
		s.offsets[p.ID]++ // Skip a control batch, or the rest of a batch whose records were removed by compaction.
	}
	return nil
}
