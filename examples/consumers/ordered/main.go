// This program prints the changes in a topic of Kafka in the order in which they happened, although the topic has
// several partitions: see README.md in the directory above. The sink must have progress events (progress: 2s).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"
)

func main() {
	broker := flag.String("broker", "127.0.0.1:9092", "a broker")
	topic := flag.String("topic", "k8s.pods", "the topic")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *broker, *topic); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run reads all partitions from the beginning until ctx ends. A program that goes on where it was would store the
// offsets of Merger.Committable, in one transaction with what it does with the events.
func run(ctx context.Context, broker, topic string) error {
	partitions, err := kafka.LookupPartitions(ctx, "tcp", broker, topic)
	if err != nil {
		return err
	}
	var ids []int
	for _, p := range partitions {
		ids = append(ids, p.ID)
	}
	merger, events := NewMerger(ids...), make(chan Event)
	group, ctx := errgroup.WithContext(ctx)
	for _, id := range ids {
		group.Go(func() error { return read(ctx, broker, topic, id, events) })
	}
	group.Go(func() error {
		for {
			select {
			case e := <-events:
				for _, e := range merger.Add(e) {
					show(e)
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	return group.Wait()
}

// show prints an event about an object.
func show(e Event) {
	if operation, ok := strings.CutPrefix(e.Attributes["type"], "dev.deltabridge.object."); ok {
		fmt.Println(e.Attributes["resourceversion"], operation, e.Attributes["subject"])
	}
}

// read passes on the events of one partition.
func read(ctx context.Context, broker, topic string, partition int, events chan<- Event) error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{broker}, Topic: topic, Partition: partition, MaxWait: 250 * time.Millisecond,
		MaxAttempts: 1000, // while a partition has no leader
	})
	defer reader.Close()
	for {
		record, err := reader.ReadMessage(ctx)
		if err != nil {
			return err
		}
		e := Event{
			Partition: partition, Offset: record.Offset, Attributes: map[string]string{}, Data: record.Value,
		}
		for _, h := range record.Headers {
			if name, ok := strings.CutPrefix(h.Key, "ce_"); ok {
				e.Attributes[name] = string(h.Value)
			}
		}
		if e.Attributes["type"] == "" { // a tombstone, or kafka-go's marker of a transaction
			continue
		}
		select {
		case events <- e:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
