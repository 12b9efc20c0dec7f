// This program keeps the current state of what the bridge sends to Kafka, as a member of a consumer group: see
// README.md in the directory above.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/deltabridge/deltabridge/examples/consumers/state"
)

const (
	batchSize = 100
	fillTime  = 100 * time.Millisecond // how long a batch waits for more
)

type options struct {
	brokers, topics, group, file string
	show                         bool
}

func main() {
	var o options
	flag.StringVar(&o.brokers, "brokers", "127.0.0.1:9092", "brokers, with commas between them")
	flag.StringVar(&o.topics, "topics", "k8s", "topics, with commas between them")
	flag.StringVar(&o.group, "group", "example", "the consumer group")
	flag.StringVar(&o.file, "state", "state.db", "the file of the state")
	flag.BoolVar(&o.show, "show", false, "print the state, and end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	store, err := state.Open(o.file)
	if err != nil {
		return err
	}
	defer store.Close()
	if o.show {
		return store.Print(os.Stdout)
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: strings.Split(o.brokers, ","), GroupTopics: strings.Split(o.topics, ","), GroupID: o.group,
		StartOffset: kafka.FirstOffset, MaxWait: time.Second, // of a new group
		MaxAttempts:    1000,                                            // while a partition has no leader
		SessionTimeout: 6 * time.Second, HeartbeatInterval: time.Second, // how soon others take over when it is killed
	})
	defer reader.Close()
	for {
		records, err := fetch(ctx, reader)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = consume(ctx, store, reader, records)
		}
		if err != nil {
			return err // the program ends; it must be started again
		}
	}
}

// fetch waits for a record, and takes what comes soon after.
func fetch(ctx context.Context, reader *kafka.Reader) (records []kafka.Message, err error) {
	record, err := reader.FetchMessage(ctx)
	if err != nil {
		return nil, err
	}
	soon, cancel := context.WithTimeout(ctx, fillTime)
	defer cancel()
	for records = append(records, record); len(records) < batchSize; records = append(records, record) {
		record, err = reader.FetchMessage(soon)
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return records, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return records, nil
}

// consume applies a batch, and then commits it. If this program is killed in between, the batch comes again, and
// changes nothing.
func consume(ctx context.Context, store *state.Store, reader *kafka.Reader, records []kafka.Message) error {
	var batch []state.Event
	for _, r := range records {
		key := r.Topic + "/" + string(r.Key)
		if r.Value == nil {
			batch = append(batch, state.Tombstone(key))
			continue
		}
		if len(r.Headers) == 0 { // kafka-go also returns the markers of transactions, which are not events
			continue
		}
		attributes := map[string]string{}
		for _, h := range r.Headers {
			if attribute, ok := strings.CutPrefix(h.Key, "ce_"); ok {
				attributes[attribute] = string(h.Value)
			}
		}
		event, err := state.New(attributes, r.Value)
		if err != nil {
			fmt.Printf("%s/%d #%d is skipped: %v\n", r.Topic, r.Partition, r.Offset, err) // it would come again
			continue
		}
		event.Key = key
		batch = append(batch, event)
	}
	repeated, err := store.Apply(batch, func(text string) { fmt.Println(text) })
	if err != nil {
		return err
	}
	fmt.Printf("%d messages, %d of them repeated\n", len(records), repeated)
	if err := reader.CommitMessages(ctx, records...); err != nil {
		fmt.Println("not committed:", err) // the next commit covers it, or the records come again
	}
	return nil
}
