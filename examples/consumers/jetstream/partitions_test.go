package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	natssink "github.com/deltabridge/deltabridge/pkg/sinks/nats"
)

const partitions = 4

// A stream of the form of cli/partitioned-stream.json takes what the bridge sends, once, and gives all events of an
// object to one of its partitions.
func TestPartitions(t *testing.T) {
	srv, err := server.NewServer(
		&server.Options{
			Host:      "127.0.0.1",
			Port:      server.RANDOM_PORT,
			JetStream: true,
			StoreDir:  t.TempDir(),
			NoLog:     true,
			NoSigs:    true,

			JetStreamMaxStore: 1 << 40, // the usual limit depends on the room on the disk
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	defer srv.WaitForShutdown()
	defer srv.Shutdown()
	conn, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../cli/partitioned-stream.json")
	if err != nil {
		t.Fatal(err)
	}
	var config jetstream.StreamConfig
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}

	sink := natssink.New(natssink.Config{
		Servers: natssink.Servers{URLs: []string{srv.ClientURL()}},
		Stream:  natssink.StreamConfig{Name: "K8S"},
		Subject: "k8s.{cluster}.{group}.{resource}.{namespace}.{name}",
	})
	defer sink.Close(t.Context())
	if err := sink.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	encoder := &event.Encoder{Cluster: "c"}
	const objects, versions = 80, 3
	for range 2 { // the second time the server takes nothing
		for version := range versions {
			for n := range objects {
				o, err := object.New(
					fmt.Appendf(
						nil,
						`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"ns","name":"pod-%d.x","uid":"u%d","resourceVersion":"%d"}}`,
						n,
						n,
						version+1,
					),
				)
				if err != nil {
					t.Fatal(err)
				}
				m, err := encoder.Encode(
					event.Event{
						Type:     event.Updated,
						Time:     time.Now(),
						Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
						Object:   o,
					},
				)
				if err != nil {
					t.Fatal(err)
				}
				results := make([]error, 1)
				if sink.Send(t.Context(), []*event.Message{m}, results); results[0] != nil {
					t.Fatal(results[0])
				}
			}
		}
	}

	of, total := map[string]int{}, 0
	for n := range partitions {
		consumer, err := stream.OrderedConsumer(
			t.Context(),
			jetstream.OrderedConsumerConfig{FilterSubjects: []string{fmt.Sprintf("k8s.%d.>", n)}},
		)
		if err != nil {
			t.Fatal(err)
		}
		batch, err := consumer.FetchNoWait(objects * versions)
		if err != nil {
			t.Fatal(err)
		}
		share := 0
		for m := range batch.Messages() {
			name := strings.TrimPrefix(m.Subject(), fmt.Sprintf("k8s.%d.", n))
			if other, known := of[name]; known && other != n {
				t.Errorf("%s is in the partitions %d and %d", name, other, n)
			}
			of[name] = n
			share++
		}
		if share == 0 {
			t.Errorf("partition %d is empty", n)
		}
		total += share
	}
	if total != objects*versions || len(of) != objects {
		t.Errorf("%d events of %d objects", total, len(of))
	}
}
