package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltabridge/deltabridge/test/kafka"
)

// TestARestoredState: the state directory is restored from a backup, which has events that a broker had not accepted.
// What was sent since the backup is not sent again, and the last event of each object is its state.
func TestARestoredState(t *testing.T) {
	t.Parallel()
	c, js, k := sharedCluster(t), startJetStream(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace, dir := newNamespace(t, cs), t.TempDir()
	topic := "backup-" + namespace
	config := toBoth(namespace, js.url(), k.Addr(), topic)
	live := func(name string, updates int, deleted bool) {
		t.Helper()
		if err := oneLife(t.Context(), cs, namespace, name, updates, deleted); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(name string) {
		t.Helper()
		if err := cs.CoreV1().ConfigMaps(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	for _, name := range []string{"kept", "changed", "removed", "gone"} {
		live(name, 1, false)
	}
	upTo(t, b, c, namespace)
	js.stop()
	live("changed", 2, false) // waits for JetStream
	eventually(t, 20*time.Second, func() error {
		if n := b.metric("deltabridge_queue_events", "sink=jetstream"); n == 0 {
			return errors.New("no event waits for JetStream")
		}
		return nil
	})
	b.stop()
	state, backup := filepath.Join(dir, "state"), filepath.Join(t.TempDir(), "state")
	if err := os.CopyFS(backup, os.DirFS(state)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(backup, "spill-jetstream")); err != nil {
		t.Fatalf("the backup has no events that wait: %v", err)
	}

	js.start()
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	live("changed", 3, false)
	live("new", 0, false)
	live("short", 1, true)
	remove("removed")
	upTo(t, b, c, namespace)
	b.stop()

	if err := errors.Join(os.RemoveAll(state), os.CopyFS(state, os.DirFS(backup))); err != nil {
		t.Fatal(err)
	}
	remove("gone") // while no bridge runs
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	truth := upTo(t, b, c, namespace)
	if out, errs, err := runBridge(t, "resync", "--config", filepath.Join(dir, "bridge.yaml")); err != nil {
		t.Fatalf("bridge resync: %v: %s%s", err, out, errs)
	}
	b.stop()
	for broker, partitions := range map[string][][]received{
		"JetStream": {js.read("E2E")}, "Kafka": readKafka(t, k.Addr(), topic),
	} {
		ids, last, again := map[string]string{}, map[string]received{}, 0
		for _, partition := range partitions {
			for _, r := range partition {
				if !r.object() {
					continue
				}
				state := r.subject() + " " + r.resourceVersion()
				if known, repeated := ids[r.id()]; repeated && known != state {
					t.Errorf("%s: the id %s is that of %s and of %s", broker, r.id(), known, state)
				} else if repeated && r.attributes["operation"] != "restated" {
					again++
				}
				ids[r.id()], last[r.subject()] = state, r
			}
		}
		if again > 0 {
			t.Errorf("%s: %d events were sent again", broker, again)
		}
		final := map[string]change{}
		for _, change := range truth {
			final[change.subject] = change
		}
		for subject, want := range final {
			r := last[subject]
			if r.resourceVersion() != want.rv || (r.attributes["operation"] == "deleted") != want.deleted {
				t.Errorf("%s: the last event of %s is %q at %s, want %+v",
					broker, subject, r.attributes["operation"], r.resourceVersion(), want)
			}
		}
	}
}
