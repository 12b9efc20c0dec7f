package e2e

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

// TestHangingBrokersLoseNothing: both brokers accept connections and answer nothing, for longer than the sinks wait for
// an answer, while the disk has room and while memory and disk are full. Everything arrives, once, when they answer
// again.
func TestHangingBrokersLoseNothing(t *testing.T) {
	t.Parallel()
	c, k := sharedCluster(t), kafka.NewForTest(t)
	cs := clientset(t, c)
	for _, disk := range []string{"", ", spill: {maxBytes: 64Ki}"} {
		t.Run("buffer"+disk, func(t *testing.T) {
			js := startJetStream(t)
			proxy := sinktest.NewProxy(t, js.addr())
			namespace := newNamespace(t, cs)
			topic := "hanging-" + namespace
			config := toBoth(namespace, "nats://"+proxy.Addr(), k.Addr(), topic)
			for sink, timeout := range map[string]string{"nats": "ackTimeout", "kafka": "requestTimeout"} {
				config = strings.ReplaceAll(
					config,
					"    "+sink+": {",
					"    buffer: {events: 100, bytes: 1Mi"+disk+"}\n    "+sink+": {"+timeout+": 3s, ",
				)
			}
			b := startBridge(t, c.Kubeconfig(), config)
			b.waitReady()
			changes := startChanges(t, cs, namespace, 60, scale.Of(40, 75))
			eventually(t, time.Minute, func() error {
				if b.metric("deltabridge_events_acknowledged_total") < 200 {
					return errors.New("the load has not begun")
				}
				return nil
			})
			proxy.Freeze()
			if err := k.Pause(); err != nil {
				t.Fatal(err)
			}
			pause(t, 10*time.Second)
			proxy.Thaw()
			if err := k.Resume(); err != nil {
				t.Fatal(err)
			}
			pause(t, time.Second)
			changes.stop()
			truth := upTo(t, b, c, namespace)
			b.stop()
			prefix := "configmaps/" + namespace + "/"
			judge(t, "JetStream", truth, prefix, js.read("E2E"))
			judge(t, "Kafka", truth, prefix, readKafka(t, k.Addr(), topic)...)
		})
	}
}
