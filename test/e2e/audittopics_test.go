package e2e

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

// auditMessages returns messages with at least n audit events, in each form that a bridge reads, and the events.
func auditMessages(n int) (messages [][]byte, events map[auditKey][]byte) {
	events = map[auditKey][]byte{}
	event := func() []byte {
		i := len(events)
		key := auditKey{
			AuditID: fmt.Sprintf("a-%d", i/2), Stage: []string{"ResponseStarted", "ResponseComplete"}[i%2],
			RequestReceivedTimestamp: time.Unix(1.8e9, int64(i/2)*1000).UTC().Format("2006-01-02T15:04:05.000000Z"),
		}
		events[key] = fmt.Appendf(nil, `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse",`+
			`"auditID":%q,"stage":%q,"requestReceivedTimestamp":%q,"verb":"update","user":{"username":"system:é"},`+
			`"objectRef":{"resource":"configmaps","namespace":"audited","name":"c%d","apiVersion":"v1"},`+
			`"requestObject":{ "data":{"number":"%d"}},"collector":{"node":"n1"}}`,
			key.AuditID, key.Stage, key.RequestReceivedTimestamp, i%7, i)
		return events[key]
	}
	for len(events) < n {
		list := fmt.Appendf(nil, `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[%s,%s]}`, event(), event())
		structured := fmt.Appendf(nil, `{"specversion":"1.0","type":"dev.deltabridge.audit","data":%s}`, event())
		messages = append(messages, event(), list, structured)
	}
	return messages, events
}

// auditPlace has audit events that a log collector has written there.
type auditPlace struct {
	keys  string // of the bridge's configuration
	write func(ctx context.Context, message []byte) error
	// restart makes the place unavailable for a moment, if the test can.
	restart func()
}

func newAuditTopic(t *testing.T) auditPlace {
	t.Helper()
	k, topic := kafka.ForTest(t), "collected-"+newNamespace(t, clientset(t, sharedCluster(t)))
	kafka.CreateTopic(t, k.Addr(), topic, 3, nil)
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addr()), kgo.DefaultProduceTopic(topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return auditPlace{
		keys: fmt.Sprintf("audit: {kafka: {brokers: [%q], topic: %q}}\n", k.Addr(), topic),
		write: func(ctx context.Context, message []byte) error {
			return client.ProduceSync(ctx, &kgo.Record{Value: message}).FirstErr()
		},
		restart: func() {},
	}
}

func newAuditStream(t *testing.T) auditPlace {
	t.Helper()
	js := startJetStream(t)
	js.create(jetstream.StreamConfig{Name: "COLLECTED", Subjects: []string{"collected"}})
	conn, err := natsgo.Connect(js.url(), natsgo.MaxReconnects(-1), natsgo.ReconnectWait(10*time.Millisecond),
		natsgo.Timeout(patience(natsgo.DefaultTimeout)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	api, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return auditPlace{
		keys: fmt.Sprintf("audit: {nats: {url: %q, stream: COLLECTED}}\n", js.url()),
		write: func(ctx context.Context, message []byte) error {
			for { // while the server is away; a message may be in the stream twice
				limited, cancel := context.WithTimeout(ctx, time.Second)
				_, err := api.Publish(limited, "collected", message)
				cancel()
				if err == nil || ctx.Err() != nil {
					return err
				}
			}
		},
		restart: func() { js.kill(); js.start() },
	}
}

// Every audit event that something else writes to a topic or a stream is in the destination as it was written, although
// the bridge is killed twice, and the destination and, if it is a stream, the source are away for a while.
func TestEveryCollectedAuditEventArrives(t *testing.T) {
	t.Parallel()
	for name, newPlace := range map[string]func(*testing.T) auditPlace{"Kafka": newAuditTopic, "JetStream": newAuditStream} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testCollected(t, newPlace(t))
		})
	}
}

func testCollected(t *testing.T, place auditPlace) {
	t.Helper()
	js, dir := startJetStream(t), t.TempDir()
	messages, want := auditMessages(scale.Of(2000, 60000))
	config := place.keys + fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [audited]}]
sinks:
  - name: jetstream
    events: audit
    nats: {url: %q, subject: "audit.{cluster}.{resource}", stream: {name: AUDIT, create: true, duplicateWindow: 100ms}}
`, js.url())
	start := func() *bridge { return startBridgeIn(t, dir, sharedCluster(t).Kubeconfig(), config) }
	awaitEvents := func(b *bridge, metric string, n int) {
		t.Helper()
		eventually(t, time.Minute, func() error {
			if has := b.metric(metric); has < float64(n) {
				return fmt.Errorf("%s is %v, want %d", metric, has, n)
			}
			return nil
		})
	}
	b := start()
	writing, ctx := errgroup.WithContext(t.Context())
	writing.Go(func() error {
		for n, message := range messages {
			if err := place.write(ctx, message); err != nil {
				return err
			}
			if n == len(messages)/2 {
				place.restart()
			}
		}
		return nil
	})
	awaitEvents(b, "deltabridge_events_acknowledged_total", len(want)/10)
	b.kill()
	b = start()
	awaitEvents(b, "deltabridge_events_acknowledged_total", len(want)/10)
	js.stop()
	awaitEvents(b, "deltabridge_audit_journal_events", len(want)/10)
	b.kill()
	js.start()
	b = start()
	if err := writing.Wait(); err != nil {
		t.Fatal(err)
	}
	var got []received
	eventually(t, time.Minute, func() error {
		if n := b.metric("deltabridge_audit_journal_events"); n > 0 {
			return fmt.Errorf("%v events wait in the journal", n)
		}
		if got = js.read("AUDIT"); len(got) < len(want) {
			return fmt.Errorf("%d of %d events", len(got), len(want))
		}
		return nil
	})
	b.stop()
	judgeAudit(t, "JetStream", want, got)
	for _, r := range got {
		if raw := want[keyOf(t, r.data)]; !bytes.Equal(raw, r.data) {
			t.Fatalf("got  %s\nwant %s", r.data, raw)
		}
	}
}
