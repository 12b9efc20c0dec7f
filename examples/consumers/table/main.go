// This program reads the current state from a compacted topic, and goes on with each change from another topic, without
// missing one: see README.md in the directory above. The sinks of both topics must have the same filters and keys, and
// progress events (progress: 2s).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	broker := flag.String("broker", "127.0.0.1:9092", "a broker")
	state := flag.String("table", "state.pods", "the compacted topic")
	changes := flag.String("changes", "k8s.pods", "the topic with each change")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *broker, *state, *changes); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err, "(start again: the table has the current state)")
		os.Exit(1)
	}
}

// run prints the objects of the table, and then the changes until ctx ends.
func run(ctx context.Context, broker, state, changes string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(broker))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)

	// 1. Where the changes end now, and the highest resourceVersion before that.
	start, end, err := bounds(ctx, admin, changes)
	if err != nil {
		return err
	}
	required, err := highestVersions(ctx, broker, start, end)
	if err != nil {
		return err
	}
	// 2. The table, until it has everything up to there.
	start, written, err := bounds(ctx, admin, state)
	if err != nil {
		return err
	}
	t := table{
		objects: map[string]object{}, required: required, written: map[int32]int64{},
		progress: map[int32]map[string]uint64{},
	}
	written.Each(func(o kadm.ListedOffset) { t.written[o.Partition] = o.Offset })
	if err := read(ctx, broker, start, func(e event) (bool, error) { return t.fill(e), nil }); err != nil {
		return err
	}
	for _, o := range t.objects {
		if !o.gone {
			fmt.Println(o.version, "exists", o.subject)
		}
	}
	// 3. The changes from there on, without those that the table has already.
	return read(ctx, broker, end, func(e event) (bool, error) {
		switch {
		case e.wentBack():
			return false, errWentBack
		case e.attributes["type"] == "dev.deltabridge.gap":
			fmt.Printf("gap %s\n", e.record.Value)
		case e.isObject() && t.apply(e):
			fmt.Println(e.version, strings.TrimPrefix(e.attributes["type"], objectTypes), e.attributes["subject"])
		}
		return false, nil
	})
}

// highestVersions returns the highest resourceVersion of each resource between two offsets of each partition.
func highestVersions(ctx context.Context, broker string, start, end kadm.ListedOffsets) (map[string]uint64, error) {
	highest, open := map[string]uint64{}, map[int32]int64{} // the ends of partitions that are not read yet
	start.Each(func(from kadm.ListedOffset) {
		if to, _ := end.Lookup(from.Topic, from.Partition); from.Offset < to.Offset {
			open[from.Partition] = to.Offset
		}
	})
	if len(open) == 0 {
		return highest, nil
	}
	err := read(ctx, broker, start, func(e event) (bool, error) {
		if e.wentBack() {
			return false, errWentBack
		}
		to, isOpen := open[e.record.Partition]
		if isOpen && e.record.Offset < to {
			highest[e.resource()] = max(highest[e.resource()], e.version)
		}
		if e.record.Offset >= to-1 {
			delete(open, e.record.Partition)
		}
		return len(open) == 0, nil
	})
	return highest, err
}

// bounds returns the offsets between which each partition of a topic has records.
func bounds(ctx context.Context, admin *kadm.Client, topic string) (start, end kadm.ListedOffsets, err error) {
	if start, err = admin.ListStartOffsets(ctx, topic); err != nil {
		return nil, nil, err
	}
	if end, err = admin.ListEndOffsets(ctx, topic); err != nil {
		return nil, nil, err
	}
	return start, end, end.Error()
}

// read passes on all records of a topic, from these offsets on, until each returns true. It fails if a record was
// deleted before it was read.
func read(ctx context.Context, broker string, from kadm.ListedOffsets, each func(event) (bool, error)) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumePartitions(from.KOffsets()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.KeepControlRecords()) // the last record can be a control record
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			if done, err := each(newEvent(record)); done || err != nil {
				return err
			}
		}
	}
}
