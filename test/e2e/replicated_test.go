package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/natsserver"
	"github.com/deltabridge/deltabridge/test/scale"
)

// TestReplicated has the tests that require three nodes of each broker. They run one after the other, with the same
// brokers.
func TestReplicated(t *testing.T) { // alone: it runs six brokers
	r := newReplicated(t)
	for _, test := range []struct {
		name string
		run  func(*replicated)
		long bool // only in make test-long
	}{
		{name: "NothingTwice", run: (*replicated).nothingTwice},
		{name: "TwoProcesses", run: (*replicated).twoProcesses},
		{name: "BytesThatArriveLate", run: (*replicated).bytesThatArriveLate, long: true},
		{name: "WithoutALeader", run: (*replicated).withoutALeader, long: true},
		{name: "BytesThatArriveAfterATakeOver", run: (*replicated).bytesThatArriveAfterATakeOver, long: true},
		{name: "CutOff", run: (*replicated).cutOff},
		{name: "TakeOver", run: (*replicated).takeOvers},
	} {
		if test.long && !scale.Long() {
			continue
		}
		t.Run(test.name, func(t *testing.T) { test.run(r.next(t)) })
	}
}

// replicated are a JetStream and a Kafka of three nodes each, and the namespace whose objects a bridge sends there. Two
// nodes of each can be stopped: the first one is for the test.
type replicated struct {
	t         *testing.T
	c         *cluster.Cluster
	cs        kubernetes.Interface
	namespace string
	resources []string // what changes; each has a topic
	js        []*jetStream
	kafka     []*kafka.Broker
	natsURLs  []string
	brokers   []string
	links     []*links // of two bridges; see behind
	written   *written // to the mirror
}

// newReplicated starts the brokers. Use next for each test.
func newReplicated(t *testing.T) *replicated {
	t.Helper()
	var addrs []string
	all := []*links{newLinks(t), newLinks(t)}
	for _, l := range all {
		for _, p := range l.kafka {
			addrs = append(addrs, p.Addr())
		}
	}
	r := &replicated{
		t: t, c: sharedCluster(t), js: startJetStreamCluster(t), kafka: kafka.NewClusterForTest(t, addrs), links: all,
		resources: []string{"configmaps", "limitranges"},
	}
	for n := range r.js {
		r.natsURLs, r.brokers = append(r.natsURLs, r.js[n].url()), append(r.brokers, r.kafka[n].Addr())
		for of, l := range all {
			l.kafka[n].SetTarget(r.kafka[n].Behind()[of])
			l.nats[n].SetTarget(r.js[n].addr())
			l.log[n].SetTarget(r.js[n].addr())
		}
	}
	for _, l := range all {
		l.api[0].SetTarget(strings.TrimPrefix(r.c.APIServerURL(), "https://"))
	}
	r.cs = clientset(t, r.c)
	return r
}

// next returns r for another test: with another namespace and without streams, except an empty mirror.
func (r *replicated) next(t *testing.T) *replicated {
	t.Helper()
	api, closeConn := r.js[0].api()
	defer closeConn()
	for _, stream := range r.js[0].streams() {
		natsserver.DeleteStream(t, api, stream)
	}
	another := *r
	another.t, another.namespace = t, newNamespace(t, r.cs)
	another.written = another.createMirror()
	return &another
}

const (
	mirrorStream = "MIRROR"
	smallBuffer  = "buffer: {events: 100, bytes: 1Mi}"
)

// config has a sink for a stream that keeps everything, one for a stream of last messages, and one for Kafka. The
// stream forgets ids as soon as the server permits.
func (r *replicated) config() string {
	urls := strings.Join(r.natsURLs, ",")
	return fmt.Sprintf(`
watch: [{resources: [%s], namespaces: [%s]}]
sinks:
  - name: jetstream
    %s
    nats: {url: %q, stream: {name: E2E, create: true, replicas: 3, subjects: ["k8s.>"], duplicateWindow: 100ms}}
  - name: mirror
    %s
    nats: {url: %q, subject: "mirror.{group}.{resource}.{namespace}.{name}", stream: {name: %s, lastPerSubject: true}}
  - name: kafka
    %s
    kafka: {brokers: [%s], topic: "%s-{resource}", createTopics: {partitions: 3, replicationFactor: 3}}
`, strings.Join(r.resources, ", "), r.namespace, smallBuffer, urls, smallBuffer, urls, mirrorStream,
		smallBuffer, strings.Join(r.brokers, ", "), r.namespace)
}

// configWithWindow is config with a stream that knows ids for the usual time: what a process that hangs, or that is cut
// off, has already handed to its connection arrives late. The buffers are the usual ones as well.
func (r *replicated) configWithWindow() string {
	return strings.NewReplacer("duplicateWindow: 100ms", "duplicateWindow: 2m", smallBuffer, "").Replace(r.config())
}

func (r *replicated) topic(resource string) string { return r.namespace + "-" + resource }

// startChanges starts random changes of the resources, or of those given.
func (r *replicated) startChanges(resources ...string) *randomChanges {
	r.t.Helper()
	if len(resources) == 0 {
		resources = r.resources
	}
	return startChanges(r.t, r.cs, r.namespace, 60, scale.Of(40, 75), resources...)
}

// stopNodes stops two of three nodes of each broker, so that neither accepts anything, and waits until each sink spills.
func (r *replicated) stopNodes(b *bridge) {
	r.t.Helper()
	for n := 1; n < 3; n++ {
		r.js[n].stop()
		if err := r.kafka[n].Kill(); err != nil {
			r.t.Fatal(err)
		}
	}
	eventually(r.t, time.Minute, func() error {
		for _, sink := range []string{"jetstream", "mirror", "kafka"} {
			if b.metric("deltabridge_spill_events", "sink="+sink) == 0 {
				return fmt.Errorf("sink %s does not spill", sink)
			}
		}
		return nil
	})
}

func (r *replicated) startNodes() {
	r.t.Helper()
	group, ctx := errgroup.WithContext(r.t.Context())
	for n := 1; n < 3; n++ {
		r.js[n].start()
		group.Go(func() error { return r.kafka[n].Restart(ctx) })
	}
	if err := group.Wait(); err != nil {
		r.t.Fatal(err)
	}
}

// upTo waits until the bridge, or one of the replicas, has delivered everything of etcd's history so far, and gives that.
func (r *replicated) upTo(all ...*bridge) []change {
	r.t.Helper()
	var truth []change
	for _, resource := range r.resources {
		truth = append(truth, history(r.t, r.c, resource, resource, r.namespace)...)
	}
	eventually(r.t, 3*time.Minute, func() (err error) {
		for _, b := range all {
			if err = b.reached(truth); err == nil && b.metric("deltabridge_parked_events") > 0 {
				err = errors.New("events are parked")
			}
			if err == nil {
				return nil
			}
		}
		return err
	})
	return truth
}

// refused returns how many batches of fenced processes Kafka has refused, as the logs of its nodes say.
func (r *replicated) refused() (batches int) {
	r.t.Helper()
	for _, broker := range r.kafka {
		log, err := os.ReadFile(broker.LogFile())
		if err != nil {
			r.t.Fatal(err)
		}
		batches += bytes.Count(log, []byte("InvalidProducerEpochException"))
	}
	return batches
}

// judge requires that each destination has each revision once, in order, no other event twice, and no gap event.
func (r *replicated) judge(truth []change) {
	r.t.Helper()
	r.judgeKafka(truth)
	r.judgeStream(truth)
	r.judgeMirror(truth)
	all := [][]received{r.js[0].read("E2E")}
	for _, resource := range r.resources {
		all = append(all, readKafka(r.t, r.kafka[0].Addr(), r.topic(resource))...)
	}
	for _, e := range slices.Concat(all...) {
		if e.attributes["type"] == "dev.deltabridge.gap" {
			r.t.Errorf("a gap: %s %s", e.place, e.data)
		}
	}
}

// judgeKafka requires that the topics have each revision once, in order, and no other event twice.
func (r *replicated) judgeKafka(truth []change) {
	r.t.Helper()
	for _, resource := range r.resources {
		prefix := resource + "/"
		of := slices.DeleteFunc(slices.Clone(truth), func(c change) bool { return !strings.HasPrefix(c.subject, prefix) })
		records := readKafka(r.t, r.kafka[0].Addr(), r.topic(resource))
		judge(r.t, "Kafka: "+resource, of, prefix, records...)
		once(r.t, "Kafka: "+resource, records...)
	}
}

// judgeStream is judgeKafka for the stream that keeps everything.
func (r *replicated) judgeStream(truth []change) {
	r.t.Helper()
	events := r.js[0].read("E2E")
	judge(r.t, "JetStream", truth, "", events)
	once(r.t, "JetStream", events)
}

// judgeMirror is judgeKafka for all messages that the mirror ever stored. What the server could not publish again,
// because its leader changed, is counted: it can only be a revision that seems to be missing.
func (r *replicated) judgeMirror(truth []change) {
	r.t.Helper()
	last := r.js[0].lastSequence(mirrorStream)
	all := r.written.upTo(last)
	seen := map[string]bool{}
	for _, w := range all {
		seen[w.resourceVersion()] = true
	}
	published := slices.DeleteFunc(slices.Clone(truth), func(c change) bool { return !seen[c.rv] })
	judge(r.t, "the mirror", published, "", all)
	once(r.t, "the mirror", all)
	if missing := len(truth) - len(published); len(all)+missing != last {
		r.t.Errorf("the mirror has stored %d messages, %d were published again, and %d revisions are not among these",
			last, len(all), missing)
	}
	judgeFinal(r.t, "the mirror", truth, "", r.js[0].read(mirrorStream))
}

// written has all messages that a stream stored in their order, even if it holds only the last of each subject: the
// server publishes each again.
type written struct {
	t   *testing.T
	mu  sync.Mutex
	all []received
}

func (r *replicated) createMirror() *written {
	r.t.Helper()
	r.js[0].create(jetstream.StreamConfig{
		Name: mirrorStream, Subjects: []string{"mirror.>"}, Replicas: 3, MaxMsgsPerSubject: 1,
		AllowDirect: true, AllowMsgTTL: true, RePublish: &jetstream.RePublish{Destination: "written.>"},
	})
	conn, err := natsgo.Connect(r.js[0].url(), natsgo.Timeout(patience(natsgo.DefaultTimeout)))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(conn.Close)
	w := &written{t: r.t}
	subscription, err := conn.Subscribe("written.>", func(m *natsgo.Msg) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.all = append(w.all, fromNATS(m.Header, m.Data))
	})
	if err == nil {
		err = subscription.SetPendingLimits(-1, -1)
	}
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return w
}

// upTo returns the messages when there are so many, or no more come.
func (w *written) upTo(sequence int) []received {
	w.t.Helper()
	for before := -1; ; {
		w.mu.Lock()
		all := slices.Clone(w.all)
		w.mu.Unlock()
		if len(all) >= sequence || len(all) == before {
			return all
		}
		before = len(all)
		pause(w.t, time.Second)
	}
}

func (js *jetStream) lastSequence(stream string) int {
	js.t.Helper()
	api, closeConn := js.api()
	defer closeConn()
	return int(natsserver.Stream(js.t, api, stream).CachedInfo().State.LastSeq)
}
