package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/kafka"
)

// TestARestoredEtcd: etcd comes back from an older copy behind the same address, while the bridge runs and while it
// does not.
func TestARestoredEtcd(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running=%t", running), func(t *testing.T) {
			var data string
			c := cluster.ForTest(t, func(o *cluster.Options) { data = filepath.Join(o.Dir, "etcd") })
			js, k := startJetStream(t), kafka.ForTest(t)
			cs := clientset(t, c)
			namespace := newNamespace(t, cs)
			topic := fmt.Sprintf("restored-%t", running)
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
			upTo(t, b, c, namespace)
			before := 0.0 // lists after which the watch went on
			if running {
				before = b.metric("deltabridge_informer_relists_total", "resource=configmaps")
			} else {
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
				if refused != 1 || relists <= before || queued > 0 {
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
			judgeRestored(t, "JetStream", js.read("E2E"))
			judgeRestored(t, "Kafka", readKafka(t, k.Addr(), topic)...)
			if !strings.Contains(b.log.String(), "restored from a backup") {
				t.Error("the log does not say so")
			}
		})
	}
}

// judgeRestored looks at the last event of each object: what the older copy does not have is deleted, what it has otherwise
// is told as it is.
func judgeRestored(t *testing.T, broker string, partitions ...[]received) {
	t.Helper()
	last, told, gaps := map[string]string{}, []string(nil), 0
	for _, partition := range partitions {
		for _, r := range partition {
			if r.object() {
				last[r.attributes["name"]] = r.attributes["operation"]
			}
			if r.attributes["type"] == "dev.deltabridge.gap" {
				gaps++
			}
			told = append(told, r.attributes["type"]+" "+r.attributes["name"]+" "+r.id())
		}
	}
	want := map[string]string{"lost": "deleted", "after": "added", "kept": "added", "changed": "updated"}
	for name, operation := range want {
		if last[name] != operation {
			t.Errorf("%s: the last event of %q is %q, want %q", broker, name, last[name], operation)
		}
	}
	if gaps == 0 {
		t.Errorf("%s: no gap event", broker)
	}
	if t.Failed() {
		t.Logf("%s was told:\n%s", broker, strings.Join(told, "\n"))
	}
}
