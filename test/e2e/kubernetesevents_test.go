package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestKubernetesEvents: the occurrences of Events are counted as a metric, each of them once, also by processes that are
// killed while no event is delivered.
func TestKubernetesEvents(t *testing.T) {
	t.Parallel()
	c, js := sharedCluster(t), startJetStream(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	const old = "Old"
	occur := func(reason string, count int32) {
		t.Helper()
		events := cs.CoreV1().Events(namespace)
		name := strings.ToLower(reason)
		e, err := events.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			e = &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Name: name}, InvolvedObject: corev1.ObjectReference{Namespace: namespace},
				Reason: reason, Type: "Warning", Count: count,
			}
			_, err = events.Create(t.Context(), e, metav1.CreateOptions{})
		} else {
			e.Count = count
			_, err = events.Update(t.Context(), e, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	occur(old, 5)
	dir, config := t.TempDir(), fmt.Sprintf(`
metrics: {kubernetesEvents: true}
watch: [{resources: [events], namespaces: [%q]}]
sinks: [{name: js, nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}}]
`, namespace, js.url())
	start := func() *bridge { return startBridgeIn(t, dir, c.Kubeconfig(), config) }
	b := start()
	b.waitReady()
	expect := func(reason string, want float64) {
		t.Helper()
		eventually(t, 20*time.Second, func() error {
			got := b.metric(
				"deltabridge_kubernetes_events_total",
				"event_namespace="+namespace,
				"reason="+reason,
				"type=Warning",
			)
			if got != want {
				return fmt.Errorf("%s occurred %.0f times, want %.0f", reason, got, want)
			}
			return nil
		})
	}
	occur("First", 1)
	occur("First", 4)
	occur(old, 6)
	expect("First", 4)
	expect(old, 1)

	js.stop()
	occur("First", 6) // is in no destination, and not in the spill yet
	expect("First", 6)
	b.kill()
	occur("Down", 3)
	b = start()
	expect("Down", 3)
	occur("First", 7)
	expect("First", 1)
	expect(old, 0)
	js.start()
	b.waitReady()
	now := metav1.NowMicro()
	if _, err := cs.EventsV1().Events(namespace).Create(t.Context(), &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "new"}, Regarding: corev1.ObjectReference{Namespace: namespace}, Reason: "New",
		Type: "Warning", EventTime: now, ReportingController: "a/b", ReportingInstance: "c", Action: "d",
		Series: &eventsv1.EventSeries{Count: 2, LastObservedTime: now},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("New", 2)
	for n := range int32(20) {
		occur("Reload", n+1)
		if n == 5 {
			changed := completeConfig(dir, c.Kubeconfig(), "", config+"shutdownTimeout: 20s\n")
			if err := os.WriteFile(filepath.Join(dir, "bridge.yaml"), []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
			b.signal(syscall.SIGHUP)
		}
	}
	expect("Reload", 20)
	b.stop()
	b = start()
	occur("Last", 1)
	expect("Last", 1)
	expect("New", 0)
	expect("First", 0)
	b.stop()
}
