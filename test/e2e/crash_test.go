package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/kafka"
)

// randomChanges creates, updates, deletes and re-creates ConfigMaps of a few names, at most rate a second, until it is
// stopped.
type randomChanges struct {
	stopped chan struct{}
	ended   chan error
	made    atomic.Int64
}

func startChanges(t *testing.T, cs kubernetes.Interface, namespace string, names, rate int) *randomChanges {
	t.Helper()
	r := &randomChanges{stopped: make(chan struct{}), ended: make(chan error, 1)}
	go func() { r.ended <- r.run(t.Context(), cs, namespace, names, rate) }() // received by stop
	t.Cleanup(func() {
		select {
		case <-r.stopped:
		default:
			close(r.stopped)
		}
	})
	return r
}

func (r *randomChanges) run(ctx context.Context, cs kubernetes.Interface, namespace string, names, rate int) error {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	api := cs.CoreV1().ConfigMaps(namespace)
	for n := 0; ; n++ {
		select {
		case <-r.stopped:
			return nil
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		name := fmt.Sprintf("c-%d", rand.IntN(names))
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Data:       map[string]string{"n": itoa(n), "payload": strings.Repeat("x", 2200)},
		}
		// What is not possible (an update of what is gone) is tried in vain, and that is as well.
		var err error
		switch rand.IntN(5) {
		case 0:
			err = api.Delete(ctx, name, metav1.DeleteOptions{})
		case 1:
			_, err = api.Create(ctx, cm, metav1.CreateOptions{})
		default:
			_, err = api.Update(ctx, cm, metav1.UpdateOptions{})
		}
		if err == nil {
			r.made.Add(1)
		}
	}
}

func (r *randomChanges) stop(t *testing.T) {
	t.Helper()
	close(r.stopped)
	if err := <-r.ended; err != nil {
		t.Fatal(err)
	}
}

// upTo waits until the bridge has taken in and delivered everything of etcd's history so far, and gives that.
func upTo(t *testing.T, b *bridge, c *cluster.Cluster, namespace string) []change {
	t.Helper()
	truth := configMapHistory(t, c, namespace)
	eventually(t, 90*time.Second, func() error { return b.reached(truth) })
	return truth
}

// TestKilledAtAnyMoment: the bridge is killed thirty times under random changes, some of which happen while it is
// down, within the API server's history.
func TestKilledAtAnyMoment(t *testing.T) {
	c, js, k := sharedCluster(t), startJetStream(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	topic := "killed-" + namespace
	config, dir := toBoth(namespace, js.url(), k.Addr(), topic), t.TempDir()
	first := startBridgeIn(t, dir, c.Kubeconfig(), config)
	first.waitReady() // what happened before the first list is history
	changes := startChanges(t, cs, namespace, 60, 150)
	first.kill()
	const kills = 30
	for range kills {
		b := startBridgeIn(t, dir, c.Kubeconfig(), config)
		pause(t, time.Duration(rand.IntN(1500))*time.Millisecond)
		b.kill()
		pause(t, time.Duration(rand.IntN(300))*time.Millisecond)
	}
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	changes.stop(t)
	truth := upTo(t, b, c, namespace)
	b.stop()
	t.Logf("%d kills, %d changes", kills, len(truth))
	prefix := "configmaps/" + namespace + "/"
	events := js.read("E2E")
	judge(t, "JetStream", truth, prefix, events)
	judge(t, "Kafka", truth, prefix, dropRepeats(t, readKafka(t, k.Addr(), topic))...)
	for _, r := range events {
		if r.attributes["type"] == "dev.deltabridge.gap" {
			t.Errorf("a gap where the history was there: %s", r.data)
		}
	}
}

// TestDownForLongerThanTheHistory: while the bridge is down objects change, go and come again, and the API server is
// restarted, so that it refuses to continue.
func TestDownForLongerThanTheHistory(t *testing.T) {
	c, js, k := cluster.ForTest(t), startJetStream(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	topic := "down-" + namespace
	config, dir := toBoth(namespace, js.url(), k.Addr(), topic), t.TempDir()
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	api := cs.CoreV1().ConfigMaps(namespace)
	for n := range 300 {
		if err := oneLife(t.Context(), cs, namespace, fmt.Sprintf("c-%d", n), 0, false); err != nil {
			t.Fatal(err)
		}
	}
	before := upTo(t, b, c, namespace)
	eventually(t, 10*time.Second, func() error { return b.committed(before) })
	b.kill()

	for n := range 300 {
		name := fmt.Sprintf("c-%d", n)
		var err error
		switch n % 3 {
		case 1: // changed
			err = oneLife(t.Context(), cs, namespace, name, 2, false)
		case 2: // deleted, and every second one created again
			err = api.Delete(t.Context(), name, metav1.DeleteOptions{})
			if n%2 == 0 && err == nil {
				err = oneLife(t.Context(), cs, namespace, name, 0, false)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := c.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	held := len(js.read("E2E"))
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	truth := upTo(t, b, c, namespace)
	b.stop()

	prefix := "configmaps/" + namespace + "/"
	events := js.read("E2E")
	judgeFinal(t, "JetStream", truth, prefix, events)
	judgeFinal(t, "Kafka", truth, prefix, readKafka(t, k.Addr(), topic)...)
	changed := map[string]bool{}
	for _, c := range truth[len(before):] {
		changed[c.subject] = true
	}
	gaps, deletions := 0, 0
	for _, r := range events[held:] {
		switch {
		case r.attributes["type"] == "dev.deltabridge.gap":
			gaps++
			t.Logf("gap event: %s", r.data)
		case r.object() && !changed[r.subject()]:
			t.Errorf("%s was sent, and has not changed", r.subject())
		case r.attributes["finalstateunknown"] == "true":
			deletions++
			if len(r.data) < 2000 {
				t.Errorf("the deletion of %s does not carry its last known state: %s", r.subject(), r.data)
			}
		}
	}
	if gaps != 1 || deletions != 100 {
		t.Errorf("%d gaps and %d deletions that were missed, want 1 and 100", gaps, deletions)
	}
}

// committed reports whether the checkpoint has all of the changes.
func (b *bridge) committed(truth []change) error {
	last := 0.0
	for _, c := range truth {
		last = max(last, float64(revision(b.t, c.rv)))
	}
	for _, sink := range []string{"jetstream", "kafka"} {
		if at := b.metric("deltabridge_watermark_resource_version", "sink="+sink); at < last {
			return fmt.Errorf("sink %s is at %.0f of %.0f", sink, at, last)
		}
	}
	commits := b.metric("deltabridge_checkpoint_commits_total")
	if b.commitsAtLast == 0 {
		b.commitsAtLast = commits
	}
	age := time.Now().Unix() - int64(b.metric("deltabridge_checkpoint_last_commit_timestamp_seconds"))
	if commits == b.commitsAtLast && age < 2 {
		return errors.New("the next commit is due")
	}
	return nil
}

// TestSpillThroughAnOutage: both brokers are away under steady change, with a memory queue far smaller than what
// accumulates. The bridge is killed in the middle, and once more while it catches up.
func TestSpillThroughAnOutage(t *testing.T) {
	c, js, k := sharedCluster(t), startJetStream(t), kafka.ForTest(t)
	natsProxy := sinktest.NewProxy(t, js.addr())
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	topic := "outage-" + namespace
	config := strings.ReplaceAll(toBoth(namespace, "nats://"+natsProxy.Addr(), k.Addr(), topic), "    nats:", "    buffer: {events: 100, bytes: 1Mi}\n    nats:")
	config = strings.ReplaceAll(config, "    kafka:", "    buffer: {events: 100, bytes: 1Mi}\n    kafka:")
	dir := t.TempDir()
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	changes := startChanges(t, cs, namespace, 200, 250)
	eventually(t, 30*time.Second, func() error {
		if n := b.metric("deltabridge_events_acknowledged_total"); n < 1000 {
			return fmt.Errorf("%.0f events arrived", n)
		}
		return nil
	})
	before := b.residentBytes()

	natsProxy.Freeze()
	natsProxy.Cut()
	if err := k.Pause(); err != nil {
		t.Fatal(err)
	}
	spilled := func() error {
		for _, sink := range []string{"jetstream", "kafka"} {
			if n := b.metric("deltabridge_spill_events", "sink="+sink); n < 1500 {
				return fmt.Errorf("%.0f events of %s are spilled", n, sink)
			}
		}
		return nil
	}
	eventually(t, 90*time.Second, spilled)
	during := b.residentBytes()
	t.Logf("memory: %d MB before the outage, %d MB in it", before>>20, during>>20)
	b.kill()
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	eventually(t, 30*time.Second, spilled)
	natsProxy.Thaw()
	if err := k.Resume(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, func() error {
		if n := b.metric("deltabridge_events_acknowledged_total"); n < 200 {
			return fmt.Errorf("%.0f events arrived", n)
		}
		return nil
	})
	b.kill() // while it catches up
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	changes.stop(t)
	truth := upTo(t, b, c, namespace)
	b.stop()
	prefix := "configmaps/" + namespace + "/"
	judge(t, "JetStream", truth, prefix, js.read("E2E"))
	judge(t, "Kafka", truth, prefix, dropRepeats(t, readKafka(t, k.Addr(), topic))...)
	if len(raceFlag) == 0 && float64(during) > 1.2*float64(before)+8<<20 {
		t.Errorf("memory grew from %d to %d MB", before>>20, during>>20)
	}
}

// TestEverySinkBlocked: the only sink is away and its queue is full, while the API server goes on. The bridge stays
// within its bounds, and catches up when the sink returns.
func TestEverySinkBlocked(t *testing.T) {
	c, js := sharedCluster(t), newJetStream(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	b := startBridge(t, c.Kubeconfig(), fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [%s]}]
sinks:
  - name: jetstream
    buffer: {events: 100, bytes: 1Mi, overflow: block}
    nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}
`, namespace, js.url()))
	b.waitListed()
	before := b.residentBytes()
	if err := churn(t.Context(), cs, namespace, "cm", 1500, 3); err != nil {
		t.Fatal(err)
	}
	during, queued := b.residentBytes(), b.metric("deltabridge_queue_bytes")
	t.Logf("memory: %d MB before, %d MB while blocked; %.0f bytes are queued", before>>20, during>>20, queued)
	if queued > 1<<20+64<<10 {
		t.Errorf("%.0f bytes are queued", queued)
	}
	if during-before > 32<<20 {
		t.Errorf("memory grew by %d MB", (during-before)>>20)
	}
	js.start()
	truth := upTo(t, b, c, namespace)
	b.stop()
	judge(t, "JetStream", truth, "configmaps/"+namespace+"/", js.read("E2E"))
}

// TestTermination: SIGTERM under load ends the bridge in time, and the next one repeats nothing.
func TestTermination(t *testing.T) {
	c, js, k := sharedCluster(t), startJetStream(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	topic := "terminated-" + namespace
	config, dir := toBoth(namespace, js.url(), k.Addr(), topic), t.TempDir()
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady() // what happened before the first list is history
	changes := startChanges(t, cs, namespace, 60, 200)
	for range 3 {
		pause(t, time.Second)
		b.stop()
		b = startBridgeIn(t, dir, c.Kubeconfig(), config)
		b.waitReady()
	}
	changes.stop(t)
	truth := upTo(t, b, c, namespace)
	b.stop()
	prefix := "configmaps/" + namespace + "/"
	judge(t, "JetStream", truth, prefix, js.read("E2E"))
	judge(t, "Kafka", truth, prefix, readKafka(t, k.Addr(), topic)...) // no repeats at all
}

// TestOneSinkAwayForTheWholeRun: it costs the other nothing, and gets everything when it returns.
func TestOneSinkAwayForTheWholeRun(t *testing.T) {
	c, live, away := sharedCluster(t), startJetStream(t), newJetStream(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	config := fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [%s]}]
sinks:
  - name: live
    nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}
  - name: away
    buffer: {events: 200, bytes: 1Mi}
    nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}
`, namespace, live.url(), away.url())
	dir := t.TempDir()
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitListed() // what happened before the first list is history
	lag := churnTime(t, b, func() error { return churn(t.Context(), cs, namespace, "first", 400, 3) })
	t.Logf("the live sink's mean lag: %.1f ms", lag*1000)
	first := len(configMapHistory(t, c, namespace))
	b.stop()

	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	churnTime(t, b, func() error { return churn(t.Context(), cs, namespace, "second", 200, 3) })
	second := len(configMapHistory(t, c, namespace)) - first
	if n := int(b.metric("deltabridge_events_acknowledged_total", "sink=live")); n > second {
		t.Errorf("the live sink was sent %d events for %d changes: what it had settled came again", n, second)
	}
	away.start()
	truth := upTo(t, b, c, namespace)
	if n := int(b.metric("deltabridge_events_acknowledged_total", "sink=away", "resource=configmaps")); n < len(truth) || n > len(truth)+5 {
		t.Errorf("the sink that was away was sent %d events for %d changes", n, len(truth))
	}
	b.stop()
	prefix := "configmaps/" + namespace + "/"
	judge(t, "the live sink", truth, prefix, live.read("E2E"))
	judge(t, "the sink that was away", truth, prefix, away.read("E2E"))
}

// TestAChangedConfiguration: a sink that is added gets everything that exists, and the others nothing again. A
// sink whose filter changed is told of what enters and what leaves.
func TestAChangedConfiguration(t *testing.T) {
	c, old, added := sharedCluster(t), startJetStream(t), startJetStream(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	sink := func(name, url, filter string) string {
		return fmt.Sprintf("  - name: %s\n    filters: [{when: %q}]\n    nats: {url: %q, stream: {name: E2E, create: true, subjects: [\"k8s.>\"]}}\n", name, filter, url)
	}
	head := fmt.Sprintf("\nwatch: [{resources: [configmaps], namespaces: [%s]}]\nsinks:\n", namespace)
	for n, name := range []string{"both", "only-old", "only-new"} {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"n": itoa(n)}}
		if _, err := cs.CoreV1().ConfigMaps(namespace).Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	b := startBridgeIn(t, dir, c.Kubeconfig(), head+sink("old", old.url(), "object.metadata.name in ['both', 'only-old']"))
	b.waitReady()
	eventually(t, 20*time.Second, func() error { return b.reached(configMapHistory(t, c, namespace)) })
	b.stop()
	b = startBridgeIn(t, dir, c.Kubeconfig(), head+sink("old", old.url(), "object.metadata.name in ['both', 'only-new']")+sink("added", added.url(), "true"))
	b.waitReady()
	eventually(t, 20*time.Second, func() error { return b.reached(configMapHistory(t, c, namespace)) })
	b.stop()
	told := func(js *jetStream) (lines []string) {
		for _, r := range js.read("E2E") {
			if r.object() {
				lines = append(lines, r.attributes["operation"]+" "+r.attributes["name"]+" "+r.attributes["leftfilter"])
			}
		}
		return lines
	}
	if got, want := strings.Join(told(old), ", "), "added both , added only-old , deleted only-old true, added only-new "; got != want {
		t.Errorf("the old sink was told %q, want %q", got, want)
	}
	if got, want := strings.Join(told(added), ", "), "added both , added only-old , added only-new "; got != want {
		t.Errorf("the new sink was told %q, want %q", got, want)
	}
}

// TestARestoredEtcd: etcd comes back from an older copy behind the same address, while the bridge runs and while it
// does not.
func TestARestoredEtcd(t *testing.T) {
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running=%t", running), func(t *testing.T) {
			var data string
			c := cluster.ForTest(t, func(o *cluster.Options) { data = filepath.Join(o.Dir, "etcd") })
			js := startJetStream(t)
			cs := clientset(t, c)
			namespace := newNamespace(t, cs)
			config := fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [%s]}]
sinks: [{name: jetstream, nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}}]
`, namespace, js.url())
			dir := t.TempDir()
			b := startBridgeIn(t, dir, c.Kubeconfig(), config)
			b.waitReady()
			for _, name := range []string{"kept", "changed"} {
				if err := oneLife(t.Context(), cs, namespace, name, 0, false); err != nil {
					t.Fatal(err)
				}
			}
			stopAll := func() {
				if err := c.KillAPIServer(); err != nil {
					t.Fatal(err)
				}
				if err := c.StopEtcd(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			startAll := func() {
				if err := c.StartEtcd(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := c.StartAPIServer(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			stopAll()
			backup := filepath.Join(t.TempDir(), "etcd")
			if err := os.CopyFS(backup, os.DirFS(data)); err != nil {
				t.Fatal(err)
			}
			startAll()
			if err := oneLife(t.Context(), cs, namespace, "changed", 500, false); err != nil {
				t.Fatal(err)
			}
			if err := oneLife(t.Context(), cs, namespace, "lost", 0, false); err != nil {
				t.Fatal(err)
			}
			upTo(t, b, c, namespace)
			if !running {
				b.stop()
			}
			stopAll()
			if err := os.RemoveAll(data); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(data, os.DirFS(backup)); err != nil {
				t.Fatal(err)
			}
			startAll()
			if !running {
				b = startBridgeIn(t, dir, c.Kubeconfig(), config)
			}
			if err := oneLife(t.Context(), cs, namespace, "after", 0, false); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			eventually(t, time.Minute, func() error {
				refused := b.metric("deltabridge_informer_checkpoint_refused", "resource=configmaps")
				relists := b.metric("deltabridge_informer_relists_total", "resource=configmaps")
				queued := b.metric("deltabridge_queue_events")
				if refused != 1 || relists == 0 || queued > 0 {
					return fmt.Errorf("refused: %.0f, lists: %.0f, %.0f events wait", refused, relists, queued)
				}
				return nil
			})
			t.Logf("told after %s", time.Since(began).Round(time.Millisecond))
			b.waitReady()
			eventually(t, 20*time.Second, func() error {
				if n := b.metric("deltabridge_informer_objects", "resource=configmaps"); n != 3 {
					return fmt.Errorf("the bridge knows %.0f objects", n)
				}
				return nil
			})
			b.stop()
			last := map[string]string{}
			for _, r := range js.read("E2E") {
				if r.object() {
					last[r.attributes["name"]] = r.attributes["operation"]
				}
			}
			if last["lost"] != "deleted" || last["after"] != "added" || last["kept"] != "added" || last["changed"] != "updated" {
				t.Errorf("the last events: %v", last)
				for _, r := range js.read("E2E") {
					t.Logf("%s %s %s", r.attributes["type"], r.attributes["name"], r.id())
				}
			}
			if !strings.Contains(b.log.String(), "restored from a backup") {
				t.Error("the log does not say so")
			}
		})
	}
}

// TestRestartWithManyObjects: a restart lists nothing, sends nothing, and is ready at once.
func TestRestartWithManyObjects(t *testing.T) {
	c, js := cluster.ForTest(t), startJetStream(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	const objects = 20000
	if err := createMany(t.Context(), cs, namespace, objects); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [%s]}]
sinks: [{name: jetstream, nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}}]
`, namespace, js.url())
	dir := t.TempDir()
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	eventually(t, 2*time.Minute, b.ready)
	truth := upTo(t, b, c, namespace)
	b.stop()
	held := len(js.read("E2E"))
	lists := listRequests(t, c)

	began := time.Now()
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	eventually(t, time.Minute, b.ready)
	took := time.Since(began)
	t.Logf("ready after %s with %d objects", took.Round(time.Millisecond), objects)
	if len(raceFlag) == 0 && took > 4*time.Second { // the figure is the benchmark's to show; this catches a list
		t.Errorf("ready after %s", took)
	}
	eventually(t, 10*time.Second, func() error { return b.reached(truth) })
	if more := listRequests(t, c) - lists; more != 0 {
		t.Errorf("the restart made %.0f LIST requests for ConfigMaps", more)
	}
	b.stop()
	if n := len(js.read("E2E")); n != held {
		t.Errorf("the restart sent %d events", n-held)
	}
}

func createMany(ctx context.Context, cs kubernetes.Interface, namespace string, count int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for n := range count {
		group.Go(func() error { return oneLife(ctx, cs, namespace, fmt.Sprintf("c-%d", n), 0, false) })
	}
	return group.Wait()
}

// listRequests is how many LISTs of ConfigMaps the API server has counted.
func listRequests(t *testing.T, c *cluster.Cluster) float64 {
	t.Helper()
	data, err := clientset(t, c).CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, m := range families["apiserver_request_total"].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["resource"] == "configmaps" && labels["verb"] == "LIST" {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
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

// TestAFullDisk: the state lies on a file system that fills up while the broker is away.
func TestAFullDisk(t *testing.T) {
	dir := smallDisk(t, "size=6m")
	c, js := sharedCluster(t), newJetStream(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	b := startBridgeIn(t, dir, c.Kubeconfig(), fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [%s]}]
sinks:
  - name: jetstream
    buffer: {events: 100, bytes: 1Mi}
    nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}
`, namespace, js.url()))
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
	js.start()
	b.waitReady()
	truth := upTo(t, b, c, namespace)
	b.stop()
	judge(t, "JetStream", truth, "configmaps/"+namespace+"/", js.read("E2E"))
}
