package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The disk with the audit journal is full, because JetStream is unavailable: the bridge refuses audit events, and the API
// server goes on. When JetStream is available again, everything that the API server has logged is delivered.
func TestAuditDiskFull(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, "size=8m")
	a, js := startAudited(t, auditPolicy, ""), startJetStream(t)
	cs := clientset(t, a.cluster)
	b := startBridgeIn(t, dir, a.cluster.Kubeconfig(), fmt.Sprintf(a.keys, a.address)+fmt.Sprintf(`
sinks:
  - {name: who, events: audit, nats: {url: %q, subject: "who.{resource}", stream: {name: WHO, create: true}}}
`, js.url()))
	b.waitReady()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "audited"}}
	if _, err := cs.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		StringData: map[string]string{"password": a.hidden.value()},
	}
	if _, err := cs.CoreV1().Secrets("audited").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	js.stop()
	noise := make([]byte, 100<<10)
	for n := range noise {
		noise[n] = byte(rand.Uint32())
	}
	var took []time.Duration
	write := func() {
		t.Helper()
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "c"}, BinaryData: map[string][]byte{"noise": noise},
		}
		begin := time.Now()
		if _, err := cs.CoreV1().ConfigMaps("audited").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	refused := func() float64 { return b.metric("deltabridge_audit_requests_total", "result=failing") }
	for deadline := time.Now().Add(patience(30 * time.Second)); refused() == 0; write() {
		if time.Now().After(deadline) {
			t.Fatalf("after %d writes, the disk is not full", len(took))
		}
	}
	for range 5 {
		write()
	}
	slices.Sort(took)
	t.Logf("%d writes, the median took %v, the longest %v; %v requests of the API server were refused",
		len(took), took[len(took)/2], took[len(took)-1], refused())
	js.start()
	if err := a.cluster.StopAPIServer(t.Context()); err != nil { // sends what it has
		t.Fatal(err)
	}
	want := a.logged()
	eventually(t, time.Minute, func() error {
		if got := js.read("WHO"); len(got) < len(want) {
			return fmt.Errorf("%d of %d events", len(got), len(want))
		}
		return nil
	})
	b.stop()
	a.judge("JetStream", want, js.read("WHO"))
}
