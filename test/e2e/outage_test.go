package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

// TestSpillThroughAnOutage: both brokers are away under steady change, with a memory queue far smaller than what
// accumulates. The bridge is killed in the middle, and once more while it catches up. It mostly waits, beside the other
// parallel tests: those that look at no times.
func TestSpillThroughAnOutage(t *testing.T) {
	t.Parallel()
	c, js, k := sharedCluster(t), startJetStream(t), kafka.NewForTest(t)
	natsProxy := sinktest.NewProxy(t, js.addr())
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	topic := "outage-" + namespace
	config := toBoth(namespace, "nats://"+natsProxy.Addr(), k.Addr(), topic)
	for _, sink := range []string{"nats", "kafka"} {
		config = strings.ReplaceAll(config, "    "+sink+":", "    buffer: {events: 100, bytes: 1Mi}\n    "+sink+":")
	}
	dir := t.TempDir()
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	changes := startChanges(t, cs, namespace, 200, 60)
	outage := scale.Of(10*time.Second, 5*time.Minute) // half of it before the bridge is killed, half of it after
	before := b.peakBytes(outage / 4)

	natsProxy.Freeze()
	natsProxy.Cut()
	if err := k.Pause(); err != nil {
		t.Fatal(err)
	}
	during := b.peakBytes(outage / 2)
	b.kill()
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	after := b.peakBytes(outage / 2)
	spilled := 0.0
	eventually(t, 2*time.Minute, func() error {
		if spilled = b.metric("deltabridge_spill_events"); spilled < 50*outage.Seconds() {
			return fmt.Errorf("only %.0f events were spilled", spilled)
		}
		return nil
	})
	natsProxy.Thaw()
	if err := k.Resume(); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error {
		if n := b.metric("deltabridge_events_acknowledged_total"); n < 200 {
			return fmt.Errorf("%.0f events arrived", n)
		}
		return nil
	})
	b.kill() // while it catches up
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	changes.stop()
	truth := upTo(t, b, c, namespace)
	b.stop()
	t.Logf("%.0f events were spilled; peak memory: %d MB before the outage, %d MB in it, %d MB after the kill",
		spilled, before>>20, during>>20, after>>20)
	prefix := "configmaps/" + namespace + "/"
	events, records := js.read("E2E"), readKafka(t, k.Addr(), topic)
	judge(t, "JetStream", truth, prefix, events)
	once(t, "JetStream", events)
	judge(t, "Kafka", truth, prefix, records...)
	once(t, "Kafka", records...)
	if !raceDetector && float64(max(during, after)) > 1.2*float64(before) {
		t.Errorf("memory grew from %d to %d MB", before>>20, max(during, after)>>20)
	}
}

// peakBytes is the most resident memory that is seen in a time.
func (b *bridge) peakBytes(during time.Duration) int64 {
	b.t.Helper()
	return b.peakWhile(func() error {
		pause(b.t, during)
		return nil
	})
}

// peakWhile is the most resident memory that is seen while something runs.
func (b *bridge) peakWhile(run func() error) int64 {
	b.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- run() }() // received below
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	peak := int64(0)
	for {
		peak = max(peak, b.residentBytes())
		select {
		case err := <-ended:
			if err != nil {
				b.t.Fatal(err)
			}
			return peak
		case <-tick.C:
		}
	}
}

// TestANarrowSinkAway: the broker of a sink is away that is sent the changes of one namespace, while many large ones
// pass in others, of names that never recur. They take no memory, and the namespace's own arrive when the broker is
// back.
func TestANarrowSinkAway(t *testing.T) {
	t.Parallel()
	const size, limit = 20_000, 150 << 20
	changes := scale.Of(2000, 100_000)
	c := cluster.ForTest(
		t,
		func(o *cluster.Options) { o.CompactionInterval = 15 * time.Second },
	) // or etcd would keep gigabytes
	away := awayJetStream(t)
	cs := clientset(t, c)
	teamA, teamB := newNamespace(t, cs), newNamespace(t, cs)
	ofTeamA := record(t, c, teamA)
	away.start()
	b := startBridge(t, c.Kubeconfig(), "\nwatch: [{resources: [configmaps]}]\nsinks:\n"+
		strings.Replace(away.sink("away", ""), "\n", "\n    filters: [{namespaces: ["+teamA+"]}]\n", 1))
	b.waitReady()
	before := b.residentBytes()
	away.stop()
	if err := churn(t.Context(), cs, teamA, "waits", 20, 3); err != nil {
		t.Fatal(err)
	}
	peak := b.peakWhile(func() error {
		group, ctx := errgroup.WithContext(t.Context())
		group.SetLimit(8)
		for n := range changes / 4 { // a creation, two updates and a deletion
			group.Go(func() error { return oneLifeOf(ctx, cs, teamB, fmt.Sprintf("other-%d", n), size, 2, true) })
		}
		return group.Wait()
	})
	truth, last := ofTeamA.upTo(t, cs, teamA, "last")
	eventually(t, 30*time.Second, func() error {
		if at := b.seen("configmaps"); int64(at) < last {
			return fmt.Errorf("the bridge has read up to %.0f of %d", at, last)
		}
		return nil
	})
	t.Logf("%d changes elsewhere; memory: %d MB before, %d MB at most", changes, before>>20, peak>>20)
	if peak := max(peak, b.residentBytes()); !raceDetector && peak > limit {
		t.Errorf("%d MB of memory", peak>>20)
	}
	away.start()
	eventually(t, 30*time.Second, func() error { return b.reached(truth) })
	b.stop()
	judge(t, away.broker, truth, "configmaps/", away.read()...)
}

// TestEverySinkBlocked: every sink is away and its queue is full, in memory and on disk, while the API server goes on.
// The bridge stays within its bounds, and catches up when the sinks return.
func TestEverySinkBlocked(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	sinks := []*destination{awayJetStream(t), awayKafka(t)}
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	config := fmt.Sprintf("\nwatch: [{resources: [configmaps], namespaces: [%s]}]\nsinks:\n", namespace)
	for n, d := range sinks {
		config += d.sink("sink-"+itoa(n), "{events: 100, bytes: 1Mi, spill: {maxBytes: 64Ki}}")
	}
	b := startBridge(t, c.Kubeconfig(), config)
	b.waitListed()
	before := b.residentBytes()
	if err := churn(t.Context(), cs, namespace, "cm", scale.Of(120, 1500), 3); err != nil {
		t.Fatal(err)
	}
	during, queued := b.residentBytes(), b.metric("deltabridge_queue_bytes")
	t.Logf("memory: %d MB before, %d MB while blocked; %.0f bytes are queued", before>>20, during>>20, queued)
	if queued > 2*(1<<20+64<<10) {
		t.Errorf("%.0f bytes are queued", queued)
	}
	if !raceDetector && during-before > 32<<20 {
		t.Errorf("memory grew by %d MB", (during-before)>>20)
	}
	for _, d := range sinks {
		d.start()
	}
	truth := upTo(t, b, c, namespace)
	b.stop()
	for _, d := range sinks {
		judge(t, d.broker, truth, "configmaps/"+namespace+"/", d.read()...)
	}
}

// TestOneSinkAwayForTheWholeRun: it costs the other nothing, and gets everything when it returns.
func TestOneSinkAwayForTheWholeRun(t *testing.T) { // alone: it compares times
	for name, brokers := range map[string]func() (live, away *destination){
		"Kafka is away":     func() (live, away *destination) { return awayJetStream(t), awayKafka(t) },
		"JetStream is away": func() (live, away *destination) { return awayKafka(t), awayJetStream(t) },
	} {
		t.Run(name, func(t *testing.T) {
			live, away := brokers()
			live.start()
			oneSinkAway(t, live, away)
		})
	}
}

func oneSinkAway(t *testing.T, live, away *destination) {
	c := sharedCluster(t)
	cs := clientset(t, c)
	namespace, other := newNamespace(t, cs), newNamespace(t, cs)
	head := "\nshutdownTimeout: 3s\nwatch: [{resources: [configmaps], namespaces: [%s]}]\nsinks:\n" + live.sink("live", "")
	load := func(b *bridge, namespace, prefix string, count int) (lag float64, took time.Duration) {
		began := time.Now()
		lag = churnTime(t, b, func() error { return churn(t.Context(), cs, namespace, prefix, count, 3) })
		return lag, time.Since(began)
	}
	count := scale.Of(100, 400)
	config, dir := fmt.Sprintf(head+away.sink("away", "{events: 200, bytes: 1Mi}"), namespace), t.TempDir()
	dirAlone := t.TempDir()
	compare := func(round string) error {
		b := startBridgeIn(t, dirAlone, c.Kubeconfig(), fmt.Sprintf(head, other))
		b.waitReady()
		lagAlone, tookAlone := load(b, other, "alone-"+round, count)
		b.stop()
		b = startBridgeIn(t, dir, c.Kubeconfig(), config)
		b.waitListed() // what happened before the first list is history
		lag, took := load(b, namespace, "first-"+round, count)
		b.waitCommitted(configMapHistory(t, c, namespace), "live") // so that it has read everything
		b.stop()
		text := fmt.Sprintf("mean lag of the live sink %.1f ms, alone %.1f ms; the load took %s, alone %s",
			lag*1000, lagAlone*1000, took, tookAlone)
		if lag > 3*lagAlone+0.1 || took > 2*tookAlone {
			return errors.New("the sink that is away delays the live one: " + text)
		}
		t.Log(text)
		return nil
	}
	holdsOnce(t, compare)
	first := len(configMapHistory(t, c, namespace))

	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	load(b, namespace, "second", count/2)
	second := len(configMapHistory(t, c, namespace)) - first
	if n := int(b.metric("deltabridge_events_acknowledged_total", "sink=live")); n > second {
		t.Errorf("the live sink was sent %d events for %d changes: what it had settled came again", n, second)
	}
	away.start()
	truth := upTo(t, b, c, namespace)
	if n := int(
		b.metric("deltabridge_events_acknowledged_total", "sink=away", "resource=configmaps"),
	); n < len(truth) ||
		n > len(truth)+5 {
		t.Errorf("the sink that was away was sent %d events for %d changes", n, len(truth))
	}
	b.stop()
	prefix := "configmaps/" + namespace + "/"
	judge(t, "the live sink, "+live.broker, truth, prefix, live.read()...)
	judge(t, "the sink that was away, "+away.broker, truth, prefix, away.read()...)
}

// mount mounts a file system in memory, or changes that which is there.
func mount(dir, options string) error {
	output, err := exec.Command("mount", "-t", "tmpfs", "-o", options, "tmpfs", dir).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, output)
	}
	return err
}

// smallDisk is a folder on a file system of its own.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := mount(dir, options); err != nil {
		t.Skip("a small file system can't be mounted here:", err)
	}
	t.Cleanup(func() {
		if output, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, output)
		}
	})
	return dir
}

// TestAFullDisk: the state lies on a file system that fills up while the brokers are away.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, "size=8m")
	c := sharedCluster(t)
	sinks := []*destination{awayJetStream(t), awayKafka(t)}
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	config := fmt.Sprintf("\nwatch: [{resources: [configmaps], namespaces: [%s]}]\nsinks:\n", namespace)
	for n, d := range sinks {
		config += d.sink("sink-"+itoa(n), "{events: 100, bytes: 1Mi}")
	}
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitListed()
	if err := churn(t.Context(), cs, namespace, "cm", 800, 3); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error {
		if err := b.ready(); err == nil || !strings.Contains(err.Error(), "no space left on device") {
			return fmt.Errorf("readyz should name the full disk: %v", err)
		}
		return nil
	})
	if !strings.Contains(b.log.String(), "no space left on device") {
		t.Error("the log does not name the full disk")
	}
	if err := mount(dir, "remount,size=256m"); err != nil {
		t.Fatal(err)
	}
	for _, d := range sinks {
		d.start()
	}
	b.waitReady()
	truth := upTo(t, b, c, namespace)
	b.stop()
	for _, d := range sinks {
		judge(t, d.broker, truth, "configmaps/"+namespace+"/", d.read()...)
	}
}
