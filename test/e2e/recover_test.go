package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/scale"
)

// TestAPIServerIsBack: the API server is killed under load and started again, several times. Beside the bridge an
// independent client lists every 50 ms: half a second after its first success the bridge has listed or watches again.
// What is written from then on arrives as a whole: at most what the API server wrote before it had read the resource is
// missing. In `make test`, something else may use the CPUs.
func TestAPIServerIsBack(t *testing.T) {
	if !scale.Long() { // in make test-long, it measures
		t.Parallel()
	}
	const lateAtMost = 500 * time.Millisecond
	restarts := scale.Of(3, 10)
	c, js := cluster.ForTest(t), startJetStream(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	b := startBridge(t, c.Kubeconfig(), fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [%s]}]
sinks: [{name: jetstream, nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}}]
`, namespace, js.url()))
	b.waitReady()
	changes := startChanges(t, cs, namespace, 200, 50)
	// Most writes are elsewhere, so that the position of the watch is behind the last one when the API server is killed,
	// and its successor can't continue the watch.
	other := newNamespace(t, cs)
	perSecond := scale.Of(60, 200)
	elsewhere := []*randomChanges{startChanges(t, cs, other, 50, perSecond), startChanges(t, cs, other, 50, perSecond)}
	var answered []time.Time
	relisted := func() bool { return b.metric("deltabridge_informer_relists_total", "resource=configmaps") > 0 }
	for n := 0; n < restarts || n < 20 && !relisted(); n++ { // whether a watch can be continued is chance
		before := changes.made.Load()
		eventually(t, time.Minute, func() error {
			if made := changes.made.Load(); made < before+200 {
				return fmt.Errorf("%d changes were made", made)
			}
			return nil
		})
		if err := c.KillAPIServer(); err != nil {
			t.Fatal(err)
		}
		first := make(chan time.Time, 1)
		independent := clientset(t, c).CoreV1().ConfigMaps(namespace)
		go func() {
			first <- sinktest.FirstSuccess(t.Context(), func(ctx context.Context) error {
				_, err := independent.List(ctx, metav1.ListOptions{})
				return err
			})
		}()
		if err := c.StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		answered = append(answered, <-first)
	}
	before := changes.made.Load()
	eventually(t, time.Minute, func() error {
		if made := changes.made.Load(); made < before+100 {
			return fmt.Errorf("%d changes were made", made)
		}
		return nil
	})
	changes.stop()
	for _, e := range elsewhere {
		e.stop()
	}
	truth := upTo(t, b, c, namespace)
	b.stop()
	events := js.read("E2E")
	judgeFinal(t, "JetStream", truth, "configmaps/"+namespace+"/", events)
	t.Logf(
		"%d of %d revisions arrived, over %d restarts and %.0f re-lists",
		arrived(events),
		len(truth),
		len(answered),
		b.relists,
	)
	if b.relists == 0 {
		t.Error("every watch could be continued: nothing was shown")
	}
	if missing := len(truth) - arrived(events); missing > len(truth)/scale.Of(2, 20) {
		t.Errorf("%d revisions are missing: the history that the API server still had was not read", missing)
	}

	best := time.Hour
	for n, at := range answered {
		late := time.Hour
		for _, e := range events {
			// The first that follows, a gap or a change, shows that the bridge is there again.
			when, err := time.Parse(time.RFC3339Nano, e.attributes["time"])
			if err == nil && when.After(at.Add(-time.Second)) &&
				(e.attributes["type"] == "dev.deltabridge.gap" || when.After(at)) {
				late = when.Sub(at)
				break
			}
		}
		t.Logf(
			"restart %d: the bridge is %s behind the first list of an independent client",
			n+1,
			late.Round(time.Millisecond),
		)
		if best = min(best, late); late > scale.Of(time.Minute, lateAtMost) {
			t.Errorf("restart %d: it is there only after %s", n+1, late)
		}
	}
	if best > scale.Of(5*time.Second, lateAtMost) { // something else may have used the CPUs at the others
		t.Errorf("it was never there before %s", best)
	}
}

// TestBrokersAreBack: the bridge starts while its brokers are away. Beside it independent clients try every 50 ms: at
// most a second after the first success of one the broker has acknowledged the bridge's first event. In `make test`,
// something else may use the CPUs: there are up to five rounds, of which one has to succeed for each broker.
func TestBrokersAreBack(t *testing.T) {
	if !scale.Long() {
		t.Parallel()
	}
	limit := scale.Of(3*time.Second, time.Second)
	c, sinks := sharedCluster(t), []*destination{awayJetStream(t), awayKafka(t)}
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	config := fmt.Sprintf("\nwatch: [{resources: [configmaps], namespaces: [%s]}]\nsinks:\n", namespace)
	for _, d := range sinks {
		config += d.sink(strings.ToLower(d.broker), "")
		d.start()
	}
	b := startBridge(t, c.Kubeconfig(), config) // creates stream and topic
	b.waitReady()
	b.stop()
	inTime, rounds := map[string]int{}, scale.Of(5, 10)
	for n := 0; n < rounds && (scale.Long() || len(inTime) < len(sinks)); n++ {
		for _, d := range sinks {
			d.stop()
		}
		if err := oneLife(t.Context(), cs, namespace, fmt.Sprintf("round-%d", n), 0, false); err != nil {
			t.Fatal(err)
		}
		b := startBridge(t, c.Kubeconfig(), config)
		b.waitListed()
		pause(t, scale.Of(6*time.Second, time.Minute))
		for _, d := range sinks { // one after the other: a broker that starts takes all CPUs
			behind := b.behind(d).Round(time.Millisecond)
			t.Logf("round %d: the bridge is %s behind an independent client of %s", n+1, behind, d.broker)
			if behind <= limit {
				inTime[d.broker]++
			}
		}
		b.stop()
	}
	for _, d := range sinks {
		if n := inTime[d.broker]; n < scale.Of(1, rounds) {
			t.Errorf("%s: in %d rounds, the bridge was there within %s", d.broker, n, limit)
		}
	}
}

// behind starts a broker. It is how much later than an independent client's first message the first event of the bridge
// was acknowledged.
func (b *bridge) behind(d *destination) time.Duration {
	b.t.Helper()
	first, started := make(chan time.Time, 1), make(chan struct{})
	go func() { first <- sinktest.FirstSuccess(b.t.Context(), d.takes) }() // received below
	go func() {
		defer close(started)
		d.start()
	}()
	eventually(b.t, 90*time.Second, func() error { return b.acknowledged(strings.ToLower(d.broker), 1) })
	own := time.Now()
	<-started
	return own.Sub(<-first)
}

// arrived counts the changes among events.
func arrived(events []received) (n int) {
	for _, e := range events {
		if e.attributes["uid"] != "" {
			n++
		}
	}
	return n
}
