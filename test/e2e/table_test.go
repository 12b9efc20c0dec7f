package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

// TestTableAndChanges: consumers that begin with a compacted topic, and go on with a topic from which the first changes
// were deleted, start under load while the bridge is killed, while it is down, and while the sink of the table is behind.
// What each prints is a state of each object, and then each of its later changes once.
func TestTableAndChanges(t *testing.T) {
	t.Parallel()
	c, k := sharedCluster(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	table, all, dir := "table-"+namespace, "changes-"+namespace, t.TempDir()
	for topic, config := range map[string]map[string]string{
		table: {"cleanup.policy": "compact", "segment.ms": "500", "min.cleanable.dirty.ratio": "0.01"}, all: nil,
	} {
		kafka.CreateTopic(t, k.Addr(), topic, 3, config)
	}
	config := fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [%s]}]
sinks:
  - {name: table, progress: 1s, kafka: {brokers: [%q], topic: %s, tombstones: true}}
  - {name: changes, progress: 1s, kafka: {brokers: [%q], topic: %s}}
`, namespace, k.Addr(), table, k.Addr(), all)
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	changes := startChanges(t, cs, namespace, 60, scale.Of(40, 75))
	pause(t, 5*time.Second)
	kafka.Purge(t, k.Addr(), all)
	isCompacted(t, k.Addr(), table)

	binary := goExample(t, "table")
	var consumers []*exampleConsumer
	start := func(when string) {
		consumer := &exampleConsumer{
			t: t, name: when, args: []string{binary, "-broker", k.Addr(), "-table", table, "-changes", all},
		}
		consumer.start()
		t.Cleanup(func() { _ = consumer.cmd.Process.Kill() }) // if it has ended, that is as well
		consumers = append(consumers, consumer)
	}
	for range scale.Of(3, 15) {
		start("before a kill")
		pause(t, time.Duration(rand.IntN(500))*time.Millisecond)
		b.kill()
		start("after a kill")
		pause(t, time.Duration(rand.IntN(1000))*time.Millisecond)
		b = startBridgeIn(t, dir, c.Kubeconfig(), config)
		b.waitReady()
		pause(t, 2*time.Second)
	}
	command := func(name string) {
		out, errs, err := runBridge(t, name, "table", "--config", filepath.Join(dir, "bridge.yaml"))
		if err != nil {
			t.Fatalf("%v: %s%s", err, out, errs)
		}
	}
	command("pause")
	sent := b.metric("deltabridge_events_acknowledged_total", "sink=changes")
	eventually(t, time.Minute, func() error {
		if b.metric("deltabridge_queue_events", "sink=table") == 0 ||
			b.metric("deltabridge_events_acknowledged_total", "sink=changes") < sent+20 {
			return errors.New("the table is not behind")
		}
		return nil
	})
	start("while the table is behind")
	pause(t, 4*time.Second)
	if last := consumers[len(consumers)-1]; last.out.String() != "" && !hasNoLeader(last) {
		t.Errorf("a table is complete although it is behind:\n%s", tail(last.out.String(), 10))
	}
	command("resume")
	for _, consumer := range consumers {
		eventually(t, 2*time.Minute, func() error {
			if out := consumer.out.String(); strings.Count(out, "\n")-strings.Count(out, " exists ") < 60 {
				return errors.New("too few changes to tell")
			}
			return nil
		})
	}
	changes.stop()
	truth := upTo(t, b, c, namespace)
	if consumers = slices.DeleteFunc(consumers, hasNoLeader); len(consumers) == 0 {
		t.Fatal("no consumer is left")
	}
	for _, consumer := range consumers {
		eventually(t, 2*time.Minute, func() error { return isTableAndChanges(t, consumer, truth) })
	}
	outrun(t, consumers[0], func() {
		if err := churn(t.Context(), cs, namespace, "late", 20, 5); err != nil {
			t.Fatal(err)
		}
		upTo(t, b, c, namespace)
		kafka.Purge(t, k.Addr(), all)
	})
	for _, consumer := range consumers[1:] {
		consumer.end(syscall.SIGTERM)
	}
}

// hasNoLeader reports whether a consumer has ended because a partition had no leader: the broker stood still.
func hasNoLeader(c *exampleConsumer) bool { return strings.Contains(c.out.String(), "LEADER") }

// isCompacted waits until most records of a topic are removed.
func isCompacted(t *testing.T, addr, topic string) {
	t.Helper()
	eventually(t, 90*time.Second, func() error {
		for p, records := range kafka.ReadAll(t, addr, topic) {
			if len(records) == 0 || int64(len(records)) > records[len(records)-1].Offset/2 {
				return fmt.Errorf("%d records are left in partition %d", len(records), p)
			}
		}
		return nil
	})
}

// isTableAndChanges compares what a consumer prints with etcd's history.
func isTableAndChanges(t *testing.T, consumer *exampleConsumer, truth []change) error {
	t.Helper()
	want := map[string][]string{}
	for _, c := range truth {
		want[c.subject] = append(want[c.subject], c.rv)
	}
	deleted := map[string]bool{}
	for _, c := range truth {
		deleted[c.rv] = c.deleted
	}
	exists, got := map[string]string{}, map[string][]string{}
	changes := 0
	for line := range strings.Lines(consumer.out.String()) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return fmt.Errorf("%s: it prints %q", consumer.name, line)
		}
		version, operation, subject := fields[0], fields[1], fields[2]
		if want[subject] == nil {
			t.Fatalf("%s: there is no such object: %s", consumer.name, line)
		}
		if operation == "exists" {
			exists[subject] = version
			continue
		}
		if deleted[version] != (operation == "deleted") {
			t.Fatalf("%s: %s", consumer.name, line)
		}
		got[subject] = append(got[subject], version)
		changes++
	}
	for subject, versions := range want {
		from := len(versions) - len(got[subject])
		if from < 0 || !slices.Equal(versions[from:], got[subject]) {
			return fmt.Errorf("%s: %s has %v, then %v; want %v", consumer.name, subject, exists[subject], got[subject], versions)
		}
		before := "" // the state before the changes, if it exists
		if from > 0 && !deleted[versions[from-1]] {
			before = versions[from-1]
		}
		if exists[subject] != before {
			return fmt.Errorf("%s: %s is %q before its changes, want %q", consumer.name, subject, exists[subject], before)
		}
	}
	if len(exists) < 10 || changes < 50 {
		return errors.New("too few objects and changes to tell")
	}
	t.Logf("%s: %d objects, %d changes", consumer.name, len(exists), changes)
	return nil
}

// outrun expects a consumer to end if changes are deleted before it has read them.
func outrun(t *testing.T, consumer *exampleConsumer, purge func()) {
	t.Helper()
	if err := consumer.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	purge()
	if err := consumer.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-consumer.ended:
		if out := consumer.out.String(); err == nil || !strings.Contains(out, "start again") {
			t.Errorf("it ended with %v:\n%s", err, tail(out, 10))
		}
	case <-time.After(patience(30 * time.Second)):
		t.Errorf("it goes on although changes are missing:\n%s", tail(consumer.out.String(), 10))
	}
}
