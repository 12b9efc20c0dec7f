package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/test/scale"
)

// labelNamespace sets a label of a namespace.
func labelNamespace(t *testing.T, cs kubernetes.Interface, namespace, label, value string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, label, value)
	_, err := cs.CoreV1().Namespaces().
		Patch(t.Context(), namespace, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// byLabel is the configuration of a sink with the ConfigMaps of the namespaces that a selector selects.
func byLabel(selector, url string) string {
	return fmt.Sprintf(`
watch: [{resources: [configmaps]}]
sinks:
  - name: s
    filters: [{namespaceSelector: %q}]
    nats: {url: %q, stream: {name: E2E, create: true, duplicateWindow: 100ms, subjects: ["k8s.>"]}}
`, selector, url)
}

// TestNamespacesByLabel: a filter selects namespaces by their labels. When these change, while the bridge runs or while
// it is killed, the objects enter and leave, each once.
func TestNamespacesByLabel(t *testing.T) {
	t.Parallel()
	c, js := sharedCluster(t), startJetStream(t)
	cs := clientset(t, c)
	a, b := newNamespace(t, cs), newNamespace(t, cs)
	label, names := "pick-"+a, map[string]string{a: "a", b: "b"}
	config, dir := byLabel(label+"=yes", js.url()), t.TempDir()
	for _, namespace := range []string{a, b} {
		putConfigMap(t, cs, namespace, "one", "x")
		putConfigMap(t, cs, namespace, "two", "x")
	}
	labelNamespace(t, cs, a, label, "yes")
	bridge, seen := startBridgeIn(t, dir, c.Kubeconfig(), config), 0
	bridge.waitReady()
	expect := func(want string) {
		t.Helper()
		var got string
		eventually(t, 30*time.Second, func() error {
			if got = strings.Join(briefly(js.read("E2E")[seen:], names), ", "); got != want {
				return fmt.Errorf("sent %q, want %q", got, want)
			}
			return nil
		})
		seen = len(js.read("E2E"))
	}
	expect("added a/one, added a/two")
	labelNamespace(t, cs, b, label, "yes")
	expect("added b/one, added b/two")
	putConfigMap(t, cs, b, "one", "y")
	expect("updated b/one")
	labelNamespace(t, cs, a, label, "no")
	expect("left a/one, left a/two")
	putConfigMap(t, cs, a, "one", "y")
	deleteConfigMap(t, cs, a, "two")
	deleteConfigMap(t, cs, b, "two")
	expect("deleted b/two")
	bridge.waitCommits()
	bridge.kill()
	labelNamespace(t, cs, a, label, "yes")
	labelNamespace(t, cs, b, label, "no")
	putConfigMap(t, cs, b, "one", "z")
	bridge = startBridgeIn(t, dir, c.Kubeconfig(), config)
	bridge.waitReady()
	expect("added a/one, left b/one")
	bridge.stop()
	bridge = startBridgeIn(t, dir, c.Kubeconfig(), config)
	bridge.waitReady()
	putConfigMap(t, cs, a, "last", "x")
	expect("added a/last")
	once(t, "JetStream", js.read("E2E"))
}

// TestNamespacesByLabelKilledAtAnyMoment: the labels of namespaces and their objects change at random, and the bridge is
// killed. At the end, a consumer that follows the stream has exactly the objects of the namespaces that are selected,
// and no event came twice unless its object has left in between.
func TestNamespacesByLabelKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	c, js := sharedCluster(t), startJetStream(t)
	cs := clientset(t, c)
	var all []string
	for range 3 {
		all = append(all, newNamespace(t, cs))
	}
	label := "pick-" + all[0]
	config, dir := byLabel(label+"=yes", js.url()), t.TempDir()
	var changes []*randomChanges
	for _, namespace := range all {
		changes = append(changes, startChanges(t, cs, namespace, 10, 15))
	}
	selected := map[string]bool{}
	for range scale.Of(6, 30) {
		b := startBridgeIn(t, dir, c.Kubeconfig(), config)
		for range 1 + rand.IntN(3) {
			namespace := all[rand.IntN(len(all))]
			selected[namespace] = rand.IntN(2) == 0
			labelNamespace(t, cs, namespace, label, map[bool]string{true: "yes", false: "no"}[selected[namespace]])
			pause(t, time.Duration(rand.IntN(1500))*time.Millisecond)
		}
		b.kill()
	}
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	pause(t, 7*time.Second) // until it has caught up with the process before
	selected[all[0]], selected[all[1]] = true, false
	labelNamespace(t, cs, all[0], label, "yes")
	labelNamespace(t, cs, all[1], label, "no")
	pause(t, time.Second)
	for _, c := range changes {
		c.stop()
	}
	eventually(t, time.Minute, func() error {
		return sameObjects(t, cs, js.read("E2E"), all, selected)
	})
	b.stop()
	onceSinceItLeft(t, js.read("E2E"))
}

// onceSinceItLeft is once for a stream in which objects leave: if the bridge is killed, what leads to the state with which
// an object enters again can be an update that was sent before the object left.
func onceSinceItLeft(t *testing.T, events []received) {
	t.Helper()
	seen := map[string]map[string]bool{} // by uid and id
	for _, e := range events {
		uid, id := e.attributes["uid"], e.id()
		if uid == "" { // a synced event: each filter has its own, perhaps with the same id
			continue
		}
		if seen[uid] == nil || e.attributes["leftfilter"] != "" {
			seen[uid] = map[string]bool{}
		}
		if seen[uid][id] {
			t.Errorf("%s %s came twice", e.attributes["operation"], id)
		}
		seen[uid][id] = true
	}
}

// sameObjects compares what a consumer of the events has with the objects in the selected namespaces.
func sameObjects(
	t *testing.T, cs kubernetes.Interface, events []received, all []string, selected map[string]bool,
) error {
	t.Helper()
	want, got := map[string]string{}, map[string]string{}
	for _, namespace := range all {
		list, err := cs.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, o := range list.Items {
			if selected[namespace] {
				want[namespace+"/"+o.Name] = o.ResourceVersion
			}
		}
	}
	for _, r := range events {
		namespace := r.attributes["namespace"]
		if key := namespace + "/" + r.attributes["name"]; !r.object() || !slices.Contains(all, namespace) {
			continue
		} else if r.attributes["operation"] == "deleted" {
			delete(got, key)
		} else {
			got[key] = r.resourceVersion()
		}
	}
	if !maps.Equal(want, got) {
		return fmt.Errorf("a consumer has %v, want %v", got, want)
	}
	return nil
}
