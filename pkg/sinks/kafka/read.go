package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/listoffsets"

	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

var _ diagnose.Reader = (*Sink)(nil)

const (
	fetchBytes = 4 << 20                // for one partition
	fetchWait  = 500 * time.Millisecond // for something new
	retryWait  = time.Second
	// lookAgain is how often a reader that follows looks for new topics and partitions.
	lookAgain = 10 * time.Second

	earliest, latest = -2, -1 // in place of a time
)

// reading is one Read: the partitions of all topics that the template can make.
type reading struct {
	sink *Sink
	diagnose.ReadOptions
	partitions map[string]*readPartition
	looked     time.Time
}

// readPartition is where the reading of a partition is. What was fetched of it waits in queue.
type readPartition struct {
	*partition
	next, end int64 // offsets: of the next fetch; behind the last record that is there, or for a bounded reading, was
	queue     []*diagnose.Record
	reset     bool // next is not known, or not there any more
}

func (p *readPartition) open() bool { return p.next < p.end }

// Read implements [diagnose.Reader], without a consumer group.
func (s *Sink) Read(ctx context.Context, o diagnose.ReadOptions, handle func(*diagnose.Record) error) error {
	r := &reading{sink: s, ReadOptions: o, partitions: map[string]*readPartition{}}
	if err := r.look(ctx, true); err != nil {
		return unlessEnded(ctx, err)
	}
	if len(r.partitions) == 0 && !o.Follow {
		return noTopic(s.template.String())
	}
	for ctx.Err() == nil {
		progress, err := r.fetch(ctx)
		if err == nil && o.Follow && time.Since(r.looked) > lookAgain {
			err = r.look(ctx, false)
		}
		for p := r.oldest(); p != nil; p = r.oldest() {
			record := p.queue[0]
			p.queue = p.queue[1:]
			record.Behind = r.behind()
			if err := handle(record); err != nil {
				return err
			}
		}
		if !o.Follow && err == nil && r.behind() == 0 {
			return nil
		}
		if err != nil || !progress {
			if err := r.recover(ctx, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// unlessEnded is err, which is none if ctx ended meanwhile.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// recover waits, and learns the leaders anew.
func (r *reading) recover(ctx context.Context, err error) error {
	wait := fetchWait
	if err != nil {
		wait = retryWait
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-timer.C:
	}
	if err == nil {
		return nil
	}
	_ = r.look(ctx, false) // if it fails, the next fetch does too, and comes here again
	if !r.Follow {
		return unlessEnded(ctx, err)
	}
	return nil
}

// look finds the topics, their partitions and leaders. A partition that is new is read from the time that is asked for at
// the beginning, and from its start later on.
func (r *reading) look(ctx context.Context, first bool) error {
	s := r.sink
	names := []string{s.template.String()}
	if s.template.Wildcard() != names[0] {
		var err error
		if names, err = s.existing(ctx, s.cluster); err != nil {
			return err
		}
	}
	r.looked = time.Now()
	if len(names) == 0 {
		return nil
	}
	var topics []*topic
	for _, name := range names {
		topics = append(topics, s.topic([]byte(name)))
	}
	s.fetch(ctx, topics)
	for _, t := range topics {
		if t.err != nil {
			return t.err
		}
		for _, p := range t.partitions {
			key := fmt.Sprintf("%s/%d", t.name, p.id)
			if known := r.partitions[key]; known != nil {
				known.partition = p
				continue
			}
			from := r.Since
			if !first {
				from = time.Time{}
			}
			one := &readPartition{partition: p}
			if err := r.begin(ctx, one, from); err != nil {
				return err
			}
			r.partitions[key] = one
		}
	}
	return nil
}

// begin finds the first and the last offset to read.
func (r *reading) begin(ctx context.Context, p *readPartition, since time.Time) error {
	end, err := r.offset(ctx, p, latest)
	if err != nil {
		return err
	}
	at := int64(earliest)
	if !since.IsZero() {
		at = since.UnixMilli()
	}
	start, err := r.offset(ctx, p, at)
	if err != nil {
		return err
	}
	if start < 0 { // nothing is as new
		start = end
	}
	p.next, p.end, p.reset = start, end, false
	return nil
}

func (r *reading) offset(ctx context.Context, p *readPartition, at int64) (int64, error) {
	if p.leader == "" {
		return 0, r.sink.unreachable(p.partition)
	}
	msg, err := r.sink.cluster.send(ctx, p.leader, &listoffsets.Request{ReplicaID: -1, Topics: []listoffsets.RequestTopic{{
		Topic: p.topic.name, Partitions: []listoffsets.RequestPartition{{Partition: p.id, CurrentLeaderEpoch: -1, Timestamp: at}},
	}}})
	if err != nil {
		return 0, err
	}
	topics := msg.(*listoffsets.Response).Topics
	if len(topics) == 0 || len(topics[0].Partitions) == 0 {
		return 0, fmt.Errorf("topic %s: the broker tells no offset of partition %d", p.topic.name, p.id)
	}
	found := topics[0].Partitions[0]
	if code := kafkago.Error(found.ErrorCode); code != 0 {
		return 0, r.sink.codeError("topic "+p.topic.name, code, "")
	}
	return found.Offset, nil
}

// fetch gets more of each partition of which nothing waits, from all leaders at once. It reports whether something came.
func (r *reading) fetch(ctx context.Context) (progress bool, err error) {
	byLeader := map[string][]*readPartition{}
	wait := fetchWait
	for _, p := range r.partitions {
		switch {
		case len(p.queue) > 0:
			wait = 0
			continue
		case p.open():
			wait = 0
		case !r.Follow:
			continue
		}
		if p.leader == "" {
			return false, r.sink.unreachable(p.partition)
		}
		if p.reset {
			if err := r.begin(ctx, p, time.Time{}); err != nil {
				return false, err
			}
		}
		byLeader[p.leader] = append(byLeader[p.leader], p)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for leader, partitions := range byLeader {
		wg.Go(func() {
			came, failure := r.fetchFrom(ctx, leader, partitions, wait)
			mu.Lock()
			defer mu.Unlock()
			progress, err = progress || came, errors.Join(err, failure)
		})
	}
	wg.Wait()
	return progress || len(byLeader) == 0 || wait > 0, err
}

func (r *reading) fetchFrom(ctx context.Context, leader string, partitions []*readPartition, wait time.Duration) (came bool, err error) {
	req := &fetch.Request{ReplicaID: -1, MaxWaitTime: int32(wait.Milliseconds()), MinBytes: 1, MaxBytes: 8 * fetchBytes, SessionEpoch: -1}
	byTopic := map[string][]fetch.RequestPartition{}
	for _, p := range partitions {
		byTopic[p.topic.name] = append(byTopic[p.topic.name], fetch.RequestPartition{
			Partition: p.id, CurrentLeaderEpoch: -1, FetchOffset: p.next, LogStartOffset: -1, PartitionMaxBytes: fetchBytes,
		})
	}
	for _, topic := range slices.Sorted(maps.Keys(byTopic)) {
		req.Topics = append(req.Topics, fetch.RequestTopic{Topic: topic, Partitions: byTopic[topic]})
	}
	msg, err := r.sink.cluster.send(ctx, leader, req)
	if err != nil {
		return false, err
	}
	res := msg.(*fetch.Response)
	if code := kafkago.Error(res.ErrorCode); code != 0 {
		return false, fmt.Errorf("kafka broker %s: read: %w", leader, code)
	}
	for _, t := range res.Topics {
		for i := range t.Partitions {
			at := slices.IndexFunc(partitions, func(p *readPartition) bool { return p.topic.name == t.Topic && p.id == t.Partitions[i].Partition })
			if at < 0 {
				continue
			}
			some, failure := r.take(partitions[at], &t.Partitions[i])
			came, err = came || some, errors.Join(err, failure)
		}
	}
	return came, err
}

// take queues what was fetched of a partition.
func (r *reading) take(p *readPartition, found *fetch.ResponsePartition) (came bool, err error) {
	switch code := kafkago.Error(found.ErrorCode); code {
	case 0:
	case kafkago.OffsetOutOfRange: // it was deleted meanwhile
		p.reset = true
		return true, nil
	default:
		p.topic.stale = true
		return false, r.sink.codeError("topic "+p.topic.name, code, "")
	}
	if r.Follow {
		p.end = max(p.end, found.HighWatermark)
	}
	before := p.next
	if found.RecordSet.Records != nil {
		if err := r.records(p, found); err != nil {
			return false, err
		}
	}
	if p.next == before && p.open() && found.RecordSet.Version > 0 {
		p.next++ // the rest of a batch that compaction has emptied
	}
	return p.next > before, nil
}

// oldest is the partition whose next record was stored first; nil as long as an older one may still come.
func (r *reading) oldest() (first *readPartition) {
	for _, p := range r.partitions {
		switch {
		case len(p.queue) > 0:
			if first == nil || p.queue[0].Stored.Before(first.queue[0].Stored) {
				first = p
			}
		case p.open():
			return nil
		}
	}
	return first
}

func (r *reading) behind() (n int64) {
	for _, p := range r.partitions {
		n += int64(len(p.queue)) + max(p.end-p.next, 0)
	}
	return n
}

// attributeOf is the attribute that a header holds.
func attributeOf(header string) (name string, ok bool) {
	if strings.EqualFold(header, headerContentType) {
		return attrContentType, true
	}
	return strings.CutPrefix(header, headerPrefix)
}
