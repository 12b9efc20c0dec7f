package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltabridge/deltabridge/test/scale"
)

// TestAllReplicasLost: all replicas are down while the API server forgets what happens, and their directories are lost.
// Each deletion arrives with the last state, and a gap event announces that intermediate states are missing.
func TestAllReplicasLost(t *testing.T) {
	t.Parallel()
	c := forgetful(t)
	cs, js := clientset(t, c), startJetStream(t)
	namespace := newNamespace(t, cs)
	changes := record(t, c, namespace)
	all := newReplicas(t, c.Kubeconfig(), namespace,
		fmt.Sprintf("nats: {url: %q, stream: {name: STATE, create: true}}", js.url()),
		fmt.Sprintf("watch: [{resources: [configmaps], namespaces: [%s]}]\nsinks:\n  - name: jetstream\n"+
			"    nats: {url: %q, stream: {name: E2E, create: true, subjects: [\"k8s.>\"]}}\n", namespace, js.url()))
	leader := all.start()
	leader.waitLeader()
	standby := all.start()
	standby.waitReady()
	count := scale.Of(20, 200)
	if err := churn(t.Context(), cs, namespace, "a", count, 2); err != nil {
		t.Fatal(err)
	}
	before, _ := changes.upTo(t, cs, namespace, "last-before")
	eventually(t, 30*time.Second, func() error { return leader.reached(before) })
	leader.waitCommits()
	leader.kill()
	standby.kill()

	if err := cs.CoreV1().ConfigMaps(namespace).
		DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	_, last := changes.upTo(t, cs, namespace, "last-of-all")
	if err := c.CompactTo(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	leader = all.start()
	leader.waitLeader()
	truth, _ := changes.upTo(t, cs, namespace, "after")
	eventually(t, 30*time.Second, func() error { return leader.reached(truth) })
	leader.stop()

	events := js.read("E2E")
	judgeFinal(t, "JetStream", truth, "configmaps/"+namespace+"/", events)
	once(t, "JetStream", events)
	gaps, deletions := 0, 0
	for _, r := range events {
		if r.attributes["type"] == "dev.deltabridge.gap" {
			gaps++
		}
		if r.attributes["finalstateunknown"] != "true" {
			continue
		}
		deletions++
		var object struct{ Data map[string]string }
		if err := json.Unmarshal(r.data, &object); err != nil {
			t.Errorf("%s: %v", r.subject(), err)
		}
		if object.Data["payload"] == "" {
			t.Errorf("%s was deleted without its state: %s", r.subject(), r.data)
		}
	}
	if gaps != 1 || deletions != count/2+1 {
		t.Errorf("%d gap events, %d deletions", gaps, deletions)
	}
}
