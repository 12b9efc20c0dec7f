package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

// TestSpilledEventsOfALeaderWithoutAPIServer: many events wait for a plain stream whose broker is unavailable. The
// leader, or each of two replicas, loses the API server for longer than the Lease, and meanwhile the broker is back.
// Each sink receives each revision once, in order, and no gap event.
func TestSpilledEventsOfALeaderWithoutAPIServer(t *testing.T) {
	t.Parallel()
	c := forgetful(t) // else the API server keeps only some minutes of what happens
	for _, all := range []bool{false, true} {
		name := map[bool]string{false: "another replica takes over", true: "no replica has it"}[all]
		t.Run(name, func(t *testing.T) { t.Parallel(); spilledWithoutAPIServer(t, c, all) })
	}
}

func spilledWithoutAPIServer(t *testing.T, c *cluster.Cluster, all bool) {
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	away, live := awayJetStream(t), sharedKafka(t, namespace)
	away.config = strings.Replace(away.config, "create: true", "create: true, duplicateWindow: 100ms", 1)
	away.start()
	var proxies []*sinktest.Proxy
	var bridges []*bridge
	log := fmt.Sprintf("nats: {url: %q, stream: {name: STATE, create: true}}", startJetStream(t).url())
	config := fmt.Sprintf("watch: [{resources: [configmaps], namespaces: [%s]}]\nsinks:\n", namespace) +
		away.sink("away", "{events: 100, bytes: 1Mi}") + live.sink("live", "")
	r := newReplicas(t, "", namespace, log, config)
	for range 2 {
		kubeconfig, api := throughProxy(t, c)
		r.kubeconfig = kubeconfig
		bridges, proxies = append(bridges, r.start()), append(proxies, api)
		if len(bridges) == 1 {
			bridges[0].waitLeader()
		}
	}
	leader, standby := bridges[0], bridges[1]
	standby.waitReady()
	changes := startChanges(t, cs, namespace, 60, scale.Of(60, 100))
	eventually(t, time.Minute, func() error { return leader.acknowledged("away", 50) })
	away.stop()
	least := scale.Of(300., 10_000.)
	eventually(t, 5*time.Minute, func() error {
		if n := leader.metric("deltabridge_spill_events", "sink=away"); n < least {
			return fmt.Errorf("%.0f events have spilled", n)
		}
		return nil
	})
	proxies[0].Freeze()
	if all {
		proxies[1].Freeze()
	}
	outage := scale.Of(steadyLease()+2*time.Second, 10*time.Minute)
	pause(t, outage/2)
	away.start()
	pause(t, outage/2)
	if !all {
		standby.waitLeader()
		standby.waitDelivered()
	}
	for _, p := range proxies {
		p.Thaw()
	}
	leader, standby = waitOneLeader(t, leader, standby)
	changes.stop()
	truth := upTo(t, leader, c, namespace)
	standby.stop()
	leader.stop()
	for name, d := range map[string]*destination{"away": away, "live": live} {
		judgeWhole(t, name, truth, "configmaps/"+namespace+"/", d.read()...)
	}
}

// waitOneLeader waits until one of two replicas leads and the other one can take over, and returns the leader first.
func waitOneLeader(t *testing.T, one, other *bridge) (leader, standby *bridge) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		if leader, standby = one, other; other.leads() == nil {
			leader, standby = other, one
		}
		if standby.leads() == nil {
			return errors.New("both replicas lead")
		}
		return errors.Join(leader.leads(), leader.ready(), standby.ready())
	})
	return leader, standby
}

// judgeWhole requires that a sink has received each revision once, in order, and no gap event.
func judgeWhole(t *testing.T, sink string, truth []change, prefix string, sequences ...[]received) {
	t.Helper()
	judge(t, "sink "+sink, truth, prefix, sequences...)
	once(t, "sink "+sink, sequences...)
	for _, r := range slices.Concat(sequences...) {
		if r.attributes["type"] == "dev.deltabridge.gap" {
			t.Errorf("sink %s was sent a gap event: %s", sink, r.data)
		}
	}
}

// sharedKafka is a topic on the broker that tests share, which is never away.
func sharedKafka(t *testing.T, topic string) *destination {
	t.Helper()
	addr := kafka.ForTest(t).Addr()
	return &destination{
		broker: "Kafka",
		config: fmt.Sprintf(
			"kafka: {brokers: [%q], topic: %q, createTopics: {partitions: 3, replicationFactor: 1}}", addr, topic),
		read: func() [][]received { return readKafka(t, addr, topic) },
	}
}

// TestAWrongAddress: the configuration has a wrong address of one sink's broker, from the beginning or after a change.
// It is corrected by restarting one replica after the other. Each sink receives each revision once, in order, and no
// gap event.
func TestAWrongAddress(t *testing.T) {
	t.Parallel()
	for _, changed := range []bool{false, true} {
		name := map[bool]string{false: "from the beginning", true: "after a change"}[changed]
		t.Run(name, func(t *testing.T) { t.Parallel(); wrongAddress(t, changed) })
	}
}

func wrongAddress(t *testing.T, changed bool) {
	c, js := sharedCluster(t), startJetStream(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	live := sharedKafka(t, namespace)
	right := newReplicas(t, c.Kubeconfig(), namespace,
		fmt.Sprintf("nats: {url: %q, stream: {name: STATE, create: true}}", startJetStream(t).url()),
		fmt.Sprintf("watch: [{resources: [configmaps], namespaces: [%s]}]\nsinks:\n", namespace)+live.sink("live", "")+
			fmt.Sprintf("  - name: jetstream\n    buffer: {events: 100, bytes: 1Mi}\n"+
				"    nats: {url: %q, stream: {name: E2E, create: true, duplicateWindow: 100ms, subjects: [\"k8s.>\"]}}\n",
				js.url()))
	wrong := *right
	wrong.config = strings.ReplaceAll(right.config, js.url(), newJetStream(t).url()) // nobody listens there
	configured := &wrong
	if changed {
		configured = right
	}
	one := configured.start()
	eventually(t, time.Minute, one.leads)
	one.waitListed()
	two := configured.start()
	two.waitReady()
	changes := startChanges(t, cs, namespace, 60, scale.Of(50, 75))
	if changed {
		eventually(t, time.Minute, func() error { return one.acknowledged("jetstream", 50) })
		one, two = rollOut(&wrong, one, two)
	}
	pause(t, scale.Of(3*time.Second, 2*time.Minute))
	one, two = rollOut(right, one, two)
	one, two = waitOneLeader(t, one, two)
	pause(t, time.Second)
	changes.stop()
	truth := upTo(t, one, c, namespace)
	two.stop()
	one.stop()
	prefix := "configmaps/" + namespace + "/"
	judgeWhole(t, "jetstream", truth, prefix, js.read("E2E"))
	judgeWhole(t, "live", truth, prefix, live.read()...)
}

// rollOut replaces two replicas, one after the other, by replicas with a configuration. one is stopped first.
func rollOut(r *replicas, one, two *bridge) (first, second *bridge) {
	r.t.Helper()
	first = r.start()
	eventually(r.t, time.Minute, first.ready)
	one.stop()
	second = r.start()
	eventually(r.t, time.Minute, second.ready)
	two.stop()
	eventually(r.t, time.Minute, func() error {
		if first.leads() != nil && second.leads() != nil {
			return errors.New("no replica leads")
		}
		return nil
	})
	return first, second
}
