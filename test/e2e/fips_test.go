package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltabridge/deltabridge/test/kafka"
)

// TestFIPS: in Go's FIPS 140-3 mode, the bridge watches and delivers over TLS, makes fingerprints, authenticates with
// SCRAM, and reads sealed values back from its checkpoint. In the mode "only", in which everything else is an error, it
// does the same with SASL PLAIN: the password is too short for SCRAM.
func TestFIPS(t *testing.T) {
	c, js, k := sharedCluster(t), newJetStream(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace, dir := newNamespace(t, cs), t.TempDir()
	ca, password := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "password")
	if err := errors.Join(
		os.WriteFile(ca, js.secure(), 0o600), os.WriteFile(password, []byte(kafka.Password), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	js.start()
	topic := "fips-" + namespace
	config := func(mechanism string) string {
		return fmt.Sprintf(`
watch: [{resources: [secrets], namespaces: [%s]}]
sinks:
  - name: jetstream
    nats: {url: "tls://%s", tls: {caFile: %q}, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}
  - name: kafka
    secrets: plain
    kafka:
      brokers: [%q]
      topic: %q
      createTopics: {partitions: 1, replicationFactor: 1}
      tls: {caFile: %q}
      sasl: {mechanism: %s, username: %q, passwordFile: %q}
`, namespace, js.addr(), ca, k.SASLTLSAddr(), topic, k.CAFile(), mechanism, kafka.User, password)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"key": "value"}}
	if _, err := cs.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	t.Setenv("GODEBUG", "fips140=on")
	b := startBridgeIn(t, dir, c.Kubeconfig(), config("SCRAM-SHA-512"))
	b.waitReady()
	eventually(t, time.Minute, func() error {
		for _, sink := range []string{"jetstream", "kafka"} {
			if b.metric("deltabridge_events_acknowledged_total", "sink="+sink) < 2 { // the Secret, and the end of the list
				return fmt.Errorf("%s has acknowledged too little", sink)
			}
		}
		return nil
	})
	b.stop()
	if err := cs.CoreV1().Secrets(namespace).Delete(t.Context(), "s", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GODEBUG", "fips140=only")
	b = startBridgeIn(t, dir, c.Kubeconfig(), config("PLAIN"))
	eventually(t, time.Minute, func() error {
		events := readKafka(t, k.Addr(), topic)[0]
		last := events[len(events)-1]
		if last.attributes["operation"] != "deleted" || !strings.Contains(string(last.data), `"key":"dmFsdWU="`) {
			return fmt.Errorf("the last event is %s of %s", last.attributes["operation"], last.subject())
		}
		return nil
	})
	b.stop()

	// A server that offers nothing approved shows that the mode is on.
	js.stop()
	js.more[0] = strings.TrimSuffix(js.more[0], "}") + ", curve_preferences: [X25519]}"
	js.start()
	toJetStream := fmt.Sprintf(`
watch: [{resources: [secrets], namespaces: [%s]}]
sinks: [{name: js, nats: {url: "tls://%s", tls: {caFile: %q}, stream: {name: E2E}}}]
`, namespace, js.addr(), ca)
	for mode, want := range map[string]string{"fips140=on": "failed", "fips140=off": "ok"} {
		t.Setenv("GODEBUG", mode)
		want = "sink js | TLS | " + js.addr() + " | " + want
		d := examine(t, t.TempDir(), c.Kubeconfig(), toJetStream)
		found := false
		for _, f := range d.Findings {
			found = found || strings.HasPrefix(f.String(), want)
		}
		if !found {
			t.Errorf("%s: no %q in %v", mode, want, d.Findings)
		}
	}
}
