package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"
)

// latencies collects how long commits took until they were read from a broker.
type latencies struct {
	since int64 // Unix nanoseconds: earlier commits are of earlier runs, and come with a watch's first events
	mu    sync.Mutex
	total int // messages with the time of a commit, over all resets
	all   []time.Duration
}

// take looks for the time of the commit in a message.
func (l *latencies) take(data []byte) {
	now := time.Now().UnixNano()
	_, after, ok := bytes.Cut(data, []byte(`"`+committedAt+`":"`))
	if !ok {
		return
	}
	digits, _, _ := bytes.Cut(after, []byte(`"`))
	at, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || at < l.since {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total++
	l.all = append(l.all, time.Duration(now-at))
}

func (l *latencies) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

func (l *latencies) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = nil
}

func (l *latencies) sorted() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(slices.Values(l.all))
}

// consume gives each message of the stream. The consumer is not an ordered one of nats.go, which starts itself anew where
// the machine is so busy that a heartbeat is late.
func (j *jetStream) consume(ctx context.Context, name string, take func(data []byte)) (stop func(), err error) {
	consumer, err := j.js.CreateConsumer(ctx, name, jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: loadTimeout, MemoryStorage: true,
	})
	if err != nil {
		return nil, err
	}
	consuming, err := consumer.Consume(func(m jetstream.Msg) { take(m.Data()) })
	if err != nil {
		return nil, err
	}
	return func() {
		consuming.Stop()
		<-consuming.Closed()
	}, nil
}

// consume gives each record of the topic.
func (k *kafkaBroker) consume(ctx context.Context, name string, take func(data []byte)) (stop func(), err error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(k.broker.Addr()), kgo.ConsumeTopics(name),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(time.Second))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			fetches := client.PollFetches(ctx)
			if errors.Is(fetches.Err(), kgo.ErrClientClosed) {
				return
			}
			fetches.EachRecord(func(r *kgo.Record) { take(r.Value) })
		}
	})
	return func() {
		cancel()
		group.Wait()
		client.Close()
	}, nil
}
