package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

// TestDebounceKilledAtAnyMoment: updates wait, and the bridge is killed under random changes. The last state of each
// object arrives, in order, each event once, and of no object more than one update in the time of the debounce. A sink
// without debounce on the same watch gets each change once.
func TestDebounceKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	c, js, k := sharedCluster(t), startJetStream(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	const debounce = 4 * time.Second
	topic, dir := "debounced-"+namespace, t.TempDir()
	config := fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [%s]}]
sinks:
  - name: jetstream
    filters: [{debounce: %s}]
    nats: {url: %q, stream: {name: E2E, create: true, duplicateWindow: 100ms, subjects: ["k8s.>"]}}
  - name: kafka
    filters: [{debounce: %s}]
    kafka: {brokers: [%q], topic: %q, createTopics: {partitions: 3, replicationFactor: 1}}
  - name: all
    nats: {url: %q, subject: "all.{name}", stream: {name: ALL, create: true, duplicateWindow: 100ms, subjects: ["all.>"]}}
`, namespace, debounce, js.url(), debounce, k.Addr(), topic, js.url())
	first := startBridgeIn(t, dir, c.Kubeconfig(), config)
	first.waitReady() // what happened before the first list is history
	changes := startChanges(t, cs, namespace, 30, 50)
	first.kill()
	for range scale.Of(6, 30) {
		b := startBridgeIn(t, dir, c.Kubeconfig(), config)
		pause(t, time.Duration(rand.IntN(6000))*time.Millisecond)
		b.kill()
	}
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	pause(t, 2*debounce)
	eventually(t, 10*time.Second, func() error {
		if n := b.metric("deltabridge_events_suppressed_total", "sink=kafka", "reason=debounce"); n == 0 {
			return errors.New("no update is counted as replaced")
		}
		return nil
	})
	changes.stop()
	truth := configMapHistory(t, c, namespace)
	prefix := "configmaps/" + namespace + "/"
	eventually(t, time.Minute, func() error { return b.reached(truth) })
	eventually(t, time.Minute, func() error { // without a stop, which sends what waits
		for _, partitions := range [][][]received{{js.read("E2E")}, readKafka(t, k.Addr(), topic)} {
			if err := hasLast(t, truth, prefix, partitions); err != nil {
				return err
			}
		}
		return nil
	})
	b.kill()
	events, records := js.read("E2E"), readKafka(t, k.Addr(), topic)
	for broker, partitions := range map[string][][]received{"JetStream": {events}, "Kafka": records} {
		judgeFinal(t, broker, truth, prefix, partitions...)
		once(t, broker, partitions...)
		rarely(t, broker, debounce, partitions...)
	}
	judge(t, "without debounce", truth, prefix, js.read("ALL"))
}

// hasLast requires the last event of each object that exists.
func hasLast(t *testing.T, truth []change, prefix string, partitions [][]received) error {
	t.Helper()
	last, _ := lastEvents(t, "broker", prefix, partitions)
	final := map[string]change{}
	for _, c := range truth {
		final[c.subject] = c
	}
	for subject, c := range final {
		if got := last[subject].resourceVersion(); !c.deleted && got != c.rv {
			return fmt.Errorf("%s ended at %s, the last event has %q", subject, c.rv, got)
		}
	}
	return nil
}

// rarely expects that updates of an object are at least an interval apart.
func rarely(t *testing.T, broker string, interval time.Duration, partitions ...[]received) {
	t.Helper()
	last, updates := map[string]time.Time{}, 0
	for _, partition := range partitions {
		for _, r := range partition {
			if r.attributes["operation"] != "updated" {
				continue
			}
			at, err := time.Parse(time.RFC3339Nano, r.attributes["time"])
			if err != nil {
				t.Fatal(err)
			}
			if between := at.Sub(last[r.attributes["uid"]]); between < interval {
				t.Errorf("%s: %s is sent %v after the update before", broker, r.id(), between)
			}
			last[r.attributes["uid"]] = at
			updates++
		}
	}
	t.Logf("%s: %d updates", broker, updates)
}
