// This program keeps the current state of what the bridge sends to JetStream, by a durable pull consumer: see README.md
// in the directory above.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/examples/consumers/state"
)

const batchSize = 100

type options struct {
	url, stream, subject, durable, file string
	ackWait                             time.Duration
	show                                bool
}

func main() {
	var o options
	flag.StringVar(&o.url, "nats", nats.DefaultURL, "the server")
	flag.StringVar(&o.stream, "stream", "K8S", "the stream")
	flag.StringVar(&o.subject, "subject", "", "which subjects; empty: all")
	flag.StringVar(&o.durable, "durable", "example", "the name of the consumer on the server")
	flag.StringVar(&o.file, "state", "state.db", "the file of the state")
	flag.DurationVar(
		&o.ackWait,
		"ack-wait",
		30*time.Second,
		"after which time the server sends again what was not acknowledged",
	)
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
	store.Sweep = o.subject == "" // this consumer reads all of the stream
	conn, err := nats.Connect(o.url, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	consumer, err := js.CreateOrUpdateConsumer(ctx, o.stream, jetstream.ConsumerConfig{
		Durable:       o.durable,
		FilterSubject: o.subject,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       o.ackWait,
		MaxAckPending: batchSize,
	})
	if err != nil {
		return err
	}
	// What a predecessor had fetched when it was killed comes again after AckWait. Waiting for that keeps the order.
	if info := consumer.CachedInfo(); info.NumAckPending > 0 {
		wait(ctx, o.ackWait)
	}
	for ctx.Err() == nil {
		messages, err := consumer.Fetch(batchSize, jetstream.FetchMaxWait(time.Second)) // a second to fill the batch
		if err == nil {
			if err := consume(store, messages); err != nil {
				return err // the program ends; it must be started again
			}
			err = messages.Error()
		}
		if err != nil { // the server is away or gets another leader
			fmt.Println("trying again:", err)
			wait(ctx, time.Second)
		}
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// consume applies a batch, and then acknowledges it. If this program is killed in between, the batch comes again, and
// changes nothing.
func consume(store *state.Store, messages jetstream.MessageBatch) error {
	var batch []state.Event
	var taken []jetstream.Msg
	for m := range messages.Messages() {
		attributes := map[string]string{}
		for name, values := range m.Headers() {
			if attribute, ok := strings.CutPrefix(strings.ToLower(name), "ce-"); ok {
				attributes[attribute], _ = url.PathUnescape(values[0]) // by the bridge always valid
			}
		}
		taken = append(taken, m)
		if event, err := state.New(attributes, m.Data()); err != nil {
			fmt.Printf("%s is skipped: %v\n", m.Subject(), err) // otherwise it would be delivered again and again
		} else {
			batch = append(batch, event)
		}
	}
	repeated, err := store.Apply(batch, func(text string) { fmt.Println(text) })
	if err != nil {
		return err
	}
	if len(taken) > 0 {
		fmt.Printf("%d messages, %d of them repeated\n", len(taken), repeated)
	}
	for _, m := range taken {
		if err := m.Ack(); err != nil {
			return err
		}
	}
	return nil
}
