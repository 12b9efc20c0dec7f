package e2e

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/deltabridge/deltabridge/test/scale"
)

// bytesThatArriveAfterATakeOver: the network holds what the leader sends to the brokers and to the log, and the
// leader loses the API server. Another replica takes over and delivers. Then the network delivers what it has held, and
// the first replica becomes a standby. The duplicate window recognizes what the plain stream receives late.
func (r *replicated) bytesThatArriveAfterATakeOver() {
	t, l := r.t, r.links[0]
	replica := func(kubeconfig, log string, r *replicated) *replicas {
		return newReplicas(t, kubeconfig, r.namespace, log, r.configWithWindow()).withShortLease()
	}
	old := replica(r.kubeconfig(l), jetStreamLog(natsURLs(l.log)), r.behind(l)).start()
	old.waitLeader()
	b := replica(r.c.Kubeconfig(), jetStreamLog(r.natsURLs), r).start()
	b.waitReady()
	changes := r.startChanges()
	old.waitAcknowledged(100)
	changes.stop()
	r.upTo(old)       // what comes now is not acknowledged before the network holds it
	old.waitCommits() // the API server may not remember that there was nothing before it
	refused := r.refused()
	brokers := slices.Concat(l.log, l.nats, l.kafka)
	freeze(brokers)
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
	freeze(l.api)
	b.waitLeader()
	pause(t, scale.Of(3*time.Second, time.Minute))
	b.waitDelivered()
	thaw(brokers)
	pause(t, time.Second)
	thaw(l.api)
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
	changes.stop()
	truth := r.upTo(b)
	b.stop()
	old.stop()
	t.Logf("%d changes, Kafka has refused %d late batches", len(truth), r.refused()-refused)
	r.judge(truth)
}
