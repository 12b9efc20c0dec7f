package kafkaread

import (
	"context"
	"errors"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/deltabridge/deltabridge/internal/pause"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

const (
	pollEvery = 250 * time.Millisecond
	retryWait = time.Second
	// lookEvery is how often a reader in follow mode checks for new topics and partitions.
	lookEvery = 10 * time.Second
)

// reading is the state of one Read: the partitions of all topics that match the templates.
type reading struct {
	client    *wire.Client
	templates []string
	diagnose.ReadOptions
	partitions map[string]*partition
	looked     time.Time
}

// Read reads the topics that match the templates. There must be a topic that matches the first one. See
// [diagnose.Reader].
func Read(
	ctx context.Context, c *wire.Client, templates []string, o diagnose.ReadOptions, handle func(*diagnose.Record) error,
) error {
	r := &reading{client: c, templates: templates, ReadOptions: o, partitions: map[string]*partition{}}
	if err := r.look(ctx, o.Since); err != nil {
		return unlessEnded(ctx, err)
	}
	if len(r.partitions) == 0 && !o.Follow {
		return wire.NoTopic(templates[0])
	}
	for ctx.Err() == nil {
		progress, err := r.fetch(ctx)
		if err == nil && o.Follow && time.Since(r.looked) > lookEvery {
			err = r.look(ctx, time.Time{})
		}
		for p := r.oldest(); p != nil; p = r.oldest() {
			record := p.queue[0]
			p.queue = p.queue[1:]
			record.Behind = r.behind()
			if err := handle(record); err != nil {
				return err
			}
		}
		switch {
		case err != nil && !o.Follow:
			return unlessEnded(ctx, err)
		case err != nil:
			pause.For(ctx, retryWait)
			_ = r.look(ctx, time.Time{}) // If look fails, the next fetch fails too.
		case !o.Follow && r.behind() == 0:
			return nil
		case !progress:
			pause.For(ctx, pollEvery)
		}
	}
	return nil
}

// unlessEnded returns err, or nil if ctx has ended.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// look updates the topics, partitions and leaders. It reads new partitions starting at since.
func (r *reading) look(ctx context.Context, since time.Time) error {
	var topics []wire.Topic
	for n, template := range r.templates {
		found, err := r.client.TopicsLike(ctx, template)
		if err != nil {
			return err
		}
		if n > 0 {
			found = slices.DeleteFunc(found, func(t wire.Topic) bool {
				return errors.Is(t.Err, kafkago.UnknownTopicOrPartition)
			})
		}
		topics = append(topics, found...)
	}
	r.looked = time.Now()
	for _, t := range topics {
		if t.Err != nil {
			return t.Err
		}
		for id, leader := range t.Leaders {
			p := &partition{
				Partition: wire.Partition{Topic: t.Name, ID: int32(id), Leader: leader}, follow: r.Follow,
			}
			if known := r.partitions[p.place()]; known != nil {
				known.Leader = leader
				continue
			}
			if err := p.begin(ctx, r.client, since); err != nil {
				return err
			}
			r.partitions[p.place()] = p
		}
	}
	return nil
}

// fetch reads more records from each partition whose queue is empty. It reports whether it made progress.
func (r *reading) fetch(ctx context.Context) (progress bool, err error) {
	for _, p := range r.partitions {
		if len(p.queue) > 0 || !p.isOpen() && !r.Follow {
			continue
		}
		came, failure := p.fetch(ctx, r.client)
		progress, err = progress || came, errors.Join(err, failure)
	}
	return progress, err
}

// oldest returns the partition with the oldest queued record, or nil if an older record may still arrive.
func (r *reading) oldest() (first *partition) {
	for _, p := range r.partitions {
		switch {
		case len(p.queue) > 0:
			if first == nil || p.queue[0].Stored.Before(first.queue[0].Stored) {
				first = p
			}
		case p.isOpen():
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
