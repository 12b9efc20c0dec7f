package main

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

const (
	maxBatchBytes = 900 << 10 // before compression; a broker accepts 1 MiB by default
	linger        = 5 * time.Millisecond
	requests      = 2 // concurrent requests
	waitingLines  = 1024
)

// kafka sends record batches to the partitions in turn. It uses no keys and concurrent requests, so there is no order.
// A batch is sent when it is full, or after linger.
type kafka struct {
	client     *kafkago.Client
	topic      string
	partitions int

	lines   chan []byte
	collect sync.Mutex // held by the goroutine that fills its batch
	next    int        // partition; guarded by collect
	senders sync.WaitGroup
	failed  atomic.Pointer[error]
}

func newKafka(o options) *kafka {
	k := &kafka{
		client: &kafkago.Client{Addr: kafkago.TCP(o.kafka), Transport: &kafkago.Transport{}},
		topic:  o.topic, partitions: o.partitions, lines: make(chan []byte, waitingLines),
	}
	for range requests {
		k.senders.Go(k.run)
	}
	return k
}

func (k *kafka) send(line []byte) error {
	if err := k.failed.Load(); err != nil {
		return *err
	}
	k.lines <- line
	return nil
}

func (k *kafka) finish() error {
	close(k.lines)
	k.senders.Wait()
	if err := k.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (k *kafka) run() {
	var b batch
	for {
		b.reset()
		k.collect.Lock()
		k.fill(&b)
		k.next = (k.next + 1) % k.partitions
		partition := k.next
		k.collect.Unlock()
		if b.count == 0 {
			return
		}
		if err := k.produce(&b, partition); err != nil {
			k.failed.CompareAndSwap(nil, &err) // keep receiving, so that send does not block
		}
	}
}

// fill collects lines. An empty batch marks the end.
func (k *kafka) fill(b *batch) {
	line, ok := <-k.lines
	if !ok {
		return
	}
	b.add(line)
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for b.size()+len(line) < maxBatchBytes {
		select {
		case line, ok = <-k.lines:
			if !ok {
				return
			}
			b.add(line)
		case <-timer.C:
			return
		}
	}
}

func (k *kafka) produce(b *batch, partition int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	response, err := k.client.RawProduce(ctx, &kafkago.RawProduceRequest{
		Topic: k.topic, Partition: partition, RequiredAcks: kafkago.RequireAll,
		RawRecords: protocol.RawRecordSet{Reader: bytes.NewReader(b.encode())},
	})
	if err == nil {
		err = response.Error
	}
	return err
}
