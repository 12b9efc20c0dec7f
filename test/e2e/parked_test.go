package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

// TestAMissingTopic: with topic: "{resource}" and createTopics off, and a stream that takes the subjects of one
// resource only, the events of the other resource wait on disk, over SIGTERM and kill -9, and hold up nothing. When
// there is a place for them they arrive, each once, in order, although the bridge is killed while it sends them. The
// duplicate window of the stream is too short to help.
func TestAMissingTopic(t *testing.T) {
	t.Parallel()
	c, js, k := sharedCluster(t), startJetStream(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	prefix := "parked-" + namespace + "-"
	stream := jetstream.StreamConfig{
		Name:       "E2E",
		Subjects:   []string{"k8s.configmaps.>"},
		Duplicates: 100 * time.Millisecond,
	}
	js.create(stream)
	kafka.CreateTopic(t, k.Addr(), prefix+"configmaps", 3, nil)
	config, dir := fmt.Sprintf(`
watch: [{resources: [configmaps, services], namespaces: [%s]}]
sinks:
  - name: jetstream
    nats: {url: %q, stream: {name: E2E}, subject: "k8s.{resource}.{namespace}.{name}"}
  - name: kafka
    kafka: {brokers: [%q], topic: "%s{resource}"}
`, namespace, js.url(), k.Addr(), prefix), t.TempDir()

	services := cs.CoreV1().Services(namespace)
	service, err := services.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	versions := []string{service.ResourceVersion}
	update := func() {
		t.Helper()
		service.Annotations = map[string]string{"n": fmt.Sprint(len(versions))}
		if service, err = services.Update(t.Context(), service, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		versions = append(versions, service.ResourceVersion)
	}
	parked := func(b *bridge) {
		t.Helper()
		eventually(t, 60*time.Second, func() error {
			for _, sink := range []string{"jetstream", "kafka"} {
				// There are more if the watch brings some again after kill -9: they are parked twice, and sent once.
				if n := b.metric("deltabridge_parked_events", "sink="+sink); n < float64(len(versions)) {
					return fmt.Errorf("%s has %.0f of %d parked", sink, n, len(versions))
				}
			}
			return nil
		})
	}
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	for n := range 100 {
		if n%25 == 0 {
			update()
		}
		if err := oneLife(t.Context(), cs, namespace, fmt.Sprintf("c-%d", n), 2, n%2 == 0); err != nil {
			t.Fatal(err)
		}
	}
	truth := upToOthers(t, b, len(configMapHistory(t, c, namespace)))
	parked(b)
	b.stop()
	if n := len(readKafka(t, k.Addr(), prefix+"configmaps")[0]); n == 0 || len(js.read("E2E")) < truth {
		t.Errorf("others did not arrive: %d of %d in JetStream", len(js.read("E2E")), truth)
	}
	update() // while it is down
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	update()
	parked(b)
	b.kill()
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	update()
	parked(b)

	left := b.metric("deltabridge_parked_events")
	kafka.CreateTopic(t, k.Addr(), prefix+"services", 3, nil)
	stream.Subjects = append(stream.Subjects, "k8s.services.>")
	api, closeConn := js.api()
	defer closeConn()
	if _, err := api.UpdateStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, func() error {
		if n := b.metric("deltabridge_parked_events"); n >= left {
			return fmt.Errorf("all %.0f events are still parked", n)
		}
		return nil
	})
	b.kill()
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	eventually(t, 60*time.Second, func() error {
		if n := b.metric("deltabridge_parked_events"); n > 0 {
			return fmt.Errorf("%.0f events are still parked", n)
		}
		return nil
	})
	update()
	eventually(t, 30*time.Second, func() error {
		var inTopic []received
		for _, partition := range readKafka(t, k.Addr(), prefix+"services") {
			inTopic = append(inTopic, partition...)
		}
		for name, events := range map[string][]received{"JetStream": js.read("E2E"), "Kafka": inTopic} {
			if diff := cmp.Diff(versions, versionsOf(events, "services/"+namespace+"/one")); diff != "" {
				return fmt.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		return nil
	})
	b.stop()
}

// TestACustomResourceWithoutATopic: with createTopics off a new kind of objects has no topic. The changes of others
// arrive all the while, and those objects' when somebody has made the topic.
func TestACustomResourceWithoutATopic(t *testing.T) {
	t.Parallel()
	c, k := sharedCluster(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	widgets := schema.GroupVersionResource{Group: "parked.example.com", Version: "v1", Resource: "widgets"}
	prefix := "new-" + namespace + "-"
	kafka.CreateTopic(t, k.Addr(), prefix+"configmaps", 3, nil)
	b := startBridge(t, c.Kubeconfig(), fmt.Sprintf(`
watch: [{resources: [configmaps, "*.parked.example.com"], namespaces: [%s]}]
sinks: [{name: kafka, kafka: {brokers: [%q], topic: "%s{resource}"}}]
`, namespace, k.Addr(), prefix))
	b.waitReady()
	load := startChanges(t, cs, namespace, 100, scale.Of(100, 30))
	objects := newKind(t, c, widgets, "Widget", namespace, 5)
	count, sum := b.histogram("deltabridge_event_lag_seconds", "kafka")
	pause(t, scale.Of(5*time.Second, 5*time.Minute))
	newCount, newSum := b.histogram("deltabridge_event_lag_seconds", "kafka")
	load.stop()
	truth := configMapHistory(t, c, namespace)
	eventually(t, 5*time.Second, func() error { return b.acknowledged("kafka", len(truth)) })
	judge(t, "Kafka", truth, "configmaps/"+namespace+"/", readKafka(t, k.Addr(), prefix+"configmaps")...)
	t.Logf(
		"%d changes of others in the meantime, with a mean lag of %.1f ms",
		newCount-count,
		(newSum-sum)/float64(newCount-count)*1000,
	)

	kafka.CreateTopic(t, k.Addr(), prefix+"widgets", 3, nil)
	made := time.Now()
	eventually(t, 60*time.Second, func() error {
		if n := int(
			b.metric("deltabridge_events_acknowledged_total", "resource=widgets.parked.example.com"),
		); n < len(
			objects,
		) {
			return fmt.Errorf("%d of %d widgets arrived", n, len(objects))
		}
		return nil
	})
	t.Logf("what waited arrived %s after its topic was made", time.Since(made).Round(time.Millisecond))
	b.stop()
	judge(t, "Kafka", objects, "widgets.parked.example.com/", readKafka(t, k.Addr(), prefix+"widgets")...)
}

// newKind installs a CustomResourceDefinition with some objects in a namespace, and gives their history.
func newKind(
	t *testing.T,
	c *cluster.Cluster,
	of schema.GroupVersionResource,
	kind, namespace string,
	objects int,
) []change {
	t.Helper()
	api, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	definitions := cluster.Definitions(api)
	if _, err := definitions.Create(t.Context(), cluster.Definition(of, kind), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for n := range objects {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": of.GroupVersion().String(), "kind": kind, "metadata": map[string]any{"name": fmt.Sprintf("o%d", n)},
		}}
		eventually(t, 20*time.Second, func() error {
			_, err := api.Resource(of).Namespace(namespace).Create(t.Context(), object, metav1.CreateOptions{})
			return err
		})
	}
	return history(t, c, of.Group+"/"+of.Resource, of.Resource+"."+of.Group, namespace)
}

// upToOthers waits until both sinks have acknowledged so many changes of config maps.
func upToOthers(t *testing.T, b *bridge, changes int) int {
	t.Helper()
	eventually(t, 60*time.Second, func() error {
		for _, sink := range []string{"jetstream", "kafka"} {
			if n := b.metric(
				"deltabridge_events_acknowledged_total",
				"sink="+sink,
				"resource=configmaps",
			); n < float64(
				changes,
			) {
				return fmt.Errorf("%s has %.0f of %d changes", sink, n, changes)
			}
		}
		return nil
	})
	return changes
}

// versionsOf are the resource versions of an object's events.
func versionsOf(events []received, subject string) (versions []string) {
	for _, r := range events {
		if r.subject() == subject && r.object() {
			versions = append(versions, r.resourceVersion())
		}
	}
	return versions
}
