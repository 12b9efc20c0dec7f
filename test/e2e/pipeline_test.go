package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

// toBoth configures a JetStream sink and a Kafka sink for the ConfigMaps of one namespace.
func toBoth(namespace, natsURL, kafkaAddr, topic string) string {
	return fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [%s]}]
sinks:
  - name: jetstream
    nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}
  - name: kafka
    kafka: {brokers: [%q], topic: %q, createTopics: {partitions: 3, replicationFactor: 1}}
`, namespace, natsURL, kafkaAddr, topic)
}

// settled waits until the bridge has nothing to do: every change that etcd holds was received by each sink, and none
// waits.
func settled(t *testing.T, b *bridge, changes int, sinks ...string) {
	t.Helper()
	eventually(t, 90*time.Second, func() error {
		for _, sink := range sinks {
			received := b.metric("deltabridge_events_received_total", "sink="+sink, "resource=configmaps")
			queued := b.metric("deltabridge_queue_events", "sink="+sink)
			if received < float64(changes) || queued > 0 {
				return fmt.Errorf("sink %s received %.0f of %d changes, and %.0f wait", sink, received, changes, queued)
			}
		}
		return nil
	})
}

// TestEveryRevisionArrives: thousands of commits as fast as the API server takes them, to both brokers at once.
func TestEveryRevisionArrives(t *testing.T) {
	t.Parallel()
	c, js, k := sharedCluster(t), startJetStream(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	topic := "every-revision-" + namespace
	b := startBridge(t, c.Kubeconfig(), toBoth(namespace, js.url(), k.Addr(), topic))
	b.waitReady()

	began := time.Now()
	if err := churn(t.Context(), cs, namespace, "cm", scale.Of(200, 2000), 3); err != nil {
		t.Fatal(err)
	}
	truth := configMapHistory(t, c, namespace)
	t.Logf("%d commits in %s", len(truth), time.Since(began).Round(time.Millisecond))
	if least := scale.Of(900, 9000); len(truth) < least {
		t.Fatalf("etcd holds %d revisions, want %d at least", len(truth), least)
	}
	settled(t, b, len(truth), "jetstream", "kafka")
	sentOnce(t, b, "jetstream", len(js.read("E2E")))
	t.Logf("the bridge used %.1f s of CPU and %d MB", b.metric("process_cpu_seconds_total"), b.residentBytes()>>20)
	b.stop()
	prefix := "configmaps/" + namespace + "/"
	judge(t, "JetStream", truth, prefix, js.read("E2E"))
	judge(t, "Kafka", truth, prefix, readKafka(t, k.Addr(), topic)...)
}

// TestBrokersAwayAtStartAndUnderLoad: both brokers are away when the bridge starts, come, and are restarted while
// changes flow. The bridge goes on by itself.
func TestBrokersAwayAtStartAndUnderLoad(t *testing.T) {
	t.Parallel()
	c, js := sharedCluster(t), newJetStream(t)
	k := kafka.NewForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	if err := k.Stop(); err != nil {
		t.Fatal(err)
	}
	b := startBridge(t, c.Kubeconfig(), toBoth(namespace, js.url(), k.Addr(), "away"))
	eventually(t, 20*time.Second, func() error {
		err := b.ready()
		if err == nil || !strings.Contains(err.Error(), "sink jetstream") || !strings.Contains(err.Error(), "sink kafka") {
			return fmt.Errorf("readyz should name both sinks, says %v", err)
		}
		return nil
	})
	b.waitListed() // what happened before the first list is history
	if err := churn(t.Context(), cs, namespace, "before", 50, 2); err != nil {
		t.Fatal(err)
	}
	js.start()
	if err := k.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.waitReady()

	changes := startChanges(t, cs, namespace, 60, scale.Of(40, 75))
	js.stop()
	if err := k.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	js.start()
	changes.stop()
	truth := configMapHistory(t, c, namespace)
	settled(t, b, len(truth), "jetstream", "kafka")
	b.waitReady()
	b.stop()
	prefix := "configmaps/" + namespace + "/"
	judge(t, "JetStream", truth, prefix, js.read("E2E"))
	judge(t, "Kafka", truth, prefix, readKafka(t, k.Addr(), "away")...) // the producer's sequence numbers leave no repeats
}

// TestAHangingSinkDoesNotDelayTheOther: one of two sinks accepts connections and answers nothing. Where its disk has
// room nothing is lost; where it has none the policy applies, and what it gives up is counted.
func TestAHangingSinkDoesNotDelayTheOther(t *testing.T) {
	few, room := scale.Of(40, 300), fmt.Sprintf("events: %d, bytes: 8Mi", scale.Of(240, 2000))
	for policy, buffer := range map[string]string{
		"block":       "{" + room + "}",
		"drop-oldest": "{" + room + ", overflow: drop-oldest, spill: {maxBytes: 64Ki}}",
		"compact":     "{" + room + ", overflow: compact, spill: {maxBytes: 64Ki}}",
	} {
		t.Run(policy, func(t *testing.T) {
			c, live, hung := sharedCluster(t), startJetStream(t), startJetStream(t)
			proxy := sinktest.NewProxy(t, hung.addr())
			cs := clientset(t, c)
			namespace := newNamespace(t, cs)
			b := startBridge(t, c.Kubeconfig(), fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [%s]}]
sinks:
  - name: live
    nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}
  - name: hung
    buffer: %s
    nats: {url: "nats://%s", ackTimeout: 3s, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}
`, namespace, live.url(), buffer, proxy.Addr()))
			b.waitReady()
			alone := churnTime(t, b, func() error { return churn(t.Context(), cs, namespace, "alone", few, 3) })

			proxy.Freeze()
			memory := b.residentBytes()
			holdsOnce(t, func(round string) error {
				beside := churnTime(t, b, func() error { return churn(t.Context(), cs, namespace, "beside-"+round, 3*few, 3) })
				text := fmt.Sprintf("the live sink's mean lag: %.1f ms alone, %.1f ms beside", alone*1000, beside*1000)
				if beside > 3*alone+scale.Of(1, 0.1) { // far less than the ackTimeout
					return errors.New("the hanging sink delays the live one: " + text)
				}
				t.Log(text)
				return nil
			})
			if grown := b.residentBytes() - memory; grown > 128<<20 {
				t.Errorf("memory grew by %d MB while the sink hung", grown>>20)
			}
			lost := b.metric(
				"deltabridge_events_dropped_total",
				"sink=hung",
			) + b.metric(
				"deltabridge_events_merged_total",
				"sink=hung",
			)
			if (lost > 0) != (policy != "block") {
				t.Errorf("%.0f events are counted as dropped or merged", lost)
			}
			proxy.Thaw()
			truth := configMapHistory(t, c, namespace)
			settled(t, b, len(truth), "live", "hung")
			b.stop()

			prefix := "configmaps/" + namespace + "/"
			judge(t, "the live sink", truth, prefix, live.read("E2E"))
			events := hung.read("E2E")
			changes, gaps := 0, 0
			for _, r := range events {
				if r.object() {
					changes++
				}
				if r.attributes["type"] == "dev.deltabridge.gap" {
					gaps++
				}
			}
			if changes+int(lost) != len(truth) {
				t.Errorf("%d changes, %d arrived and %.0f are counted as given up", len(truth), changes, lost)
			}
			switch {
			case policy == "block":
				judge(t, "the hanging sink", truth, prefix, events)
			case policy == "compact":
				judgeFinal(t, "the hanging sink", truth, prefix, events)
			case gaps == 0:
				t.Error("events were dropped and no gap event says so")
			}
		})
	}
}

// churnTime runs a load, waits until the sink "live" has it all, and gives the mean lag of its events in seconds.
func churnTime(t *testing.T, b *bridge, load func() error) float64 {
	t.Helper()
	count, sum := b.histogram("deltabridge_event_lag_seconds", "live")
	if err := load(); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error {
		if n := b.metric("deltabridge_queue_events", "sink=live"); n > 0 {
			return fmt.Errorf("%.0f events wait", n)
		}
		return nil
	})
	newCount, newSum := b.histogram("deltabridge_event_lag_seconds", "live")
	if newCount == count {
		t.Fatal("no event was delivered")
	}
	return (newSum - sum) / float64(newCount-count)
}

// throughProxy gives a kubeconfig that reaches the API server through a proxy.
func throughProxy(t *testing.T, c *cluster.Cluster) (string, *sinktest.Proxy) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	proxy := sinktest.NewProxy(t, strings.TrimPrefix(c.APIServerURL(), "https://"))
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + proxy.Addr()
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path, proxy
}

// TestAPIServerRestart: the API server is killed and started again under load. Nothing final is missing, and the
// bridge says what happened.
func TestAPIServerRestart(t *testing.T) {
	t.Parallel()
	c, js := cluster.ForTest(t), startJetStream(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	kubeconfig, proxy := throughProxy(t, c)
	b := startBridge(t, kubeconfig, fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [%s]}]
sinks: [{name: jetstream, nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}}]
`, namespace, js.url()))
	b.waitReady()
	changed := make(chan error, 1)
	go func() { changed <- churn(t.Context(), cs, namespace, "cm", scale.Of(400, 1500), 3) }() // received below
	eventually(t, time.Minute, func() error {
		if b.metric("deltabridge_events_acknowledged_total") < 300 {
			return errors.New("the load has not begun")
		}
		return nil
	})
	if err := c.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-changed; err != nil {
		t.Fatal(err)
	}

	// Once more, and this time the bridge is behind: it hears nothing while the history goes that it would need.
	proxy.Freeze()
	if err := churn(t.Context(), cs, namespace, "behind", 200, 3); err != nil {
		t.Fatal(err)
	}
	if err := c.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	proxy.Thaw()
	truth := configMapHistory(t, c, namespace)
	prefix := "configmaps/" + namespace + "/"
	eventually(t, time.Minute, func() error { return b.reached(truth) })
	events := js.read("E2E")
	once(t, "JetStream", events)
	sentOnce(t, b, "jetstream", len(events))
	gapsInPlace(t, events)
	b.stop()
	judgeFinal(t, "JetStream", truth, prefix, events)
	gaps := 0
	for _, r := range events {
		if r.attributes["type"] == "dev.deltabridge.gap" {
			gaps++
			t.Logf("gap event: %s", r.data)
		}
	}
	if relists := int(b.relists); gaps == 0 || gaps != relists {
		t.Errorf("%d re-lists, %d gap events: there should be one for each", relists, gaps)
	}
	for _, word := range []string{"request failed, retrying", "requests succeed again", "watch could not be continued"} {
		if !strings.Contains(b.log.String(), word) {
			t.Errorf("the log does not say %q", word)
		}
	}
}
