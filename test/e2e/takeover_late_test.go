package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/scale"
)

// TestBytesThatArriveAfterATakeOver: the network holds what the leader sends to the brokers and to the log, and the
// leader loses the API server. Another replica takes over and delivers. Then the network delivers what it has held, and
// the first replica becomes a standby. The duplicate window recognizes what the plain stream receives late.
func TestBytesThatArriveAfterATakeOver(t *testing.T) { // alone: it runs six brokers
	var proxies []*sinktest.Proxy
	for range 6 {
		proxies = append(proxies, sinktest.NewProxy(t, ""))
	}
	r := newReplicatedBehind(t, proxies)
	kubeconfig, api := throughProxy(t, r.c)
	replica := func(kubeconfig string, r *replicated) *replicas {
		return newReplicas(t, kubeconfig, r.namespace,
			fmt.Sprintf("nats: {url: %q, stream: {name: STATE, create: true, replicas: 3}}", strings.Join(r.natsURLs, ",")),
			strings.Replace(r.config(), "duplicateWindow: 100ms", "duplicateWindow: 2m", 1))
	}
	old := replica(kubeconfig, r.proxied(proxies)).start()
	old.waitLeader()
	b := replica(r.c.Kubeconfig(), r).start()
	b.waitReady()
	changes := r.startChanges()
	old.waitAcknowledged(100)
	changes.stop(t)
	r.upTo(old) // what comes now is not acknowledged before the network holds it
	refused := r.refused()
	for _, p := range proxies {
		p.Freeze()
	}
	changes = r.startChanges()
	eventually(t, 10*time.Second, func() error {
		for _, sink := range []string{"jetstream", "mirror", "kafka"} {
			if old.metric("deltabridge_queue_events", "sink="+sink) == 0 {
				return fmt.Errorf("sink %s has nothing under way", sink)
			}
		}
		return nil
	})
	pause(t, time.Second)
	api.Freeze()
	b.waitLeader()
	pause(t, scale.Of(3*time.Second, time.Minute))
	b.waitDelivered()
	for _, p := range proxies {
		p.Thaw()
	}
	pause(t, time.Second)
	api.Thaw()
	eventually(t, time.Minute, func() error {
		if old.leads() == nil {
			return errors.New("the first replica still leads")
		}
		return old.ready()
	})
	eventually(t, 10*time.Second, func() error {
		if r.refused() == refused {
			return errors.New("Kafka has refused nothing")
		}
		return nil
	})
	changes.stop(t)
	truth := r.upTo(b)
	b.stop()
	old.stop()
	t.Logf("%d changes, Kafka has refused %d late batches", len(truth), r.refused()-refused)
	r.judgeKafka(truth)
	r.judgeStream(truth)
	r.judgeMirror(truth)
}
