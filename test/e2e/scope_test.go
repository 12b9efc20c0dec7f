package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// putConfigMap creates or changes a ConfigMap with the label team.
func putConfigMap(t *testing.T, cs kubernetes.Interface, namespace, name, team string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team}}}
	_, err := cs.CoreV1().ConfigMaps(namespace).Update(t.Context(), cm, metav1.UpdateOptions{})
	if err != nil {
		_, err = cs.CoreV1().ConfigMaps(namespace).Create(t.Context(), cm, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func deleteConfigMap(t *testing.T, cs kubernetes.Interface, namespace, name string) {
	t.Helper()
	if err := cs.CoreV1().ConfigMaps(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// briefly gives the events of a stream, without those of other namespaces, sorted, since between objects their order
// means nothing. Gaps count once: each namespace has its own, and JetStream drops the second if they have the same
// bounds and so the same id.
func briefly(events []received, names map[string]string) (lines []string) {
	for _, r := range events {
		switch {
		case r.attributes["type"] == "dev.deltabridge.gap":
			lines = append(lines, "gap")
		case r.object() && names[r.attributes["namespace"]] != "":
			line := r.attributes["operation"] + " " + names[r.attributes["namespace"]] + "/" + r.attributes["name"]
			if r.attributes["leftfilter"] == "true" {
				line = strings.Replace(line, "deleted", "left", 1)
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return slices.CompactFunc(lines, func(a, b string) bool { return a == "gap" && b == "gap" })
}

// TestAChangedWatch: the bridge is stopped, objects change, and it is started with other entries of `watch`. What is
// known goes on to count: what went is sent as deleted, what is not watched any more as left, what is new as added, and
// nothing else again.
func TestAChangedWatch(t *testing.T) {
	t.Parallel()
	c, js := sharedCluster(t), startJetStream(t)
	cs := clientset(t, c)
	a, b := newNamespace(t, cs), newNamespace(t, cs)
	config := func(entries string) string {
		return fmt.Sprintf(
			"\nwatch:\n%s\nsinks: [{name: s, nats: {url: %q, stream: {name: E2E, create: true, subjects: [\"k8s.>\"]}}}]\n",
			strings.NewReplacer("A", a, "B", b).Replace(entries),
			js.url(),
		)
	}
	for _, namespace := range []string{a, b} {
		for _, name := range []string{"stays", "goes", "goes-later"} {
			putConfigMap(t, cs, namespace, name, "x")
		}
	}
	dir, seen := t.TempDir(), 0
	for n, step := range []struct {
		entries string
		before  func()
		want    string
	}{
		{
			"  - {resources: [configmaps], namespaces: [A, B]}", func() {},
			"added a/goes, added a/goes-later, added a/stays, added b/goes, added b/goes-later, added b/stays",
		},
		{"  - {resources: [configmaps], namespaces: ['A*', 'B*']}", func() {
			deleteConfigMap(t, cs, a, "goes")
			deleteConfigMap(t, cs, b, "goes")
			putConfigMap(t, cs, b, "new", "x")
		}, "added b/new, deleted a/goes, deleted b/goes, gap"},
		{"  - {resources: [configmaps], namespaces: ['B*']}\n  - {resources: ['config*'], namespaces: ['A*']}", func() {
			deleteConfigMap(t, cs, a, "goes-later")
			putConfigMap(t, cs, b, "stays", "y")
		}, "deleted a/goes-later, updated b/stays"},
		{"  - {resources: [configmaps], namespaces: [A, B], labelSelector: team=y}", func() {
			putConfigMap(t, cs, a, "joins", "y")
		}, "added a/joins, gap, left a/stays, left b/goes-later, left b/new"},
		{"  - {resources: [configmaps], namespaces: [A], labelSelector: team=y}", func() {
			deleteConfigMap(t, cs, b, "stays")
		}, "left b/stays"},
		// There and back again, within the stream's duplicate window: of objects that have not changed.
		{"  - {resources: [configmaps], namespaces: [A, B]}", func() {
			putConfigMap(t, cs, a, "more", "x")
		}, "added a/more, added a/stays, added b/goes-later, added b/new, gap"},
		{"  - {resources: [configmaps], namespaces: [A], labelSelector: team=y}", func() {
			putConfigMap(t, cs, a, "joins-too", "y")
		}, "added a/joins-too, gap, left a/more, left a/stays, left b/goes-later, left b/new"},
		{"  - {resources: [configmaps], namespaces: ['A*', 'B*']}", func() {
			putConfigMap(t, cs, b, "even-more", "x")
		}, "added a/more, added a/stays, added b/even-more, added b/goes-later, added b/new, gap"},
		{
			"  - {resources: [secrets], namespaces: [A]}", func() {},
			"left a/joins, left a/joins-too, left a/more, left a/stays, left b/even-more, left b/goes-later, left b/new",
		},
		{
			"  - {resources: [configmaps], namespaces: [A, B]}", func() {},
			"added a/joins, added a/joins-too, added a/more, added a/stays, added b/even-more, added b/goes-later, added b/new",
		},
	} {
		step.before()
		bridge := startBridgeIn(t, dir, c.Kubeconfig(), config(step.entries))
		bridge.waitReady()
		eventually(t, 30*time.Second, func() error {
			if got := strings.Join(briefly(js.read("E2E")[seen:], map[string]string{a: "a", b: "b"}), ", "); got != step.want {
				return fmt.Errorf("step %d: sent %q, want %q", n, got, step.want)
			}
			return nil
		})
		bridge.stop()
		events := js.read("E2E")
		if got := strings.Join(briefly(events[seen:], map[string]string{a: "a", b: "b"}), ", "); got != step.want {
			t.Errorf("step %d: sent %q, want %q", n, got, step.want)
		}
		seen = len(events)
	}
}

// TestEntriesWithSelectors: entries of one resource select by different labels in different namespaces. An object that
// is relabelled enters and leaves the watch of its namespace.
func TestEntriesWithSelectors(t *testing.T) {
	t.Parallel()
	c, js := sharedCluster(t), startJetStream(t)
	cs := clientset(t, c)
	first, second := newNamespace(t, cs), newNamespace(t, cs)
	b := startBridge(t, c.Kubeconfig(), fmt.Sprintf(`
watch:
  - {resources: [configmaps], namespaces: [%s], labelSelector: team=a}
  - {resources: [configmaps], namespaces: ["%s*"], labelSelector: team=b}
sinks: [{name: s, nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}}]
`, first, second, js.url()))
	b.waitReady()
	const objects = 20
	for _, team := range []string{"a", "b", "a", "none", "b"} {
		for n := range objects {
			putConfigMap(t, cs, first, "cm-"+itoa(n), team)
			putConfigMap(t, cs, second, "cm-"+itoa(n), team)
		}
	}
	eventually(t, 30*time.Second, func() error {
		if n := len(js.read("E2E")); n < 7*objects {
			return fmt.Errorf("%d events", n)
		}
		return nil
	})
	b.stop()
	got, last := map[string]string{}, map[string]int64{}
	for _, r := range js.read("E2E") {
		if !r.object() {
			continue
		}
		object := r.attributes["namespace"] + "/" + r.attributes["name"]
		got[object] += r.attributes["operation"] + " "
		if rv := revision(t, r.resourceVersion()); rv <= last[object] {
			t.Errorf("%s is out of order", r.id())
		} else {
			last[object] = rv
		}
	}
	for n := range objects {
		for namespace, want := range map[string]string{
			first: "added deleted added deleted ", second: "added deleted added ",
		} {
			if object := namespace + "/cm-" + itoa(n); got[object] != want {
				t.Errorf("%s: %s", object, got[object])
			}
		}
	}
}

// TestEntriesThatDiffer: entries select Events by different labels under their two names, which only discovery shows.
// Doctor fails, and the bridge is not ready.
func TestEntriesThatDiffer(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	namespace := newNamespace(t, clientset(t, c))
	config := fmt.Sprintf(`
watch:
  - {resources: [events], namespaces: [%[1]s], labelSelector: team=a}
  - {resources: [events.events.k8s.io], namespaces: [%[1]s], labelSelector: team=b}
sinks: [{name: lines, stdout: {}}]
`, namespace)
	dir := t.TempDir()
	const want = "watch[0] and watch[1] select events with different selectors"
	if d := examine(t, dir, c.Kubeconfig(), config); !d.has("API server | discover |  | failed |  | " + want) {
		t.Errorf("doctor: %v", d.Findings)
	}
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	eventually(t, time.Minute, func() error {
		if code, body, err := b.get("/readyz"); err != nil || code != http.StatusServiceUnavailable ||
			!strings.Contains(body, want) {
			return fmt.Errorf("/readyz: %d %s, %w", code, body, err)
		}
		return nil
	})
	if out, _, err := runBridge(t, "status", "--address", b.addr); !strings.Contains(out, want) {
		t.Errorf("status: %v\n%s", err, out)
	}
	b.stop()
}
