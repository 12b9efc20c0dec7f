package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/kafka"
)

func createConfigMap(t *testing.T, cs kubernetes.Interface, namespace, name string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := cs.CoreV1().ConfigMaps(namespace).Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func kubeSystemUID(t *testing.T, cs kubernetes.Interface) string {
	t.Helper()
	ns, err := cs.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(ns.UID)
}

// TestTwoClustersUnderOneName: a second cluster that writes under the name of the first is refused by both brokers and
// writes nothing, until the name is handed over; then it is the first that is refused.
func TestTwoClustersUnderOneName(t *testing.T) {
	t.Parallel()
	first, second, js, k := sharedCluster(t), cluster.ForTest(t), startJetStream(t), kafka.ForTest(t)
	csFirst, csSecond := clientset(t, first), clientset(t, second)
	namespace := newNamespace(t, csFirst)
	created.Store(namespace, int64(1)) // in both clusters
	if _, err := csSecond.CoreV1().
		Namespaces().
		Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	topic := "names-" + namespace
	config := toBoth(namespace, js.url(), k.Addr(), topic)
	uids := func() string { // of the clusters whose events there are, in each destination
		found := map[string]bool{}
		for _, partition := range append(readKafka(t, k.Addr(), topic), js.read("E2E")) {
			for _, r := range partition {
				found[r.attributes["clusteruid"]] = true
			}
		}
		var all []string
		for uid, name := range map[string]string{kubeSystemUID(t, csFirst): "first", kubeSystemUID(t, csSecond): "second", "": "unknown"} {
			if found[uid] {
				all = append(all, name)
			}
		}
		return strings.Join(all, " ")
	}
	createConfigMap(t, csFirst, namespace, "one")
	dirFirst, dirSecond := t.TempDir(), t.TempDir()
	b := startBridgeIn(t, dirFirst, first.Kubeconfig(), config)
	b.waitReady()
	eventually(t, 20*time.Second, func() error { return b.reached(configMapHistory(t, first, namespace)) })

	createConfigMap(t, csSecond, namespace, "two")
	other := startBridgeIn(t, dirSecond, second.Kubeconfig(), config)
	refused := func(b *bridge) error {
		err := b.ready()
		if err == nil {
			return errors.New("it is ready")
		}
		for _, sink := range []string{"--sink jetstream", "--sink kafka"} {
			if text := b.log.String(); !strings.Contains(text, "bridge claim") || !strings.Contains(text, sink) {
				return fmt.Errorf("the log does not name the command for %q", sink)
			}
		}
		return nil
	}
	eventually(t, 20*time.Second, func() error { return refused(other) })
	if got := uids(); got != "first" {
		t.Errorf("there are events of %q", got)
	}
	b.stop()

	ctx, cancel := context.WithTimeout(t.Context(), patience(time.Minute))
	defer cancel()
	out, err := exec.CommandContext(ctx, bridgeBinary, "claim", "--config", filepath.Join(dirSecond, "bridge.yaml")).
		CombinedOutput()
	if err != nil || strings.Count(string(out), kubeSystemUID(t, csFirst)) != 2 {
		t.Fatalf("bridge claim: %v\n%s", err, out)
	}
	other.waitReady()
	eventually(t, 60*time.Second, func() error { return other.reached(configMapHistory(t, second, namespace)) })
	if got := uids(); !strings.Contains(got, "second") || strings.Contains(got, "unknown") {
		t.Errorf("there are events of %q", got)
	}
	b = startBridgeIn(t, dirFirst, first.Kubeconfig(), config)
	eventually(t, 20*time.Second, func() error { return refused(b) })
}

// TestAnotherDestination: a sink that is pointed to another stream or topic sends there everything that exists, once,
// also what changed while it was down; and a stream that is lost while the bridge runs is filled again.
func TestAnotherDestination(t *testing.T) {
	t.Parallel()
	c, js, k := sharedCluster(t), startJetStream(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	config := func(natsURL, stream, topic string) string {
		return fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [%s]}]
sinks:
  - name: js
    nats: {url: %q, stream: {name: %s, create: true, subjects: ["%s.>"]}, subject: "%s.{name}"}
  - name: kafka
    kafka: {brokers: [%q], topic: %s, createTopics: {partitions: 1, replicationFactor: 1}}
`, namespace, natsURL, stream, stream, stream, k.Addr(), topic)
	}
	lines := func(all []received) string {
		var text []string
		for _, r := range all {
			switch {
			case r.object():
				text = append(
					text,
					strings.TrimSpace(r.attributes["operation"]+" "+r.attributes["name"]+" "+r.attributes["initiallist"]),
				)
			default:
				text = append(text, strings.TrimPrefix(r.attributes["type"], "dev.deltabridge."))
			}
		}
		return strings.Join(text, ", ")
	}
	expect := func(b *bridge, stream, topic, want string) {
		t.Helper()
		eventually(t, 60*time.Second, func() error {
			if err := b.ready(); err != nil {
				return err
			}
			if got := lines(js.read(stream)); got != want {
				return fmt.Errorf("stream %s has %q, want %q", stream, got, want)
			}
			if got := lines(readKafka(t, k.Addr(), topic)[0]); got != want {
				return fmt.Errorf("topic %s has %q, want %q", topic, got, want)
			}
			return nil
		})
	}
	dir, topics := t.TempDir(), []string{"a-" + namespace, "b-" + namespace}
	createConfigMap(t, cs, namespace, "one")
	b := startBridgeIn(t, dir, c.Kubeconfig(), config(js.url(), "A", topics[0]))
	b.waitReady()
	createConfigMap(t, cs, namespace, "two")
	expect(b, "A", topics[0], "added one true, synced, added two")
	b.stop()

	byName := strings.Replace(js.url(), "127.0.0.1", "localhost", 1)
	b = startBridgeIn(t, dir, c.Kubeconfig(), config(byName, "A", topics[0])) // another address of the same stream
	b.waitReady()
	createConfigMap(t, cs, namespace, "three")
	expect(b, "A", topics[0], "added one true, synced, added two, added three")
	b.stop()

	if err := cs.CoreV1().ConfigMaps(namespace).Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	const introduced = "deleted one, added two true, added three true, synced"
	b = startBridgeIn(t, dir, c.Kubeconfig(), config(js.url(), "B", topics[1]))
	expect(b, "B", topics[1], introduced)
	eventually(t, 20*time.Second, func() error {
		if n := strings.Count(b.log.String(), "initial list for the new destination was delivered"); n != 2 {
			return fmt.Errorf("it was logged %d times", n)
		}
		return nil
	})
	b.stop()
	b = startBridgeIn(t, dir, c.Kubeconfig(), config(js.url(), "B", topics[1]))
	b.waitReady()
	createConfigMap(t, cs, namespace, "four")
	expect(b, "B", topics[1], introduced+", added four")

	api, closeConn := js.api()
	defer closeConn()
	if err := api.DeleteStream(t.Context(), "B"); err != nil {
		t.Fatal(err)
	}
	createConfigMap(t, cs, namespace, "five")
	const want = "added five, added two true, added three true, added four true, added five true, synced"
	eventually(t, 60*time.Second, func() error {
		if names := js.streams(); !strings.Contains(strings.Join(names, " ")+" ", "B ") {
			return fmt.Errorf("there are the streams %v", names)
		}
		if got := lines(js.read("B")); got != want {
			return fmt.Errorf("the new stream has %q, want %q", got, want)
		}
		return nil
	})
	if got := lines(js.read("A")); got != "added one true, synced, added two, added three" {
		t.Errorf("the old stream has %q", got)
	}
}
