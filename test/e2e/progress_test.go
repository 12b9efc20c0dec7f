package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

// oldestProgress is how old the knowledge of a progress event may be: the API server sends bookmarks once a minute.
func oldestProgress() time.Duration { return scale.Of(3*time.Minute, 70*time.Second) }

// TestProgress: the bridge is killed several times under random changes, and then nothing changes for a while. No
// progress event is ahead of its partition or stream, and the last ones cover everything. A consumer that merges the
// partitions with them prints etcd's history.
func TestProgress(t *testing.T) {
	t.Parallel()
	c, js, k := sharedCluster(t), startJetStream(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	topic, dir := "progress-"+namespace, t.TempDir()
	config := toBoth(namespace, js.url(), k.Addr(), topic)
	for _, kind := range []string{"nats", "kafka"} {
		config = strings.Replace(config, "    "+kind+":", "    progress: 1s\n    "+kind+":", 1)
	}
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	eventually(t, 30*time.Second, func() error {
		if !kafka.HasTopic(t, k.Addr(), topic) {
			return errors.New("the topic does not exist")
		}
		return nil
	})
	consumer := &exampleConsumer{
		t: t, name: "ordered", args: []string{goExample(t, "ordered"), "-broker", k.Addr(), "-topic", topic},
	}
	consumer.start()
	t.Cleanup(func() { _ = consumer.cmd.Process.Kill() }) // if it has ended, that is as well
	changes := startChanges(t, cs, namespace, 60, scale.Of(40, 75))
	for range scale.Of(3, 20) {
		pause(t, 2*time.Second+time.Duration(rand.IntN(1500))*time.Millisecond)
		b.kill()
		b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	}
	b.waitReady()
	pause(t, 3*time.Second)
	changes.stop()
	truth := upTo(t, b, c, namespace)
	newNamespace(t, cs) // so that there is a later revision
	idle := time.Now()
	pause(t, scale.Of(3*time.Second, 75*time.Second))
	all := func() map[string][][]received {
		return map[string][][]received{"JetStream": {js.read("E2E")}, "Kafka": readKafka(t, k.Addr(), topic)}
	}
	eventually(t, 5*time.Second, func() error {
		for broker, partitions := range all() {
			if err := coversAll(t, broker, truth, partitions); err != nil {
				return err
			}
		}
		return nil
	})
	b.stop()

	prefix := "configmaps/" + namespace + "/"
	for broker, partitions := range all() {
		judgeProgress(t, broker, truth, idle, partitions)
		for n := range partitions { // each partition has the same progress events
			partitions[n] = slices.DeleteFunc(partitions[n], func(r received) bool { return !r.object() })
		}
		judge(t, broker, truth, prefix, partitions...)
		once(t, broker, partitions...)
	}
	eventually(t, 30*time.Second, func() error { return inOrder(consumer.out.String(), truth) })
	consumer.end(syscall.SIGTERM)
}

// coversAll requires some progress events in each partition, of which the last one covers all changes.
func coversAll(t *testing.T, broker string, truth []change, partitions [][]received) error {
	t.Helper()
	end := revision(t, truth[len(truth)-1].rv)
	for n, partition := range partitions {
		marks, last := 0, event.ProgressInfo{ResourceVersion: "0"}
		for _, r := range partition {
			if r.attributes["type"] != "dev.deltabridge.progress" {
				continue
			}
			if err := json.Unmarshal(r.data, &last); err != nil {
				return err
			}
			marks++
		}
		upTo := revision(t, last.ResourceVersion)
		if marks < 5 || upTo < end {
			return fmt.Errorf("%s, partition %d: %d progress events, the last up to %d of %d", broker, n, marks, upTo, end)
		}
		if scale.Long() && upTo == end {
			return fmt.Errorf("%s, partition %d: progress stays at %d although there were later revisions", broker, n, end)
		}
		t.Logf("%s, partition %d: %d records, %d progress events", broker, n, len(partition), marks)
	}
	return nil
}

// judgeProgress requires of each progress event that its partition has everything before it that belongs there. idle is
// the time from which nothing has changed.
func judgeProgress(t *testing.T, broker string, truth []change, idle time.Time, partitions [][]received) {
	t.Helper()
	home := map[string]int{} // the partition of an object
	for n, partition := range partitions {
		for _, r := range partition {
			if r.object() {
				home[r.subject()] = n
			}
		}
	}
	for n, partition := range partitions {
		has, previous := map[string]bool{}, time.Time{}
		var last event.ProgressInfo
		for _, r := range partition {
			if r.attributes["type"] != "dev.deltabridge.progress" {
				has[r.resourceVersion()] = true
				continue
			}
			if err := json.Unmarshal(r.data, &last); err != nil || last.Resource != "configmaps" {
				t.Fatalf("%s: %s, %v", broker, r.data, err)
			}
			at, upTo := made(t, r), revision(t, last.ResourceVersion)
			for _, c := range truth {
				if home[c.subject] == n && revision(t, c.rv) <= upTo && !has[c.rv] {
					t.Fatalf("%s, partition %d: progress up to %d, but %s@%s is not there", broker, n, upTo, c.subject, c.rv)
				}
			}
			if age := at.Sub(last.AsOf); age < 0 || age > oldestProgress() {
				t.Errorf("%s, partition %d: progress is %s old", broker, n, age)
			}
			if pause := at.Sub(previous); previous.After(idle) && pause > scale.Of(time.Minute, 3*time.Second) {
				t.Errorf("%s, partition %d: no progress event for %s", broker, n, pause)
			}
			previous = at
		}
	}
}

// inOrder compares the lines of a consumer with etcd's history.
func inOrder(lines string, truth []change) error {
	printed := strings.Split(strings.TrimSpace(lines), "\n")
	for n, c := range truth {
		if n >= len(printed) {
			return fmt.Errorf("%d of %d changes are printed", len(printed), len(truth))
		}
		if fields := strings.Fields(printed[n]); len(fields) != 3 || fields[0] != c.rv || fields[2] != c.subject {
			return fmt.Errorf("line %d is %q, want %s of %s", n, printed[n], c.rv, c.subject)
		}
	}
	if len(printed) > len(truth) {
		return fmt.Errorf("%d lines, but %d changes", len(printed), len(truth))
	}
	return nil
}
