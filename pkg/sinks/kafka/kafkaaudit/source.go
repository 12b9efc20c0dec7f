package kafkaaudit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"

	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

const (
	fetchBytes = 1 << 20 // the maximum size of a response for one partition, unless the first batch is larger
	batchBytes = 4 << 20 // the size of the events after which Read returns
	pollEvery  = 100 * time.Millisecond
	// recently is the time between two reads of a partition in which a topic is not deleted, created again and filled.
	recently = pollEvery / 2
	// lookEvery is how often the reader looks for new partitions and leaders, and whether the topic is still the same.
	lookEvery = 10 * time.Second
	// partitionRetry is the pause after a failed attempt to read a partition, or longer if the attempt took longer.
	partitionRetry = time.Second
	// typeHeader is the header of a CloudEvent in binary mode that has its type.
	typeHeader = "ce_type"
)

// Source reads a topic. It implements audit.Source.
type Source struct {
	topic      string
	client     *wire.Client
	places     map[int32]*place // by partition; nil before the first Read
	partitions []*partition
	turn       int       // the partition that was read last
	look       time.Time // when the reader looks for partitions again
	idle       time.Duration
}

// place is where a partition continues. The places of all partitions are a position.
type place struct {
	Next int64 `json:"next"` // the offset of the next record, or -1 to begin with the oldest one
	// First is the offset that the partition began with. If it begins with a lower one, the topic was created again.
	First int64 `json:"first,omitempty"`
	// Last and Sum are the offset of a record that was read, and the checksum of its value. If the partition has another
	// record there, the topic was created again. Sum is empty if nothing was read.
	Last int64  `json:"last,omitempty"`
	Sum  string `json:"sum,omitempty"`
}

// begin returns the place of a partition that is read from its first record on.
func begin(first int64) place { return place{Next: first, First: first} }

// partition is a partition that exists.
type partition struct {
	wire.Partition
	*place
	checked bool      // the place belongs to this topic
	fetched time.Time // when the partition was read last

	err   error // of the last attempt to read it
	retry time.Time
}

// New returns a source that is not connected. The configuration must be valid. New returns an error if a file that it
// names exists but cannot be used.
func New(cfg Config) (*Source, error) {
	if err := cfg.CheckFiles(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &Source{topic: cfg.Topic, client: wire.New(&cfg.Config), idle: audit.Idle}, nil
}

// Name implements audit.Source.
func (s *Source) Name() string { return "kafka topic " + s.topic }

// Close implements audit.Source.
func (s *Source) Close() { s.client.Close() }

// Read implements audit.Source. A partition that cannot be read does not hold up the others.
func (s *Source) Read(ctx context.Context, after json.RawMessage) (*audit.Batch, error) {
	if s.places == nil {
		places := map[int32]*place{}
		if len(after) > 0 {
			if err := json.Unmarshal(after, &places); err != nil {
				return nil, fmt.Errorf("the stored position: %w", err)
			}
		}
		s.places = places
	}
	batch := &audit.Batch{}
	for begin := time.Now(); ; {
		progress, err := s.fetch(ctx, batch)
		err = s.explain(err)
		idle := time.Since(begin) > s.idle
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case batch.Len() > 0 || err == nil && idle:
			batch.Err = err
			batch.Position, err = json.Marshal(s.places)
			return batch, err
		case err != nil:
			return nil, err
		case progress:
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollEvery):
		}
	}
}

// explain returns err with the remedy for a topic that is only read.
func (s *Source) explain(err error) error {
	e, ok := errors.AsType[*sinks.ConnectError](err)
	if !ok {
		return err
	}
	switch code, _ := errors.AsType[kafkago.Error](err); code {
	case kafkago.UnknownTopicOrPartition:
		e.Key, e.Remedy = "audit.kafka.topic", "create it, or correct audit.kafka.topic"
	case kafkago.TopicAuthorizationFailed:
		e.Key = "audit.kafka.topic"
		e.Remedy = fmt.Sprintf("give %s the permissions Describe and Read on the topic", s.client.Config.SASL.Who())
	}
	return err
}

// find finds the partitions and their leaders.
func (s *Source) find(ctx context.Context) error {
	topics, err := s.client.Topics(ctx, s.topic)
	switch {
	case err != nil:
		return err
	case len(topics) != 1:
		return fmt.Errorf("the metadata does not contain topic %s", s.topic)
	case topics[0].Err != nil:
		return topics[0].Err
	}
	isNew := len(s.places) == 0
	leaders, now := topics[0].Leaders, time.Now()
	for id, leader := range leaders {
		if id == len(s.partitions) {
			at := s.places[int32(id)]
			if at == nil {
				at = new(place)
				if isNew { // there is nothing to miss before the oldest record
					at.Next = -1
				}
				s.places[int32(id)] = at
			}
			s.partitions = append(s.partitions, &partition{Partition: wire.Partition{Topic: s.topic, ID: int32(id)}, place: at})
		}
		p := s.partitions[id]
		if p.checked = false; p.Leader != leader || now.After(p.retry) {
			p.Leader, p.err = leader, nil
		}
	}
	s.partitions = s.partitions[:len(leaders)]
	s.look = now.Add(lookEvery)
	return nil
}

// fetch reads once from each partition. It reports whether there was something to read. If some partitions cannot be
// read, it returns the error of one of them.
func (s *Source) fetch(ctx context.Context, batch *audit.Batch) (progress bool, err error) {
	if time.Now().After(s.look) {
		if err := s.find(ctx); err != nil {
			return false, err
		}
	}
	for range s.partitions {
		if batch.Bytes() >= batchBytes {
			break
		}
		s.turn = (s.turn + 1) % len(s.partitions)
		p := s.partitions[s.turn]
		if p.err == nil {
			begin, next := time.Now(), p.Next
			err := s.read(ctx, p, batch)
			if ctx.Err() != nil {
				return progress, ctx.Err()
			}
			if p.err = err; err != nil {
				p.retry = time.Now().Add(max(partitionRetry, time.Since(begin)))
				if p.retry.Before(s.look) { // another broker may be the leader
					s.look = p.retry
				}
			}
			progress = progress || p.Next != next
		}
		if p.err != nil {
			err = p.err
		}
	}
	return progress, err
}

// read reads once from a partition.
func (s *Source) read(ctx context.Context, p *partition, batch *audit.Batch) error {
	if !p.checked {
		if err := s.check(ctx, p, batch); err != nil {
			return err
		}
		p.checked, p.fetched = true, time.Now()
	}
	found, err := p.Fetch(ctx, s.client, p.Next, fetchBytes, 0)
	switch {
	case errors.Is(err, kafkago.OffsetOutOfRange):
		return s.skip(ctx, p, batch)
	case err != nil:
		return err
	case found.HighWatermark > p.Next && time.Since(p.fetched) > recently:
		before := *p.place
		if err := s.check(ctx, p, batch); err != nil || *p.place != before {
			return err // the records can be those in the middle of a new topic
		}
	}
	p.fetched = time.Now()
	return s.take(p, found, batch)
}

// check begins again if the topic was created again, and begins if the partition is new.
func (s *Source) check(ctx context.Context, p *partition, batch *audit.Batch) error {
	switch {
	case p.Next < 0:
		first, err := p.Offset(ctx, s.client, wire.Earliest)
		if err == nil {
			*p.place = begin(first)
		}
		return err
	case p.Sum == "":
		first, err := p.Offset(ctx, s.client, wire.Earliest)
		if err == nil && first < p.First {
			batch.Lose(0, fmt.Sprintf("%s begins with offset %d, and began with offset %d earlier: the topic was created again",
				p, first, p.First))
			*p.place = begin(first)
		}
		return err
	}
	found, err := p.Fetch(ctx, s.client, p.Last, 1, 0) // a broker sends at least one batch
	switch {
	case errors.Is(err, kafkago.OffsetOutOfRange):
		return nil // it was deleted, or the next record is not there either
	case err != nil:
		return err
	}
	for record, err := range wire.Records(found.RecordSet.Records, p.Last) {
		var value []byte
		if err == nil && record.Offset == p.Last {
			value, err = protocol.ReadAll(record.Value)
		}
		if err != nil {
			return err
		}
		if record.Offset != p.Last || checksum(value) == p.Sum {
			continue
		}
		first, err := p.Offset(ctx, s.client, wire.Earliest)
		if err != nil {
			return err
		}
		batch.Lose(
			0,
			fmt.Sprintf("%s has another record at offset %d than the one that was read: the topic was created again",
				p, p.Last),
		)
		*p.place = begin(first)
		return nil
	}
	return nil
}

// skip continues with the first record of a partition that does not have the next one any more.
func (s *Source) skip(ctx context.Context, p *partition, batch *audit.Batch) error {
	first, err := p.Offset(ctx, s.client, wire.Earliest)
	if err != nil {
		return err
	}
	if first > p.Next {
		batch.Lose(0, fmt.Sprintf("Kafka has deleted the records from offset %d to %d of %s before they were read",
			p.Next, first-1, p))
	} else {
		batch.Lose(0, fmt.Sprintf("%s ends before offset %d, up to which it was read: the topic was created again, or Kafka "+
			"has lost records", p, p.Next))
	}
	*p.place = begin(first)
	return nil
}

// take adds the events of a response to the batch.
func (s *Source) take(p *partition, found *fetch.ResponsePartition, batch *audit.Batch) (err error) {
	before := p.Next
	var last []byte
	for record, failed := range wire.Records(found.RecordSet.Records, p.Next) {
		var value []byte
		if err = failed; err == nil {
			value, err = protocol.ReadAll(record.Value)
		}
		if err != nil {
			break
		}
		p.Last, p.Next, last = record.Offset, record.Offset+1, value
		kind := ""
		for _, h := range record.Headers {
			if h.Key == typeHeader {
				kind = string(h.Value)
			}
		}
		batch.AddMessage(kind, value, "records of topic "+s.topic)
	}
	switch {
	case p.Next > before:
		p.Sum = checksum(last)
	case err == nil && found.HighWatermark > before && found.RecordSet.Version > 0:
		p.Next++ // Skip a control batch, or the rest of a batch whose records were removed by compaction.
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", p, err)
	}
	return nil
}

func checksum(value []byte) string {
	sum := sha256.Sum256(value)
	return hex.EncodeToString(sum[:8])
}
