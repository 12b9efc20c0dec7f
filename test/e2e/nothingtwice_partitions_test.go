package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

// withoutALeader: a broker is down over two restarts of the bridge, so that one partition has no leader
// and others have too few replicas. Before the second restart, their events have waited for a minute, and a topic was
// created a second ago. When the broker is back, a process from before goes on, and finds that it must not write.
func (r *replicated) withoutALeader() {
	t, dir, newDir := r.t, r.t.TempDir(), r.t.TempDir()
	r.resources = append(slices.Clone(r.resources), "resourcequotas")
	addr := r.kafka[0].Addr()
	kafka.CreateReplicated(t, addr, r.topic("configmaps"), 3, 1, map[string]string{"min.insync.replicas": "1"})
	kafka.CreateReplicated(t, addr, r.topic("limitranges"), 3, 2, nil)
	old := startBridgeIn(t, dir, r.c.Kubeconfig(), r.config())
	old.waitReady()
	changes := r.startChanges("configmaps", "limitranges")
	old.waitAcknowledged(100)
	old.signal(syscall.SIGSTOP)
	copyState(t, dir, newDir)
	sent := r.lastRecords("configmaps", "limitranges")
	if err := r.kafka[2].Kill(); err != nil {
		t.Fatal(err)
	}
	b := startBridgeIn(t, newDir, r.c.Kubeconfig(), r.config())
	b.waitAcknowledged(50)
	pause(t, scale.Of(3*time.Second, time.Minute))
	waiting(t, b)
	late := r.startChanges("resourcequotas")
	eventually(t, 30*time.Second, func() error {
		if !kafka.HasTopic(t, addr, r.topic("resourcequotas")) {
			return errors.New("the topic does not exist")
		}
		return nil
	})
	pause(t, time.Second)
	b.kill()
	b = startBridgeIn(t, newDir, r.c.Kubeconfig(), r.config())
	b.waitAcknowledged(50)
	pause(t, 3*time.Second)
	waiting(t, b)
	if err := r.kafka[2].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	old.signal(syscall.SIGCONT)
	pause(t, scale.Of(5*time.Second, 30*time.Second))
	old.waitRival()
	changes.stop()
	late.stop()
	truth := r.upTo(b)
	old.kill()
	b.stop()
	r.judgeKafka(truth)
	r.judgeMirror(truth)
	for _, record := range sent { // the old process stops at the first partition that is fenced
		if err := kafka.WriteLate(t.Context(), addr, record); !errors.Is(err, kerr.InvalidProducerEpoch) {
			t.Errorf("topic %s, partition %d, a late batch: %v", record.Topic, record.Partition, err)
		}
	}
}

// lastRecords returns the last record of each partition of the resources' topics.
func (r *replicated) lastRecords(resources ...string) (last []*kgo.Record) {
	r.t.Helper()
	for _, resource := range resources {
		for p, records := range kafka.ReadAll(r.t, r.kafka[0].Addr(), r.topic(resource)) {
			if len(records) == 0 {
				r.t.Fatalf("partition %d of %s is empty", p, r.topic(resource))
			}
			last = append(last, records[len(records)-1])
		}
	}
	return last
}

// waiting requires that the partitions that accept nothing hold events back.
func waiting(t *testing.T, b *bridge) {
	t.Helper()
	eventually(t, 10*time.Second, func() error {
		if n := b.metric("deltabridge_parked_events") + b.metric("deltabridge_queue_events"); n == 0 {
			return errors.New("no event waits for the partitions")
		}
		return nil
	})
}

// TestNothingTwiceAfterAChange: something about the destination or the configuration changes between a kill and the
// next start.
func TestNothingTwiceAfterAChange(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(*testing.T){
		"records were deleted":   afterDeletedRecords,
		"partitions were added":  afterAddedPartitions,
		"the topic is compacted": afterCompaction,
		"another filter":         afterAnotherFilter,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); run(t) })
	}
}

// crash is a bridge that was killed under random changes, which go on. It writes to a JetStream that forgets ids at
// once, and to Kafka.
type crash struct {
	t                              *testing.T
	js                             *jetStream
	addr, topic, namespace, prefix string
	dir, config                    string
	changes                        *randomChanges
}

// sentBeforeACrash is the least number of events that Kafka has acknowledged when the bridge is killed.
const sentBeforeACrash = 200

// newCrash runs a bridge and kills it. The topic is created with the configuration given, if there is one, and then has
// tombstones. The sinks have a filter.
func newCrash(t *testing.T, topic map[string]string, filter string) *crash {
	t.Helper()
	c, js, k := sharedCluster(t), startJetStream(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	x := &crash{
		t: t, js: js, addr: k.Addr(), topic: "crash-" + namespace, namespace: namespace, dir: t.TempDir(),
		prefix: "configmaps/" + namespace + "/",
	}
	x.config = strings.ReplaceAll(toBoth(namespace, js.url(), x.addr, x.topic), "]}}\n", "], duplicateWindow: 100ms}}\n")
	if topic != nil {
		kafka.CreateTopic(t, x.addr, x.topic, 3, topic)
		x.config = strings.ReplaceAll(x.config, "createTopics:", "tombstones: true, createTopics:")
	}
	x.setFilter(filter)
	b := startBridgeIn(t, x.dir, c.Kubeconfig(), x.config)
	b.waitReady()
	x.changes = startChanges(t, cs, namespace, 60, scale.Of(40, 75))
	eventually(t, time.Minute, func() error { return b.acknowledged("kafka", sentBeforeACrash) })
	pause(t, time.Duration(rand.IntN(1500))*time.Millisecond)
	b.kill()
	return x
}

// setFilter sets the condition of both sinks.
func (x *crash) setFilter(condition string) {
	for _, sink := range []string{"jetstream", "kafka"} {
		name := "  - name: " + sink + "\n"
		before, after, _ := strings.Cut(x.config, name)
		if strings.HasPrefix(after, "    filters:") {
			_, after, _ = strings.Cut(after, "\n")
		}
		x.config = fmt.Sprintf("%s%s    filters: [{when: %q}]\n%s", before, name, condition, after)
	}
}

// recover starts the bridge again, and gives etcd's history and the topic's records when all has arrived.
func (x *crash) recover() (truth []change, records [][]received) {
	x.t.Helper()
	c := sharedCluster(x.t)
	b := startBridgeIn(x.t, x.dir, c.Kubeconfig(), x.config)
	b.waitReady()
	pause(x.t, 2*time.Second)
	x.changes.stop()
	truth = upTo(x.t, b, c, x.namespace)
	b.stop()
	return truth, readKafka(x.t, x.addr, x.topic)
}

func (x *crash) judgeStream(truth []change) {
	x.t.Helper()
	events := x.js.read("E2E")
	judge(x.t, "JetStream", truth, x.prefix, events)
	once(x.t, "JetStream", events)
}

const everything = "true"

// What was deleted can't be found, and may come again.
func afterDeletedRecords(t *testing.T) {
	x := newCrash(t, nil, everything)
	before := readKafka(t, x.addr, x.topic)
	kafka.Purge(t, x.addr, x.topic)
	truth, after := x.recover()
	x.judgeStream(truth)
	once(t, "Kafka", before...)
	once(t, "Kafka", after...)
	for p := range after {
		deleted := map[string]bool{}
		for _, r := range before[p] {
			deleted[r.id()+string(r.data)] = true
		}
		again := func(r received) bool { return deleted[r.id()+string(r.data)] }
		after[p] = slices.Concat(before[p], slices.DeleteFunc(after[p], again))
	}
	judge(t, "Kafka", truth, x.prefix, after...)
}

// Objects have moved to other partitions, so only the time of an event says what its order is.
func afterAddedPartitions(t *testing.T) {
	x := newCrash(t, nil, everything)
	kafka.SetPartitions(t, x.addr, x.topic, 7)
	truth, partitions := x.recover()
	x.judgeStream(truth)
	records := slices.Concat(partitions...)
	slices.SortStableFunc(records, func(a, b received) int { return made(t, a).Compare(made(t, b)) })
	judge(t, "Kafka", truth, x.prefix, records)
	once(t, "Kafka", records)
}

// Most of what was sent is gone, and so are the objects of some tombstones.
func afterCompaction(t *testing.T) {
	x := newCrash(t, map[string]string{
		"cleanup.policy": "compact", "segment.ms": "500", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0",
	}, everything)
	eventually(t, time.Minute, func() error {
		if n := len(slices.Concat(readKafka(t, x.addr, x.topic)...)); n > sentBeforeACrash/2 {
			return fmt.Errorf("%d records are left", n)
		}
		return nil
	})
	kafka.SetTopicConfig(t, x.addr, x.topic, "cleanup.policy", "delete") // what comes now is not removed before it is read
	truth, records := x.recover()
	x.judgeStream(truth)
	once(t, "Kafka", records...)
	judgeStates(t, "Kafka", truth, x.prefix, func(string) bool { return true }, records...)
}

// Objects enter and leave, and what was sent before is not sent again.
func afterAnotherFilter(t *testing.T) {
	x := newCrash(t, nil, "object.metadata.name < 'c-4'")
	x.setFilter("object.metadata.name >= 'c-2'")
	truth, records := x.recover()
	passes := func(subject string) bool { return subject >= x.prefix+"c-2" }
	for broker, partitions := range map[string][][]received{"Kafka": records, "JetStream": {x.js.read("E2E")}} {
		once(t, broker, partitions...)
		judgeStates(t, broker, truth, x.prefix, passes, partitions...)
	}
}

// judgeStates is judgeFinal where the broker need not know of an object that is gone: one that exists and passes has its
// last state, and all others their deletion, or no event.
func judgeStates(
	t *testing.T,
	broker string,
	truth []change,
	prefix string,
	passes func(subject string) bool,
	partitions ...[]received,
) {
	t.Helper()
	final := map[string]change{}
	for _, c := range truth {
		final[c.subject] = c
	}
	exists := func(c change) bool { return passes(c.subject) && !final[c.subject].deleted }
	existing := slices.DeleteFunc(slices.Clone(truth), func(c change) bool { return !exists(c) })
	judgeFinal(t, broker, existing, prefix, partitions...)
	last, _ := lastEvents(t, broker, prefix, partitions)
	for subject, r := range last {
		if !exists(final[subject]) && r.attributes["operation"] != "deleted" {
			t.Errorf("%s: the last event of %s is %q", broker, subject, r.attributes["operation"])
		}
	}
}
