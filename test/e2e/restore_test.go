package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

// TestARestoredEtcd: etcd comes back from an older copy behind the same address, while the bridge runs, and after it
// was stopped or killed. What Kafka has from before says nothing about the resourceVersions of the copy.
func TestARestoredEtcd(t *testing.T) {
	t.Parallel()
	for _, process := range []string{"killed", "running", "stopped"}[:scale.Of(1, 3)] {
		t.Run(process, func(t *testing.T) {
			var data string
			c := cluster.ForTest(t, func(o *cluster.Options) { data = filepath.Join(o.Dir, "etcd") })
			js, k := startJetStream(t), kafka.ForTest(t)
			cs := clientset(t, c)
			namespace := newNamespace(t, cs)
			topic := "restored-" + process
			config := toBoth(namespace, js.url(), k.Addr(), topic)
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
			sent := upTo(t, b, c, namespace)
			before := 0.0 // lists after which the watch went on
			switch process {
			case "running":
				before = b.metric("deltabridge_informer_relists_total", "resource=configmaps")
			case "stopped":
				b.stop()
			case "killed": // with changes that the checkpoint does not have
				b.waitCommitted(sent, "jetstream", "kafka")
				if err := oneLife(t.Context(), cs, namespace, "changed", 50, false); err != nil {
					t.Fatal(err)
				}
				b.kill()
			}
			stopAll()
			if err := os.RemoveAll(data); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(data, os.DirFS(backup)); err != nil {
				t.Fatal(err)
			}
			startAll()
			if process != "running" {
				b = startBridgeIn(t, dir, c.Kubeconfig(), config)
			}
			if err := oneLife(t.Context(), cs, namespace, "after", 0, false); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			eventually(t, time.Minute, func() error {
				refused := strings.Contains(b.log.String(), "was etcd restored from a backup?")
				relists := b.metric("deltabridge_informer_relists_total", "resource=configmaps")
				queued := b.metric("deltabridge_queue_events")
				if !refused || relists <= before || queued > 0 {
					return fmt.Errorf("refused: %t, lists: %.0f, %.0f events wait", refused, relists, queued)
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
			judgeRestored(t, "JetStream", js.read("E2E"))
			judgeRestored(t, "Kafka", readKafka(t, k.Addr(), topic)...)
			if !strings.Contains(b.log.String(), "restored from a backup") {
				t.Error("the log does not say so")
			}
		})
	}
}

// judgeRestored looks at the last event of each object: what the older copy does not have is deleted, what it has
// otherwise is sent as it is. The gap event comes before all of that.
func judgeRestored(t *testing.T, broker string, partitions ...[]received) {
	t.Helper()
	last, sent := map[string]received{}, []string(nil)
	var gap *received
	for _, partition := range partitions {
		for _, r := range partition {
			if r.object() {
				last[r.attributes["name"]] = r
			}
			if r.attributes["type"] == "dev.deltabridge.gap" && wentBack(t, r) {
				gap = &r
			}
			sent = append(sent, r.attributes["time"]+" "+r.attributes["type"]+" "+r.attributes["name"]+" "+r.id())
		}
	}
	want := map[string]string{"lost": "deleted", "after": "added", "kept": "added", "changed": "updated"}
	for name, operation := range want {
		if got := last[name].attributes["operation"]; got != operation {
			t.Errorf("%s: the last event of %q is %q, want %q", broker, name, got, operation)
		}
	}
	if gap == nil {
		t.Errorf("%s: no gap event says that the resourceVersion went back", broker)
	} else {
		for _, name := range []string{"lost", "after", "changed"} {
			if !made(t, *gap).Before(made(t, last[name])) || broker == "JetStream" && !follows(partitions[0], *gap, last[name]) {
				t.Errorf("%s: the event of %q comes before the gap event", broker, name)
			}
		}
	}
	if t.Failed() {
		t.Logf("%s was sent:\n%s", broker, strings.Join(sent, "\n"))
	}
}

// wentBack reports whether a gap event is that of a history that began again at an older resourceVersion.
func wentBack(t *testing.T, r received) bool {
	t.Helper()
	var g gap
	if err := json.Unmarshal(r.data, &g); err != nil {
		t.Fatal(err)
	}
	return g.From != "" && g.To != "" && revision(t, g.To) < revision(t, g.From)
}

// made is when the bridge made an event: in the order in which it delivers them, as control events wait for what is
// before them, and what follows waits for control events.
func made(t *testing.T, r received) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, r.attributes["time"])
	if err != nil {
		t.Fatalf("the time of %s: %v", r.id(), err)
	}
	return at
}

// follows reports whether an event is behind another in one sequence.
func follows(events []received, before, r received) bool {
	at := func(of received) int {
		return slices.IndexFunc(events, func(e received) bool {
			return e.id() == of.id() && e.attributes["time"] == of.attributes["time"]
		})
	}
	return at(before) < at(r)
}
