package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

// forgetful is a cluster whose API server has no history of ConfigMaps but etcd's, which a test can cut anywhere.
func forgetful(t *testing.T) *cluster.Cluster {
	t.Helper()
	return cluster.ForTest(t, func(o *cluster.Options) { o.APIServerFlags = []string{"--watch-cache-sizes=configmaps#0"} })
}

// recording keeps what a compaction removes.
type recording struct {
	mu      sync.Mutex
	changes []change
}

// record keeps the changes of a namespace's ConfigMaps, from now on.
func record(t *testing.T, c *cluster.Cluster, namespace string) *recording {
	t.Helper()
	from, err := c.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, ended := &recording{}, make(chan error, 1)
	go func() {
		ended <- c.WatchHistory(ctx, "/registry/configmaps/"+namespace+"/", from+1, func(rev cluster.Revision) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			name := rev.Key[strings.LastIndex(rev.Key, "/")+1:]
			r.changes = append(r.changes, change{"configmaps/" + namespace + "/" + name, strconv.FormatInt(rev.ModRevision, 10), rev.Deleted})
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return r
}

// upTo gives what was recorded once the object was seen, which is the last that a test creates.
func (r *recording) upTo(t *testing.T, cs kubernetes.Interface, namespace, name string) (changes []change, last int64) {
	t.Helper()
	if err := oneLife(t.Context(), cs, namespace, name, 0, false); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !slices.ContainsFunc(r.changes, func(c change) bool { return strings.HasSuffix(c.subject, "/"+name) }) {
			return errors.New("etcd has not told of the last change")
		}
		changes = slices.Clone(r.changes)
		return nil
	})
	return changes, revision(t, changes[len(changes)-1].rv)
}

// TestWaitingEventsOutliveTheHistory: a broker is away under steady change, with the default buffer, and the bridge
// ends. Then the API server forgets everything up to that moment. What waited arrives, deletions while the bridge was
// down too, there is no gap, and the other sink is sent nothing twice. Meanwhile the bridge's memory hardly grows.
func TestWaitingEventsOutliveTheHistory(t *testing.T) {
	t.Parallel()
	c := forgetful(t) // one case after another: each compacts etcd
	for _, test := range []struct {
		name       string
		away, live func(*testing.T) *destination // live: another sink, whose broker is there
		kill       bool                          // kill -9, some seconds later
		lost       bool                          // the state directory is lost; a state log has it
		log        bool                          // a state log is in the broker that is away
		long       bool                          // only in make test-long
	}{
		{name: "one sink", away: awayJetStream, long: true},
		{name: "one sink that hangs", away: hangingJetStream, long: true},
		{name: "one sink and kill -9 a while later", away: awayJetStream, kill: true, long: true},
		{name: "one of two sinks", away: awayJetStream, live: awayKafka, long: true},
		{name: "the other of two sinks", away: awayKafka, live: awayJetStream, long: true},
		{name: "one of two sinks and a lost node", away: awayKafka, live: awayJetStream, kill: true, lost: true},
		{name: "one sink and the state log", away: awayJetStream, log: true, long: true},
		{name: "one sink and the state log and kill -9", away: awayJetStream, live: awayKafka, kill: true, log: true},
	} {
		if test.long && !scale.Long() {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			sinks := map[string]*destination{"away": test.away(t)}
			if test.live != nil {
				sinks["live"] = test.live(t)
			}
			outliveTheHistory(t, c, sinks, test.kill, test.lost, test.log)
		})
	}
}

func outliveTheHistory(t *testing.T, c *cluster.Cluster, sinks map[string]*destination, kill, lost, logAway bool) {
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	changes := record(t, c, namespace)
	config := fmt.Sprintf("\nwatch: [{resources: [configmaps], namespaces: [%s]}]\nsinks:\n", namespace)
	for name, d := range sinks {
		config += d.sink(name, "")
		d.start()
	}
	dir := t.TempDir()
	start := func() *bridge { return startBridgeIn(t, dir, c.Kubeconfig(), config) }
	if lost {
		log := fmt.Sprintf("nats: {url: %q, stream: {name: STATE, create: true}}", startJetStream(t).url())
		start = newReplicas(t, c.Kubeconfig(), namespace, log, config).start
	}
	if logAway {
		log := strings.Replace(sinks["away"].config, `{name: E2E, create: true, subjects: ["k8s.>"]}`,
			"{name: STATE, create: true}", 1)
		start = newReplicas(t, c.Kubeconfig(), namespace, log, config).startIn(dir)
	}
	b := start()
	b.waitReady()
	load := startChanges(t, cs, namespace, 100, scale.Of(100, 30))
	before := b.peakBytes(scale.Of(time.Second, 30*time.Second))
	sinks["away"].stop()
	during := b.peakBytes(scale.Of(3*time.Second, 2*time.Minute))
	load.stop()
	truth, last := changes.upTo(t, cs, namespace, "last-before")
	eventually(t, 20*time.Second, func() error {
		if at := b.seen("configmaps"); int64(at) < last {
			return fmt.Errorf("the bridge has read up to %.0f of %d", at, last)
		}
		return nil
	})
	if sinks["live"] != nil {
		eventually(t, 20*time.Second, func() error { return b.acknowledged("live", len(truth)) })
	}
	if logAway {
		eventually(t, 20*time.Second, func() error { return errors.Join(b.detached(1), b.leads(), b.ready()) })
	}
	sent := b.metric("deltabridge_events_acknowledged_total", "sink=live")
	b.end(kill, last)
	t.Logf("%d changes; peak memory: %d MB before the outage, %d MB in it", load.made.Load(), before>>20, during>>20)
	if !raceDetector && during > before+30<<20 {
		t.Errorf("memory grew from %d to %d MB", before>>20, during>>20)
	}

	if err := c.CompactTo(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if err := cs.CoreV1().
		ConfigMaps(namespace).
		DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	b = start()
	sinks["away"].start()
	b.waitReady()
	truth, _ = changes.upTo(t, cs, namespace, "last-of-all")
	eventually(t, 30*time.Second, func() error { return b.reached(truth) })
	sent += b.metric("deltabridge_events_acknowledged_total", "sink=live")
	if logAway {
		eventually(t, 20*time.Second, func() error { return b.detached(0) })
	}
	b.stop()
	for name, d := range sinks {
		sequences := d.read()
		// JetStream also acknowledges what it drops as a repetition.
		if stored := d.stored(); name == "live" && int(sent) != stored {
			t.Errorf("the live sink was sent %.0f events, and %d are stored", sent, stored)
		}
		judge(t, "the sink "+name+", "+d.broker, truth, "configmaps/"+namespace+"/", sequences...)
		once(t, d.broker, sequences...)
		for _, r := range slices.Concat(sequences...) {
			if r.attributes["type"] == "dev.deltabridge.gap" {
				t.Errorf("the sink %s was sent a gap event: %s", name, r.data)
			}
		}
	}
}

// acknowledged reports whether a sink has had its changes acknowledged.
func (b *bridge) acknowledged(sink string, changes int) error {
	b.t.Helper()
	if n := int(b.metric("deltabridge_events_acknowledged_total", "sink="+sink, "resource=configmaps")); n < changes {
		return fmt.Errorf("sink %s: %d of %d changes are acknowledged", sink, n, changes)
	}
	return nil
}

// end ends the bridge: at once by SIGTERM, which may not take long although a broker takes nothing, or by kill -9 when
// the checkpoint has everything up to a revision. Two seconds are promised; beside other tests it can take longer.
func (b *bridge) end(kill bool, last int64) {
	b.t.Helper()
	if !kill {
		began := time.Now()
		b.stop()
		if took := time.Since(began); took > scale.Of(time.Minute, 2*time.Second) {
			b.t.Errorf("the bridge took %s to end", took)
		}
		return
	}
	eventually(b.t, 30*time.Second, func() error {
		if at := b.seen("configmaps"); int64(at) < last {
			return fmt.Errorf("read up to %.0f of %d", at, last)
		}
		return b.settled("away")
	})
	b.waitCommits()
	b.waitCommits() // without its log, the bridge commits less often
	b.kill()
}

// TestStopWithKafkaAway: a Kafka broker that answers nothing does not hold up the end either. Nothing is sent to it
// twice.
func TestStopWithKafkaAway(t *testing.T) {
	t.Parallel()
	c, k := sharedCluster(t), kafka.NewForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	config := fmt.Sprintf(
		"\nshutdownTimeout: 5m\nwatch: [{resources: [configmaps], namespaces: [%s]}]\nsinks: [{name: kafka, kafka: {brokers: [%q], topic: %q, createTopics: {partitions: 3, replicationFactor: 1}}}]\n",
		namespace,
		k.Addr(),
		namespace,
	)
	dir := t.TempDir()
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	if err := churn(t.Context(), cs, namespace, "arrives", 20, 3); err != nil {
		t.Fatal(err)
	}
	upTo(t, b, c, namespace)
	if err := k.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := churn(t.Context(), cs, namespace, "waits", 20, 3); err != nil {
		t.Fatal(err)
	}
	b.end(false, 0)
	if err := k.Resume(); err != nil {
		t.Fatal(err)
	}
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	truth := upTo(t, b, c, namespace)
	b.stop()
	// The broker may have written what was sent to it while it hung. The second bridge finds that, and sends the rest.
	records := readKafka(t, k.Addr(), namespace)
	judge(t, "Kafka", truth, "configmaps/"+namespace+"/", records...)
	once(t, "Kafka", records...)
}
