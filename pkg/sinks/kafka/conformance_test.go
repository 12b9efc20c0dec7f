package kafka

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

// TestConformance runs the suite that every sink must pass against a real broker, with and without fences.
func TestConformance(t *testing.T) {
	t.Parallel()
	broker := testkafka.NewForTest(t)
	topics := 0
	for _, resumes := range []bool{true, false}[:scale.Of(1, 2)] {
		t.Run(fmt.Sprintf("resumes=%t", resumes), func(t *testing.T) {
			sinktest.Run(t, sinktest.Harness{
				Oversize: 2 << 20,
				New: func(t *testing.T) sinktest.Destination {
					topics++
					d := &destination{
						network: newNetwork(t), broker: broker, topic: fmt.Sprintf("conformance-%d", topics), resumes: resumes,
					}
					testkafka.CreateTopic(t, broker.Addr(), d.topic, 4, nil)
					return d
				},
			})
		})
	}
}

// destination is one topic of a real broker, behind a network that can hang.
type destination struct {
	*network
	broker *testkafka.Broker
	topic  string
	topics []string // if it was divided
	apart  string   // the topic of control events, if it was separated

	resumes bool // reports whether sinks read back what was written
	sinks   int
}

var (
	_ sinktest.Stopper = (*destination)(nil)
	_ sinktest.Freezer = (*destination)(nil)
)

func (d *destination) NewSink(t testing.TB) sinks.Sink {
	topic := d.topic
	if d.topics != nil {
		topic += "-{resource}"
	}
	s, err := New(Config{
		Brokers: []string{d.broker.Addr()}, Topic: topic, RequestTimeout: 30 * time.Second,
		Key:         "{resource}/{namespace}/{name}", // that of sinktest.Message
		Compression: "none",                          // the suite's oversize events shrink to almost nothing
		Logger:      slog.New(slog.NewTextHandler(t.Output(), nil)),
		dial:        d.dial,
		control:     d.apart,
	})
	if err != nil {
		t.Fatal(err)
	}
	if d.resumes {
		d.sinks++ // each of them is a sink of its own, so that none fences another
		s.Resume(sinks.Resume{Writer: fmt.Sprint("w", d.sinks), Store: new(stored).add})
	}
	return s
}

func (d *destination) Stop(t testing.TB) {
	t.Helper()
	if err := d.broker.Stop(); err != nil {
		t.Fatal(err)
	}
}

func (d *destination) Start(t testing.TB) {
	t.Helper()
	if err := d.broker.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Divide implements sinktest.Divider. After the call, the destination consists of the topics that begin with its name.
func (d *destination) Divide(t *testing.T, resources []string) {
	d.topics = []string{}
	for _, resource := range resources {
		d.Add(t, resource)
	}
}

// Add implements sinktest.Divider.
func (d *destination) Add(t *testing.T, resource string) {
	topic := d.topic + "-" + resource
	testkafka.CreateTopic(t, d.broker.Addr(), topic, 4, nil)
	d.topics = append(d.topics, topic)
}

// Separate implements sinktest.Separator.
func (d *destination) Separate(*testing.T) { d.apart = d.topic + ".control" }

// AddPlace implements sinktest.Separator.
func (d *destination) AddPlace(t *testing.T) {
	testkafka.CreateTopic(t, d.broker.Addr(), d.apart, 1, nil)
}

// ControlRecords implements sinktest.Separator.
func (d *destination) ControlRecords(t testing.TB) []sinktest.Record { return d.read(t, d.apart) }

// Before implements sinktest.Separator.
func (d *destination) Before(t testing.TB, p event.Position) (n int) {
	if p.Topic != d.topic {
		t.Errorf("position in topic %s", p.Topic)
	}
	for id, records := range testkafka.ReadAll(t, d.broker.Addr(), d.topic) {
		for _, r := range records {
			if r.Offset < p.Offsets[id] {
				n++
			}
		}
	}
	return n
}

// Sequences implements sinktest.Sequencer.
func (d *destination) Sequences(t testing.TB) (names []string) {
	t.Helper()
	for p := range testkafka.ReadAll(t, d.broker.Addr(), d.topic) {
		names = append(names, d.topic+"/"+strconv.Itoa(p))
	}
	return names
}

// Takes implements sinktest.Observer.
func (d *destination) Takes(ctx context.Context) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(d.broker.Addr()),
		kgo.DefaultProduceTopic(d.topic),
		kgo.DisableIdempotentWrite(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.ProduceSync(ctx, &kgo.Record{Value: []byte("observer")}).FirstErr()
}

func (d *destination) Records(t testing.TB) (all []sinktest.Record) {
	t.Helper()
	if d.topics == nil {
		return d.read(t, d.topic)
	}
	for _, topic := range d.topics {
		all = append(all, d.read(t, topic)...)
	}
	return all
}

func (d *destination) read(t testing.TB, topic string) (all []sinktest.Record) {
	t.Helper()
	for p, records := range testkafka.ReadAll(t, d.broker.Addr(), topic) {
		for _, r := range records {
			record := sinktest.Record{Partition: topic + "/" + strconv.Itoa(p), Key: string(r.Key), Data: r.Value}
			record.Attributes = binaryAttributes(r)
			if strings.HasPrefix(header(r, "content-type"), "application/cloudevents+json") {
				record.Whole = true
				record.Attributes, record.Data = structuredAttributes(t, r.Value)
			}
			all = append(all, record)
		}
	}
	return all
}

func binaryAttributes(r *kgo.Record) map[string]string {
	attributes := map[string]string{"datacontenttype": header(r, "content-type")}
	for _, h := range r.Headers {
		if name, ok := strings.CutPrefix(h.Key, "ce_"); ok {
			attributes[name] = string(h.Value)
		}
	}
	return attributes
}

func structuredAttributes(t testing.TB, value []byte) (map[string]string, []byte) {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(value, &fields); err != nil {
		t.Fatal(err)
	}
	attributes := make(map[string]string)
	for name, raw := range fields {
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatal(err)
		}
		if name != "data" {
			attributes[name] = fmt.Sprint(v)
		}
	}
	return attributes, fields["data"]
}
