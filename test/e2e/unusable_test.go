package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/test/kafka"
)

// TestUnusableCheckpoints: the checkpoint is damaged, or of another cluster. It is renamed, and everything that exists is sent as an initial list, once; what was deleted since is not known any more, and what only
// another cluster has is not sent as deleted.
func TestUnusableCheckpoints(t *testing.T) {
	t.Parallel()
	c, k := sharedCluster(t), kafka.ForTest(t)
	cs := clientset(t, c)
	for name, spoil := range map[string]func(t *testing.T, file, namespace string){
		"corrupt":       damageFile,
		"other-cluster": checkpointOfAnotherCluster,
	} {
		t.Run(name, func(t *testing.T) {
			namespace, dir := newNamespace(t, cs), t.TempDir()
			topic := "unusable-" + namespace
			config := fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [%s]}]
sinks: [{name: kafka, kafka: {brokers: [%q], topic: %q, createTopics: {partitions: 1, replicationFactor: 1}}}]
`, namespace, k.Addr(), topic)
			b := startBridgeIn(t, dir, c.Kubeconfig(), config)
			b.waitReady()
			const objects = 10
			for n := range objects + 1 {
				if err := oneLife(t.Context(), cs, namespace, fmt.Sprintf("c-%d", n), 1, false); err != nil {
					t.Fatal(err)
				}
			}
			upTo(t, b, c, namespace)
			b.stop()
			if err := cs.CoreV1().
				ConfigMaps(namespace).
				Delete(t.Context(), fmt.Sprintf("c-%d", objects), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			held := recordsOf(t, k, topic)
			file := filepath.Join(dir, "state", "checkpoint.db")
			spoil(t, file, namespace)

			b = startBridgeIn(t, dir, c.Kubeconfig(), config)
			b.waitReady()
			if err := oneLife(t.Context(), cs, namespace, "after", 0, false); err != nil {
				t.Fatal(err)
			}
			upTo(t, b, c, namespace)
			b.kill() // the next process has to recognize what this one has sent
			sent := readKafka(t, k.Addr(), topic)[0][held:]
			once(t, "Kafka", sent)
			added, synced := 0, 0
			for n, r := range sent {
				switch {
				case r.attributes["type"] == "dev.deltabridge.synced":
					if synced++; n != objects {
						t.Errorf("the initial list ends after %d events, want %d", n, objects)
					}
				case r.attributes["operation"] == "added" && r.attributes["name"] != fmt.Sprintf("c-%d", objects):
					added++
				default:
					t.Errorf("%s %s was sent", r.attributes["type"], r.subject())
				}
			}
			if added != objects+1 || synced != 1 {
				t.Errorf("%d objects and %d ends of a list were sent, want %d and 1", added, synced, objects+1)
			}
			if kept, err := filepath.Glob(file + "." + name + "*"); err != nil || len(kept) != 1 {
				t.Errorf("%v, %v: the checkpoint that could not be used should be kept", kept, err)
			}
			b = startBridgeIn(t, dir, c.Kubeconfig(), config) // and the new one is used
			b.waitReady()
			pause(t, time.Second)
			b.stop()
			if n := recordsOf(t, k, topic) - held - len(sent); n != 0 {
				t.Errorf("%d events were sent after another restart", n)
			}
		})
	}
}

func damageFile(t *testing.T, file, _ string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	copy(data, bytes.Repeat([]byte("damage"), 2000)) // over both of its heads
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// checkpointOfAnotherCluster puts one in the place of the file in which the sink knows an object that this cluster does
// not have.
func checkpointOfAnotherCluster(t *testing.T, file, namespace string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	store, err := checkpoint.Open(checkpoint.Options{Path: filepath.Dir(file), ClusterName: "e2e"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.BeginCluster("11111111-2222-3333-4444-555555555555"); err != nil {
		t.Fatal(err)
	}
	ghost, err := object.New(
		fmt.Appendf(
			nil,
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"ghost","namespace":%q,"uid":"u-1","resourceVersion":"5"}}`,
			namespace,
		),
	)
	if err != nil {
		t.Fatal(err)
	}
	err = store.Commit([]ledger.Update{{State: ledger.State{Source: ledger.Source{
		Name:      "configmaps in " + namespace,
		Resource:  schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		Namespace: namespace,
	}, ResourceVersion: "5", Sinks: map[string]string{"kafka": "5"}}, Upserts: []*object.Object{ghost}}}, map[string]string{"kafka": "null"}, nil)
	if err != nil {
		t.Fatal(err)
	}
}
