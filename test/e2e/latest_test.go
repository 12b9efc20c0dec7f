package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

// latestStates are a JetStream stream of last messages, a bucket, and a compacted Kafka topic, with the bridge that
// fills them.
type latestStates struct {
	t         *testing.T
	c         *cluster.Cluster
	cs        kubernetes.Interface
	js        *jetStream
	kafka     string // its address
	namespace string
	dir       string
	config    string
	b         *bridge
}

const (
	latestStream, latestTopic, latestBucket = "LATEST", "latest", "STATE"
	controlTopic, controlStream             = "latest-control", "CONTROL" // of the topic and of the bucket
)

func newLatestStates(t *testing.T) *latestStates {
	t.Helper()
	m := &latestStates{
		t:     t,
		c:     cluster.ForTest(t),
		js:    startJetStream(t),
		kafka: kafka.ForTest(t).Addr(),
		dir:   t.TempDir(),
	}
	m.cs = clientset(t, m.c)
	m.namespace = newNamespace(t, m.cs)
	m.config = fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [%s]}]
sinks:
  - name: jetstream
    nats: {url: %q, stream: {name: %s, create: true, lastPerSubject: true}}
  - name: kafka
    controlEvents: {topic: %s}
    kafka: {brokers: [%q], topic: %s, tombstones: true, createTopics: {partitions: 3, replicationFactor: 1}}
  - name: bucket
    controlEvents: {subject: "control.{resource}", stream: %s}
    nats: {url: %q, bucket: %s, stream: {create: true}}
`, m.namespace, m.js.url(), latestStream, controlTopic, m.kafka, latestTopic, controlStream, m.js.url(), latestBucket)
	return m
}

// start runs the bridge, with what the one before has left.
func (m *latestStates) start() {
	m.t.Helper()
	m.b = startBridgeIn(m.t, m.dir, m.c.Kubeconfig(), m.config)
	m.b.waitReady()
}

// resync runs `bridge resync` and gives what it prints.
func (m *latestStates) resync(args ...string) string {
	m.t.Helper()
	out, errs, err := runBridge(
		m.t,
		append([]string{"resync", "--config", filepath.Join(m.dir, "bridge.yaml")}, args...)...)
	if err != nil {
		m.t.Fatalf("bridge resync: %v: %s%s", err, out, errs)
	}
	return out
}

// settle waits until the bridge has delivered all that etcd holds.
func (m *latestStates) settle() {
	m.t.Helper()
	upTo(m.t, m.b, m.c, m.namespace)
}

// cluster is the current state, as the API server lists it: by name, without managedFields.
func (m *latestStates) cluster() map[string]any {
	m.t.Helper()
	data, err := m.cs.CoreV1().
		RESTClient().
		Get().
		AbsPath("/api/v1/namespaces/" + m.namespace + "/configmaps").
		DoRaw(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	var list struct{ Items []map[string]any }
	if err := json.Unmarshal(data, &list); err != nil {
		m.t.Fatal(err)
	}
	objects := map[string]any{}
	for _, o := range list.Items {
		o["kind"], o["apiVersion"] = "ConfigMap", "v1"
		metadata := o["metadata"].(map[string]any)
		delete(metadata, "managedFields")
		objects[metadata["name"].(string)] = o
	}
	return objects
}

// equal compares the latestStates with the cluster. It waits for what is not in doubt: that Kafka shows all that it
// acknowledged.
func (m *latestStates) equal(when string) {
	m.t.Helper()
	want := m.cluster()
	if diff := cmp.Diff(want, present(m.stream())); diff != "" {
		m.t.Errorf("%s, the stream (-cluster +latest):\n%s", when, diff)
	}
	if diff := cmp.Diff(want, present(m.topic())); diff != "" {
		m.t.Errorf("%s, the topic (-cluster +latest):\n%s", when, diff)
	}
	if diff := cmp.Diff(want, m.bucket()); diff != "" {
		m.t.Errorf("%s, the bucket (-cluster +latest):\n%s", when, diff)
	}
	m.t.Logf("%s: %d objects", when, len(want))
	if len(want) < 10 {
		m.t.Errorf("%s: that is too few to tell", when)
	}
}

// TestLatestStates: what independent readers make of the latestStates is what the cluster holds, after random changes
// through a kill and a re-list, and again after the stream lost everything; and a reader can tell what is gone from the
// cluster.
func TestLatestStates(t *testing.T) {
	t.Parallel()
	m := newLatestStates(t)
	m.start()
	changes := startChanges(t, m.cs, m.namespace, 60, scale.Of(40, 75))
	changes.await(t, 150)
	m.b.kill() // under load
	changes.await(t, 30)
	m.start()
	changes.await(t, 100)
	changes.stop()
	m.settle()
	m.equal("after a kill")

	// Away for longer than the history. What was created in the last second before is another matter: what only a stream
	// still holds is swept, below.
	before := upTo(t, m.b, m.c, m.namespace)
	m.b.waitCommitted(before, "jetstream", "kafka")
	m.b.kill()
	changes = startChanges(t, m.cs, m.namespace, 60, scale.Of(40, 75))
	changes.await(t, 150)
	changes.stop()
	m.restartAPI()
	m.start()
	m.settle()
	if m.b.metric("deltabridge_informer_relists_total") == 0 {
		t.Error("nothing was listed again")
	}
	m.equal("after a re-list")
	m.gapsAreApart()

	m.purgeAndResync()
	m.resyncUnderLoad()
	m.loseTheCheckpoint()

	if _, stderr, err := runBridge(
		t,
		"resync",
		"--config",
		filepath.Join(m.dir, "bridge.yaml"),
		"--sink",
		"none",
	); err == nil ||
		!strings.Contains(stderr, `there is no sink "none"; existing sinks: jetstream, kafka, bucket`) {
		t.Errorf("an unknown sink: %v, %s", err, stderr)
	}
	m.b.stop()
	if _, stderr, err := runBridge(
		t,
		"resync",
		"--config",
		filepath.Join(m.dir, "bridge.yaml"),
	); err == nil ||
		!strings.Contains(stderr, "no bridge is running with this state.path") {
		t.Errorf("without a bridge: %v, %s", err, stderr)
	}
}

// restartAPI makes the API server forget its history.
func (m *latestStates) restartAPI() {
	m.t.Helper()
	if err := m.c.KillAPIServer(); err != nil {
		m.t.Fatal(err)
	}
	if err := m.c.StartAPIServer(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
}

var resyncLine = regexp.MustCompile(`(?m)^jetstream: (\d+) objects of 1 resources re-sent$`)

// purgeAndResync: a stream that lost everything holds everything again.
func (m *latestStates) purgeAndResync() {
	t := m.t
	t.Helper()
	api, closeConn := m.js.api()
	defer closeConn()
	s, err := api.Stream(t.Context(), latestStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	out := m.resync("--sink", "jetstream")
	match := resyncLine.FindStringSubmatch(out)
	if match == nil || strings.Contains(out, "kafka") {
		t.Fatalf("bridge resync printed %q", out)
	}
	m.settle()
	m.equal("after a purge and a resync")
	objects, err := strconv.Atoi(match[1])
	if err != nil || objects != len(m.cluster()) {
		t.Errorf("%s objects were sent, the cluster holds %d", match[1], len(m.cluster()))
	}
	for key, e := range m.stream() {
		var o struct {
			Metadata struct{ UID, ResourceVersion string }
		}
		switch {
		case e.attributes["type"] == "dev.deltabridge.synced":
			if want := fmt.Sprintf(`"objects":%d,"resync":true,"since":"`, objects); !strings.Contains(string(e.data), want) {
				t.Errorf("the end of the resync: %s, want %s", e.data, want)
			}
		case json.Unmarshal(e.data, &o) != nil || e.attributes["operation"] != "restated" || e.id() != o.Metadata.UID+"."+o.Metadata.ResourceVersion:
			t.Errorf("%s: %v", key, e.attributes)
		}
	}
	if n := m.b.metric("deltabridge_events_restated_total", "sink=jetstream"); int(n) != objects {
		t.Errorf("%.0f restatements are counted", n)
	}
}

// resyncUnderLoad: while objects change, no resync sends a state that is older than one sent before.
func (m *latestStates) resyncUnderLoad() {
	t := m.t
	t.Helper()
	before := kafka.ReadAll(t, m.kafka, latestTopic)
	changes := startChanges(t, m.cs, m.namespace, 60, scale.Of(50, 100))
	for range 6 {
		changes.await(t, 50)
		m.resync()
	}
	changes.stop()
	m.settle()
	m.equal("after resyncs under load")
	last, restated := map[string]int64{}, 0
	for p, records := range readKafka(t, m.kafka, latestTopic) {
		for _, r := range records[len(before[p]):] {
			if !r.object() {
				continue
			}
			if at := revision(t, r.resourceVersion()); at < last[r.subject()] {
				t.Errorf("%s is %s at %d, after %d", r.subject(), r.attributes["operation"], at, last[r.subject()])
			} else {
				last[r.subject()] = at
			}
			if r.attributes["operation"] == "restated" {
				restated++
			}
		}
	}
	t.Logf("%d restatements among the changes", restated)
	if restated < 100 {
		t.Errorf("%d restatements are too few to tell", restated)
	}
}

// loseTheCheckpoint: deletions while the bridge is down are never sent. After a resync a reader knows what to
// drop.
func (m *latestStates) loseTheCheckpoint() {
	t := m.t
	t.Helper()
	m.b.kill()
	if err := os.RemoveAll(filepath.Join(m.dir, "state")); err != nil {
		t.Fatal(err)
	}
	gone := 0
	for name := range m.cluster() {
		if gone == 7 {
			break
		}
		if err := m.cs.CoreV1().ConfigMaps(m.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		gone++
	}
	m.start()
	eventually(t, 20*time.Second, func() error { // the first list
		if m.b.metric("deltabridge_queue_events") > 0 ||
			m.b.metric("deltabridge_events_acknowledged_total", "sink=kafka") == 0 {
			return errors.New("the first list is not delivered")
		}
		return nil
	})
	m.resync()
	m.settle()
	want := m.cluster()
	topic := m.topic()
	for _, r := range m.controlEvents() { // the last synced event counts
		topic[r.attributes["type"]] = r
	}
	for where, entries := range map[string]map[string]received{"stream": m.stream(), "topic": topic} {
		if held := len(present(entries)); held != len(want)+gone {
			t.Errorf("the %s holds %d objects, want %d and %d that are gone", where, held, len(want), gone)
		}
		if diff := cmp.Diff(want, present(swept(t, entries))); diff != "" {
			t.Errorf("the %s, swept (-cluster +latest):\n%s", where, diff)
		}
	}
}
