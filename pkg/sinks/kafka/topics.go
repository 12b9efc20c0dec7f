package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// defaultBatchBytes is the largest uncompressed record batch: just below the default of max.message.bytes.
const defaultBatchBytes = 1 << 20

// topic is a topic that events were sent to, with its partitions.
type topic struct {
	name       string
	partitions []*partition
	ids        []int // 0, 1, 2, …: what the balancer chooses from
	fetched    time.Time
	stale      bool  // a leader has moved, or the topic is not known yet
	err        error // why it can't be written to, of the last refresh
	unroutable partition
}

// partition is a partition's leader and the state of the idempotent producer there.
type partition struct {
	topic    *topic
	id       int32
	leader   string // host:port; empty while there is none
	epoch    int16
	sequence int32
	// inDoubt are the ids of the messages in the last batch, if it was perhaps written. The broker writes the batch
	// once if it is sent again unchanged with the same sequence number.
	inDoubt []string
	// batchBytes is the largest uncompressed record batch. It becomes smaller if the broker rejects a batch as too large.
	batchBytes int

	// Of one Send:
	queue []int // indices in the batch of what is still to send
	limit int   // how many messages the next record batch may hold
}

func newTopic(name string) *topic {
	t := &topic{name: name, stale: true}
	t.unroutable = partition{topic: t, id: -1}
	return t
}

// unreachable returns the reason why p has no leader.
func (s *Sink) unreachable(p *partition) error {
	if p.topic.err != nil {
		return p.topic.err
	}
	return s.partUnavailable(p, fmt.Errorf("%s: %w", p, kafkago.LeaderNotAvailable))
}

func (p *partition) String() string {
	return fmt.Sprintf("partition %d of topic %s", p.id, p.topic.name)
}

// destination returns the partition's name for [sinks.Router].
func (p *partition) destination() string { return p.topic.name + "/" + strconv.Itoa(int(p.id)) }

// unavailable marks err as an error of this topic only, unless the sink has only this topic.
func (s *Sink) unavailable(t *topic, err error) error {
	if s.single || !s.parts || sinks.IsPermanent(err) {
		return err
	}
	return sinks.Unavailable(t.name, err)
}

// partUnavailable marks err as an error of this partition only, if all events of its objects go to this partition.
func (s *Sink) partUnavailable(p *partition, err error) error {
	if s.volatile || !s.parts || p.id < 0 {
		return s.unavailable(p.topic, err)
	}
	return sinks.Unavailable(p.destination(), err)
}

// startOver resets the producer state for a new producer id.
func (p *partition) startOver() { p.epoch, p.sequence, p.inDoubt = 0, 0, nil }

// fence begins a new producer epoch: the broker then rejects all batches of older epochs. It returns false if the
// producer id has no more epochs.
func (p *partition) fence() bool {
	p.sequence, p.inDoubt = 0, nil
	if p.epoch == math.MaxInt16 {
		return false
	}
	p.epoch++
	return true
}

// advance counts n records that were written. Sequence numbers start again at 0 after the largest int32.
func (p *partition) advance(n int32) {
	p.sequence = int32((uint32(p.sequence) + uint32(n)) & math.MaxInt32)
}

func (t *topic) due(now time.Time) bool {
	return t.stale || now.Sub(t.fetched) >= MetadataMaxAge
}

// refresh reads the topics' partitions and leaders, and creates missing topics if that is configured. It sets err of
// each topic.
func (s *Sink) refresh(ctx context.Context, topics []*topic) {
	missing := s.fetch(ctx, topics)
	if len(missing) == 0 || s.create == nil {
		return
	}
	failed := s.client.CreateTopics(ctx, namesOf(missing), s.create, false)
	created := missing[:0]
	for _, t := range missing {
		if err := failed[t.name]; err != nil {
			t.err = s.unavailable(t, err)
		} else {
			created = append(created, t)
			s.cfg.Logger.Info("created Kafka topic", "topic", t.name)
		}
	}
	if len(created) > 0 {
		s.fetch(ctx, created)
	}
}

func namesOf(topics []*topic) (names []string) {
	for _, t := range topics {
		names = append(names, t.name)
	}
	return names
}

// fetch reads the metadata of the topics and returns those that do not exist.
func (s *Sink) fetch(ctx context.Context, topics []*topic) (missing []*topic) {
	found, err := s.client.Topics(ctx, namesOf(topics)...)
	if err != nil {
		for _, t := range topics {
			if t.stale { // otherwise what is known of it may well be right
				t.err = fmt.Errorf("reading the metadata of topic %s: %w", t.name, err)
			}
		}
		return nil
	}
	for _, f := range found {
		at := slices.IndexFunc(topics, func(t *topic) bool { return t.name == f.Name })
		if at < 0 {
			continue
		}
		t := topics[at]
		switch {
		case f.Err == nil:
			s.learn(t, f.Leaders)
			continue
		case errors.Is(f.Err, kafkago.InvalidTopic):
			t.err = sinks.Permanent(f.Err)
		case errors.Is(f.Err, kafkago.UnknownTopicOrPartition):
			missing = append(missing, t)
			fallthrough
		default:
			t.err = s.unavailable(t, f.Err)
		}
		t.stale = true
	}
	return missing
}

// learn sets the partitions and their leaders. A partition keeps its producer state: if the topic was deleted and
// created again, the broker rejects that state (outOfStep).
func (s *Sink) learn(t *topic, leaders []string) {
	for len(t.partitions) < len(leaders) {
		t.ids = append(t.ids, len(t.partitions))
		t.partitions = append(t.partitions, &partition{topic: t, id: int32(len(t.partitions))})
	}
	t.partitions, t.ids = t.partitions[:len(leaders)], t.ids[:len(leaders)]
	for i, p := range t.partitions {
		if p.leader = leaders[i]; !t.stale || p.batchBytes == 0 { // now and then: the topic's limit may have been raised
			p.batchBytes = defaultBatchBytes
		}
	}
	t.err, t.stale, t.fetched = nil, len(leaders) == 0 || slices.Contains(leaders, ""), time.Now()
}
