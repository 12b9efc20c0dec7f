package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/deltabridge/deltabridge/test/cluster"
)

func everythingTo(natsURL string) string {
	return fmt.Sprintf(`
watch: [{resources: ["*"]}]
sinks: [{name: jetstream, nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}}]
`, natsURL)
}

// TestCustomResourcesComeAndGo: a CustomResourceDefinition is installed and removed while the bridge watches
// everything.
func TestCustomResourcesComeAndGo(t *testing.T) { // alone: it watches all namespaces
	c, js := sharedCluster(t), startJetStream(t)
	b := startBridge(t, c.Kubeconfig(), everythingTo(js.url()))
	b.waitReady()
	api, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	gadgets := schema.GroupVersionResource{Group: "e2e.example.com", Version: "v1", Resource: "gadgets"}
	definitions := cluster.Definitions(api)
	if _, err := definitions.Create(
		t.Context(),
		cluster.Definition(gadgets, "Gadget"),
		metav1.CreateOptions{},
	); err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		gadget := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "e2e.example.com/v1", "kind": "Gadget", "metadata": map[string]any{"name": fmt.Sprintf("g%d", n)},
		}}
		eventually(t, 20*time.Second, func() error {
			_, err := api.Resource(gadgets).Namespace("default").Create(t.Context(), gadget, metav1.CreateOptions{})
			return err
		})
	}
	acknowledged := func() float64 {
		return b.metric("deltabridge_events_acknowledged_total", "resource=gadgets.e2e.example.com")
	}
	created := time.Now()
	eventually(t, 10*time.Second, func() error {
		if acknowledged() < 5 {
			return fmt.Errorf("%.0f of 5 gadgets arrived", acknowledged())
		}
		return nil
	})
	t.Logf("the gadgets arrived within %s", time.Since(created).Round(time.Millisecond))

	// An edited definition does not restart the informer: a second "synced" event would say so.
	edited, err := definitions.Get(t.Context(), "gadgets.e2e.example.com", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	edited.SetAnnotations(map[string]string{"edited": "yes"})
	if _, err := definitions.Update(t.Context(), edited, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := definitions.Delete(t.Context(), "gadgets.e2e.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, func() error {
		if !strings.Contains(b.log.String(), "resource is no longer served by the cluster") {
			return errors.New("the informer has not ended")
		}
		return nil
	})
	b.waitReady()
	holdsOnce(t, func(string) error { // the last lines may be late
		lines := strings.Count(b.log.String(), "gadgets.e2e.example.com")
		pause(t, 5*time.Second)
		if more := strings.Count(b.log.String(), "gadgets.e2e.example.com") - lines; more > 0 {
			return fmt.Errorf("%d lines were logged about a resource that is gone", more)
		}
		return nil
	})
	b.stop()
	counts := map[string]int{}
	for _, r := range js.read("E2E") {
		if r.attributes["resource"] == "gadgets" {
			counts[strings.TrimPrefix(r.attributes["type"], "dev.deltabridge.")]++
		}
	}
	if counts["object.added"] != 5 || counts["object.deleted"] != 5 || counts["synced"] != 1 {
		t.Errorf("events: %v", counts)
	}
}

// pause waits, for tests that something does not happen.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// TestForbiddenResourcesHarmNoOther: RBAC allows some of what is watched.
func TestForbiddenResourcesHarmNoOther(t *testing.T) { // alone: it watches all namespaces
	c, js := sharedCluster(t), startJetStream(t)
	kubeconfig, err := c.RestrictedKubeconfig(t.Context(), []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := startBridge(t, kubeconfig, everythingTo(js.url()))
	b.waitReady() // what only a wildcard names may be forbidden
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	if err := oneLife(t.Context(), cs, namespace, "seen", 1, true); err != nil {
		t.Fatal(err)
	}
	truth := configMapHistory(t, c, namespace)
	eventually(t, 20*time.Second, func() error { return b.reached(truth) })
	eventually(t, 10*time.Second, func() error {
		if n := b.metric("deltabridge_informer_errors_total", "resource=secrets"); n == 0 {
			return errors.New("forbidden requests are not counted")
		}
		if n := b.metric("deltabridge_informer_forbidden", "resource=secrets"); n != 1 {
			return errors.New("no metric says that the resource is forbidden")
		}
		return nil
	})
	if _, body, err := b.get("/metrics"); err != nil ||
		strings.Contains(body, `deltabridge_informer_synced{resource="secrets"`) {
		t.Errorf("an alert on lists that are missing would fire for what the bridge does without: %v", err)
	}
	if n := strings.Count(
		b.log.String(),
		"level=WARN msg=\"request failed, retrying\" resource=secrets",
	); n != 1 {
		t.Errorf("the forbidden resource was reported %d times", n)
	}
	b.stop()
	judge(t, "JetStream", truth, "configmaps/"+namespace+"/", js.read("E2E"))

	named := startBridge(t, kubeconfig, fmt.Sprintf(`
watch: [{resources: [configmaps, secrets]}]
sinks: [{name: jetstream, nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}}]
`, js.url()))
	eventually(t, 20*time.Second, func() error {
		if err := named.ready(); err == nil || !strings.Contains(err.Error(), "secrets is forbidden") ||
			strings.Contains(err.Error(), "configmaps") {
			return fmt.Errorf("readyz should say that secrets alone are forbidden, says %v", err)
		}
		return nil
	})
	if n := named.metric("deltabridge_informer_synced"); n != 1 {
		t.Errorf("%.0f of one resource is listed", n)
	}
	if _, body, err := named.get("/metrics"); err != nil ||
		!strings.Contains(body, `deltabridge_informer_synced{resource="secrets",selector="",watched_namespace=""} 0`) {
		t.Errorf("no metric says that a resource that is required is not listed: %v", err)
	}
	named.stop()
}

// TestEventsAreWatchedOnce: the Events of the core group and of events.k8s.io are the same objects.
func TestEventsAreWatchedOnce(t *testing.T) {
	c, js := sharedCluster(t), startJetStream(t)
	b := startBridge(t, c.Kubeconfig(), everythingTo(js.url()))
	b.waitReady()
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	if _, err := cs.CoreV1().Events(namespace).Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "once"}, InvolvedObject: corev1.ObjectReference{Namespace: namespace},
	}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, func() error {
		if b.metric("deltabridge_informer_objects", "resource=events") == 0 {
			return errors.New("the Event is not seen")
		}
		return nil
	})
	if n := b.metric("deltabridge_informer_synced", "resource=events.events.k8s.io"); n != 0 {
		t.Error("Events are watched twice")
	}
	b.stop()
	count := 0
	for _, r := range js.read("E2E") {
		if r.attributes["name"] == "once" {
			count++
		}
	}
	if count != 1 {
		t.Errorf("the Event arrived %d times", count)
	}
}

// TestFilters: an object that moves over a filter's border is added and deleted for that sink.
func TestFilters(t *testing.T) {
	t.Parallel()
	c, js := sharedCluster(t), startJetStream(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	b := startBridge(t, c.Kubeconfig(), fmt.Sprintf(`
watch: [{resources: [configmaps, secrets], namespaces: ["%s*"]}]
sinks:
  - name: jetstream
    filters: [{resources: [configmaps], when: "object.?data.?n.orValue('') == '1'"}]
    nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}
`, namespace, js.url()))
	b.waitReady()
	if err := oneLife(t.Context(), cs, namespace, "border", 3, true); err != nil { // n: "", 0, 1, 2, deleted
		t.Fatal(err)
	}
	truth := configMapHistory(t, c, namespace)
	eventually(t, 20*time.Second, func() error { return b.reached(truth) })
	b.stop()
	var got []string
	for _, r := range js.read("E2E") {
		if r.object() {
			got = append(
				got,
				strings.Join([]string{r.attributes["operation"], r.attributes["leftfilter"], r.resourceVersion()}, " "),
			)
			if left := strings.Contains(r.id(), ".left"); left != (r.attributes["leftfilter"] == "true") {
				t.Errorf("id %s", r.id())
			}
		}
	}
	want := []string{"added  " + truth[2].rv, "deleted true " + truth[3].rv}
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("events %q, want %q", got, want)
	}
}

// TestAResourceThatGoesWhileTheBridgeIsDown: its objects' deletions are delivered when the bridge comes back, and not
// again at the next start.
func TestAResourceThatGoesWhileTheBridgeIsDown(t *testing.T) { // alone: it watches all namespaces
	c, js := sharedCluster(t), startJetStream(t)
	api, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	gizmos := schema.GroupVersionResource{Group: "down.example.com", Version: "v1", Resource: "gizmos"}
	definitions := cluster.Definitions(api)
	if _, err := definitions.Create(t.Context(), cluster.Definition(gizmos, "Gizmo"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		gizmo := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "down.example.com/v1", "kind": "Gizmo", "metadata": map[string]any{"name": fmt.Sprintf("g%d", n)},
		}}
		eventually(t, 20*time.Second, func() error {
			_, err := api.Resource(gizmos).Namespace("default").Create(t.Context(), gizmo, metav1.CreateOptions{})
			return err
		})
	}
	config := fmt.Sprintf(`
watch: [{resources: [gizmos.down.example.com, configmaps]}]
sinks: [{name: jetstream, nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}}]
`, js.url())
	dir := t.TempDir()
	acknowledged := func(b *bridge, want float64) {
		t.Helper()
		eventually(t, 30*time.Second, func() error {
			if n := b.metric("deltabridge_events_acknowledged_total", "resource=gizmos.down.example.com"); n < want {
				return fmt.Errorf("%.0f of %.0f events arrived", n, want)
			}
			return nil
		})
	}
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	acknowledged(b, 4) // three objects, and that the list is complete
	b.stop()
	if err := definitions.Delete(t.Context(), "gizmos.down.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, func() error {
		if _, err := api.Resource(gizmos).List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the resource is still served: %v", err)
		}
		return nil
	})
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	acknowledged(b, 3)
	eventually(t, 10*time.Second, func() error {
		for _, source := range b.status().Sources {
			if source.Resource == "gizmos.down.example.com" {
				return errors.New("the source is not forgotten yet")
			}
		}
		return nil
	})
	b.stop()
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	eventually(t, 20*time.Second, func() error {
		if b.metric("deltabridge_informer_synced", "resource=configmaps") == 0 {
			return errors.New("the bridge has not begun")
		}
		return nil
	})
	pause(t, 2*time.Second)
	b.stop()
	var deleted []string
	for _, r := range js.read("E2E") {
		if r.attributes["operation"] == "deleted" {
			deleted = append(deleted, r.attributes["name"]+" "+r.attributes["finalstateunknown"])
		}
	}
	slices.Sort(deleted)
	if got := strings.Join(deleted, ", "); got != "g0 true, g1 true, g2 true" {
		t.Errorf("deletions: %q", got)
	}
	if strings.Contains(b.log.String(), "handing on its deletions") {
		t.Error("the last start handed on deletions again")
	}
}
