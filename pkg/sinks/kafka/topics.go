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

// defaultBatchBytes is the maximum size of an uncompressed record batch. It is just below the default of
// max.message.bytes.
const defaultBatchBytes = 1 << 20

// topic is a topic that the sink has sent events to.
type topic struct {
	name       string
	partitions []*partition
	ids        []int // 0, 1, 2, …: the partition ids that the balancer chooses from
	fetched    time.Time
	control    bool  // reports whether the topic is only for control events
	stale      bool  // reports whether a leader has moved or the topic is not known yet
	err        error // why the topic was not writable at the last refresh, or nil
	// deniedUntil is until when the sink does not try to fence partitions, because it must not read the topic.
	deniedUntil time.Time
	// unread contains the partitions that must be read back before anything is written to the topic: partitions were
	// added, or the key template was changed, since an earlier process wrote to them, or partitions were added since a
	// batch is in doubt, so that many events go to another partition.
	unread  []*partition
	schema  string  // the encoded id of the schema of its values; empty if it is not known, or if they have none
	naming  *naming // the request for schema that is running, or nil
	unnamed error   // why schema is not known although values have one, or nil

	readFor int // the number of partitions for which unread is known to be empty
	// undivided reports whether events may be parked that have another partition than later events of their objects,
	// because the number of partitions or the key template has changed. The topic is then not divided into parts, so
	// that the later events wait for them.
	undivided  bool
	unroutable partition
}

// partition contains a partition's leader and the state of the idempotent producer for this partition.
type partition struct {
	topic    *topic
	id       int32
	name     string   // the name for [sinks.Sink].Part
	leader   string   // host:port, or empty if the partition has no leader
	producer producer // If its id is -1, nothing can be written yet.
	// inDoubt contains the ids of the messages in the last batch if that batch was perhaps written. If the batch is
	// sent again unchanged with the same sequence number, the broker writes it only once.
	inDoubt []string

	fence     *fence    // the fence that is running or has failed, or nil
	fenced    bool      // reports whether the partition has a producer of its own
	fencedAt  time.Time // when the partition was fenced or the fence was renewed
	unsettled bool      // reports whether a fence must settle whether a batch was written
	next      int64     // the offset after the last record or marker that was acknowledged while the partition was fenced
	// end is an offset after all records that were acknowledged, or -1 if it is not known. It is found out only for
	// positions in gap and progress events.
	end int64

	// batchBytes is the maximum size of an uncompressed record batch. It is reduced if the broker rejects a batch as
	// too large.
	batchBytes int

	// The state of the current Send:
	queue []int  // the indices of the unsent messages
	moved bool   // reports whether the metadata must be read again
	batch *batch // the batch that is being sent
	n     int    // the number of messages in batch
	again bool   // reports whether batch was sent before and perhaps written
}

func newTopic(name string) *topic {
	t := &topic{name: name, stale: true}
	t.unroutable = partition{topic: t, id: -1, producer: producer{id: -1}}
	return t
}

func (p *partition) String() string {
	return fmt.Sprintf("partition %d of topic %s", p.id, p.topic.name)
}

// unavailable marks err as specific to this topic, unless the sink has only one topic.
func (s *Sink) unavailable(t *topic, err error) error {
	if s.single && s.control.template == nil || sinks.IsPermanent(err) {
		return err
	}
	return sinks.Unavailable(t.name, err)
}

// partUnavailable marks err as specific to this partition if all events of its objects go to this partition.
func (s *Sink) partUnavailable(p *partition, err error) error {
	switch {
	case s.volatile || p.id < 0:
		return s.unavailable(p.topic, err)
	case p.topic.undivided:
		return sinks.Unavailable(p.topic.name, err)
	}
	return sinks.Unavailable(p.name, err)
}

// isReady reports whether events can be written to the partition, unless other partitions of the topic must be read
// back first (topic.unread).
func (p *partition) isReady() bool {
	return p.producer.id >= 0 && !p.unsettled && (p.fence == nil || p.fence.renewal)
}

// unsettle records that a batch was perhaps written and will not be repeated unchanged. The broker could still write it
// after newer events, so it must be fenced first. Without a fence, the sink begins a new producer epoch: the broker
// then rejects all batches of older epochs. The epoch becomes negative if the producer id has no epochs left.
func (p *partition) unsettle() {
	if p.fenced {
		p.unsettled = true
		return
	}
	p.inDoubt, p.producer.sequence = nil, 0
	p.producer.epoch++
}

// advance adds n written records to the sequence number. After the maximum int32, sequence numbers start at 0 again.
func (p *producer) advance(n int32) {
	p.sequence = int32((uint32(p.sequence) + uint32(n)) & math.MaxInt32)
}

// refresh reads the partitions and leaders of the topics, and creates missing topics if this is configured. It sets err
// of each topic.
func (s *Sink) refresh(ctx context.Context, topics []*topic) {
	s.fetch(ctx, topics)
	for _, t := range topics {
		create := s.create
		if t.control {
			create = s.control.create
		}
		if create == nil || !t.isMissing() {
			continue
		}
		if err := s.client.CreateTopic(ctx, t.name, create, false); err != nil {
			t.err = s.unavailable(t, err)
			continue
		}
		s.cfg.Logger.Info("created Kafka topic", "topic", t.name)
		s.fetch(ctx, []*topic{t})
	}
}

// isMissing reports whether the topic did not exist at the last refresh.
func (t *topic) isMissing() bool { return errors.Is(t.err, kafkago.UnknownTopicOrPartition) }

// fetch reads the metadata of the topics.
func (s *Sink) fetch(ctx context.Context, topics []*topic) {
	var names []string
	for _, t := range topics {
		names = append(names, t.name)
	}
	found, err := s.client.Topics(ctx, names...)
	if err != nil {
		for _, t := range topics {
			if t.stale { // If the metadata is not stale, it may still be correct.
				t.err = fmt.Errorf("read the metadata of topic %s: %w", t.name, err)
			}
		}
		return
	}
	for _, f := range found {
		switch t := s.topics[f.Name]; {
		case t == nil:
		case f.Err == nil:
			s.learn(t, f.Leaders)
		case errors.Is(f.Err, kafkago.InvalidTopic):
			t.err, t.stale = sinks.Permanent(f.Err), true
		default:
			t.err, t.stale = s.unavailable(t, f.Err), true
		}
	}
}

// learn sets the partitions and their leaders. Partitions keep their producer state. If the topic was deleted and
// re-created, the broker rejects this state (outOfStep).
func (s *Sink) learn(t *topic, leaders []string) {
	before := len(t.partitions)
	for _, p := range t.partitions {
		if len(p.inDoubt) > 0 && len(leaders) > len(t.partitions) {
			p.unsettle()
		}
	}
	for len(t.partitions) < len(leaders) {
		t.ids = append(t.ids, len(t.partitions))
		t.partitions = append(t.partitions, &partition{
			topic: t, id: int32(len(t.partitions)), name: t.name + "/" + strconv.Itoa(len(t.partitions)),
			producer: producer{id: -1}, end: -1,
		})
	}
	for _, p := range t.partitions[len(leaders):] {
		p.stopFence()
	}
	t.partitions, t.ids = t.partitions[:len(leaders)], t.ids[:len(leaders)]
	for i, p := range t.partitions {
		// The size is reset occasionally, because the topic's limit may have been raised.
		p.end = -1 // the topic may have been created again
		if p.leader = leaders[i]; !t.stale || p.batchBytes == 0 {
			p.batchBytes = defaultBatchBytes
		}
		stored, known := s.fences.earlier[s.partName(p)]
		t.undivided = t.undivided || before == 0 && known && stored.Partitions != len(leaders)
	}
	// Without Resume, the order of events means nothing.
	t.undivided = t.undivided || s.fences.resume != nil && before > 0 && before != len(leaders)
	t.err, t.stale, t.fetched = nil, len(leaders) == 0 || slices.Contains(leaders, ""), time.Now()
}
