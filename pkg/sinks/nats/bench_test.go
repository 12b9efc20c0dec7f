package nats_test

import (
	"fmt"
	"log/slog"
	"syscall"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
)

const batchSize = 512

// benchBroker has its stream in memory and no proxy, so that little but the client is measured. The server's CPU
// time is in the numbers all the same: compare them with each other.
func benchBroker(b *testing.B) *broker {
	b.Helper()
	srv := newBroker(b)
	srv.edit = func(c *nats.Config) {
		c.URLs, c.Stream.Storage, c.Stream.MaxBytes = []string{srv.srv.ClientURL()}, "memory", 32<<20
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return srv
}

// fresh gives messages that the stream has not seen.
func fresh(batch []*event.Message, n int) {
	for i, m := range batch {
		m.ID = fmt.Sprintf("0b9d0c3e-5a2f-4f5e-9d55-8a9c5d1e2f30.%d", n+i)
	}
}

func benchBatch() []*event.Message {
	var batch []*event.Message
	for i := range batchSize {
		m := sinktest.Message(fmt.Sprintf("configmap-%d", i), 1, 2600)
		m.Identity.Manager = "kubectl"
		batch = append(batch, m)
	}
	return batch
}

// perMessage reports times and allocations for one message rather than one batch.
func perMessage(b *testing.B, send func(batch []*event.Message)) {
	b.Helper()
	batch := benchBatch()
	n := 0
	b.ReportAllocs()
	cpu := cpuTime()
	for b.Loop() {
		fresh(batch, n)
		n += batchSize
		send(batch)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/msg")
	b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/float64(n), "cpu-ns/msg")
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkSend(b *testing.B) {
	for _, name := range []string{"binary", "structured", "latest"} {
		structured := name == "structured"
		b.Run(name, func(b *testing.B) {
			srv := benchBroker(b)
			if edit := srv.edit; name == "latest" {
				srv.edit = func(c *nats.Config) { edit(c); c.Stream.LastPerSubject, c.Stream.MaxBytes = true, 0 }
			}
			sink := install(srv).start(b)
			results := make([]error, batchSize)
			perMessage(b, func(batch []*event.Message) {
				for _, m := range batch {
					m.Structured = structured
				}
				sink.Send(b.Context(), batch, results)
				for _, err := range results {
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// One message at a time, as under a slow trickle of changes.
func BenchmarkSendSingle(b *testing.B) {
	sink := connect(b, benchBroker(b))
	batch := benchBatch()
	results := make([]error, 1)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		fresh(batch[:1], n)
		sink.Send(b.Context(), batch[:1], results)
		if results[0] != nil {
			b.Fatal(results[0])
		}
	}
}

// The same with the asynchronous publisher of nats.go. The headers are the same, but are created for each message,
// because nats.go keeps the message until the acknowledgement.
func BenchmarkPublishMsgAsync(b *testing.B) {
	srv := benchBroker(b)
	connect(b, srv) // creates the stream
	conn, err := natsgo.Connect(srv.srv.ClientURL())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(2*batchSize))
	if err != nil {
		b.Fatal(err)
	}
	perMessage(b, func(batch []*event.Message) {
		futures := make([]jetstream.PubAckFuture, 0, batchSize)
		for _, m := range batch {
			header := natsgo.Header{"Nats-Msg-Id": {m.UniqueID()}, "Nats-Expected-Stream": {streamName}}
			m.Headers(func(name, value string) bool { header["ce-"+name] = []string{value}; return true })
			f, err := js.PublishMsgAsync(
				&natsgo.Msg{Subject: "k8s.test.apps.things.default." + m.Identity.Name, Header: header, Data: m.Data},
			)
			if err != nil {
				b.Fatal(err)
			}
			futures = append(futures, f)
		}
		for _, f := range futures {
			select {
			case <-f.Ok():
			case err := <-f.Err():
				b.Fatal(err)
			}
		}
	})
}

// A bare publisher that promises nothing: no headers, no acknowledgement.
func BenchmarkBarePublish(b *testing.B) {
	srv := benchBroker(b)
	connect(b, srv)
	conn, err := natsgo.Connect(srv.srv.ClientURL())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	perMessage(b, func(batch []*event.Message) {
		for _, m := range batch {
			if err := conn.Publish("k8s.test.apps.things.default.one", m.Data); err != nil {
				b.Fatal(err)
			}
		}
		_ = conn.Flush()
	})
}
