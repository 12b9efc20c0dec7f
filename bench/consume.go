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

// latencies collects the times from a commit until it was read from a broker.
type latencies struct {
	since int64 // Unix nanoseconds; earlier commits are from earlier runs and are ignored
	mu    sync.Mutex
	total int // messages with the time of a commit; reset does not clear it
	all   []time.Duration
}

// take records the latency of a message that contains the time of its commit.
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

// consume passes each message of the stream to a function. It does not use an ordered consumer of nats.go, because that
// restarts if a heartbeat is late on a busy machine.
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

// consume passes each record of the topic to a function.
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
