package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/test/cluster"
)

// rolledOut waits until a Deployment's Pods are all of its newest template, and makes Pods ready as a kubelet would.
func rolledOut(t *testing.T, cs kubernetes.Interface, namespace, name string) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		pods, err := cs.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if pod.Status.Phase == corev1.PodPending && pod.DeletionTimestamp == nil {
				if err := makeReady(t.Context(), cs, &pod); err != nil {
					return err
				}
			}
		}
		d, err := cs.AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < *d.Spec.Replicas ||
			d.Status.Replicas > d.Status.UpdatedReplicas || d.Status.AvailableReplicas < *d.Spec.Replicas || len(pods.Items) > int(*d.Spec.Replicas):
			return fmt.Errorf("%d pods, %+v", len(pods.Items), d.Status)
		}
		return nil
	})
}

func makeReady(ctx context.Context, cs kubernetes.Interface, pod *corev1.Pod) error {
	now := time.Now().UTC().Format(time.RFC3339)
	status := fmt.Sprintf(
		`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":%q}]}}`,
		now,
	)
	_, err := cs.CoreV1().
		Pods(pod.Namespace).
		Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	return err
}

// TestWithControllers is what needs the controllers of Kubernetes: they take a while to start, so that all share them.
func TestWithControllers(t *testing.T) {
	t.Parallel()
	log := newAuditLog(t)
	c := cluster.ForTest(t, func(o *cluster.Options) { o.ControllerManager, o.APIServerFlags = true, log.flags() })
	t.Run("ARolloutReadAlong", func(t *testing.T) { readRolloutAlong(t, c) })
	t.Run("Enrichment", func(t *testing.T) { enrichRollout(t, c, log) })
}

// readRolloutAlong: of a Deployment's rollout, with all that the controllers make of it, what remains under the preset
// is what a person would list.
func readRolloutAlong(t *testing.T, c *cluster.Cluster) {
	js := startJetStream(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	eventually(t, 30*time.Second, func() error { // what a namespace comes with is not the rollout's
		_, err := cs.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
		_, err2 := cs.CoreV1().ConfigMaps(namespace).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
		return errors.Join(err, err2)
	})
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}},
	}}
	if _, err := cs.CoreV1().Services(namespace).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := cs.AppsV1().
		Deployments(namespace).
		Create(t.Context(), deployment("web", 2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	rolledOut(t, cs, namespace, "web")
	b := startBridge(t, c.Kubeconfig(), fmt.Sprintf(`
watch: [{resources: ["*"], namespaces: [%s]}]
sinks:
  - name: everything
    nats: {url: %q, subject: "all.{resource}.{namespace}.{name}", stream: {name: ALL, create: true, subjects: ["all.>"]}}
  - name: quiet
    filters: [{preset: quiet, ignoreChanges: [status, metadata.annotations]}]
    payload: change
    nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}
`, namespace, js.url(), js.url()))
	b.waitReady()
	want := []string{
		"updated Deployment /spec/template/spec/containers/0/image",
		"added ReplicaSet", // with one Pod
		"added Pod",
		"updated ReplicaSet /spec/replicas", // the old one, to one Pod
		"updated Pod /metadata/deletionTimestamp /metadata/deletionGracePeriodSeconds",
		"deleted Pod",
		"updated ReplicaSet /spec/replicas", // the new one, to two
		"added Pod",
		"updated ReplicaSet /spec/replicas", // the old one, to none
		"updated Pod /metadata/deletionTimestamp /metadata/deletionGracePeriodSeconds",
		"deleted Pod",
	}
	const image = `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:2"}]}}}}`
	if _, err := cs.AppsV1().
		Deployments(namespace).
		Patch(t.Context(), "web", types.StrategicMergePatchType, []byte(image), metav1.PatchOptions{FieldManager: "ci"}); err != nil {
		t.Fatal(err)
	}
	rolledOut(t, cs, namespace, "web")
	eventually(t, 20*time.Second, func() error {
		if got := remaining(t, js); len(got) < len(want) {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	pause(t, time.Second) // Events and endpoints follow
	eventually(t, 20*time.Second, func() error {
		if waiting := b.metric("deltabridge_queue_events"); waiting > 0 {
			return fmt.Errorf("%.0f events wait", waiting)
		}
		return nil
	})
	suppressed := map[string]float64{}
	for _, reason := range []string{"status", "metadata.annotations", "managedFields", "leases", "heartbeats"} {
		suppressed[reason] = b.metric("deltabridge_events_suppressed_total", "sink=quiet", "reason="+reason)
	}
	b.stop()

	all := 0
	for _, r := range js.read("ALL") {
		if r.object() && r.attributes["initiallist"] == "" {
			all++
		}
	}
	got := remaining(t, js)
	t.Logf("%d of %d events remain; suppressed: %v", len(got), all, suppressed)
	slices.Sort(got) // resources have no order among each other
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what remains (-want +got):\n%s", diff)
	}
	if all < 2*len(want) || suppressed["status"] == 0 {
		t.Error("there was nothing to leave out")
	}
}

// remaining describes the changes that the quiet sink was sent after the initial list, without what is ignored.
func remaining(t *testing.T, js *jetStream) (lines []string) {
	t.Helper()
	changes, events := changesOf(t, js.read("E2E"))
	for n, change := range changes {
		if events[n].attributes["initiallist"] != "" {
			continue
		}
		line := change.Operation + " " + events[n].attributes["kind"]
		if paths := slices.DeleteFunc(change.ChangedPaths, func(path string) bool {
			return strings.HasPrefix(path, "/status") || strings.HasPrefix(path, "/metadata/annotations") ||
				path == "/metadata/generation"
		}); len(paths) > 0 {
			line += " " + strings.Join(paths, " ")
		}
		lines = append(lines, line)
	}
	return lines
}
