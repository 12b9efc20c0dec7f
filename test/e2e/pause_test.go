package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPause: the broker of one of two sinks is maintained. From `bridge pause` on it is sent nothing, over its own stop
// and a kill -9 of the bridge, which becomes ready without it. The other sink goes on. After `bridge resume` everything
// arrives, in order.
func TestPause(t *testing.T) {
	t.Parallel()
	c, live, maintained := sharedCluster(t), startJetStream(t), startJetStream(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	const stream = `stream: {name: E2E, create: true, subjects: ["k8s.>"]}`
	config := fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [%s]}]
sinks:
  - {name: live, nats: {url: %q, %s}}
  - {name: maintained, buffer: {events: 100, bytes: 1Mi}, nats: {url: %q, %s}}
`, namespace, live.url(), stream, maintained.url(), stream)
	dir := t.TempDir()
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	run := func(want string, args ...string) {
		t.Helper()
		out, errs, err := runBridge(t, append(args, "--config", filepath.Join(dir, "bridge.yaml"))...)
		if !strings.Contains(out+errs, want) {
			t.Errorf("bridge %s: %v: %s%s, want %s", strings.Join(args, " "), err, out, errs, want)
		}
	}
	changes := func(prefix string) {
		t.Helper()
		if err := churn(t.Context(), cs, namespace, prefix, 60, 4); err != nil {
			t.Fatal(err)
		}
	}
	isPaused := func() {
		t.Helper()
		code, body, err := b.get("/readyz")
		if err != nil || code != http.StatusOK || !strings.Contains(body, "- sink maintained: paused since 20") {
			t.Errorf("/readyz: %d, %v: %s", code, err, body)
		}
		if b.metric("deltabridge_sink_paused", "sink=maintained") != 1 || b.metric("deltabridge_sink_paused") != 1 {
			t.Error("deltabridge_sink_paused does not name the paused sink")
		}
	}
	changes("before")
	upTo(t, b, c, namespace)
	run("maintained: paused, 0 events wait", "pause", "maintained")
	before := len(maintained.read("E2E"))
	run("maintained: already paused since", "pause", "maintained")
	run(`there is no sink "none"; existing sinks: live, maintained`, "pause", "none")
	changes("during")
	eventually(t, 30*time.Second, func() error {
		all := float64(len(configMapHistory(t, c, namespace)))
		if n := b.metric("deltabridge_events_acknowledged_total", "sink=live"); n < all {
			return fmt.Errorf("%.0f of %.0f events arrived at the sink that is not paused", n, all)
		}
		if b.metric("deltabridge_spill_events", "sink=maintained") == 0 {
			return errors.New("what does not fit into memory is not on disk")
		}
		return nil
	})
	if n := len(maintained.read("E2E")); n != before {
		t.Errorf("%d events were sent to the paused sink", n-before)
	}
	isPaused()
	run("run `bridge resume maintained`", "doctor")

	maintained.stop()
	b.kill()
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	changes("after-the-kill")
	isPaused()
	maintained.start()
	run("maintained: resumed", "resume", "maintained")
	run("maintained: is not paused", "resume", "maintained")
	truth := upTo(t, b, c, namespace)
	b.stop()
	run("no bridge is running with this state.path", "pause", "maintained")
	for name, js := range map[string]*jetStream{"live": live, "maintained": maintained} {
		judge(t, name, truth, "configmaps/"+namespace+"/", js.read("E2E"))
	}
}

// TestABrokerGoesAway: when a broker that was connected goes away, the metric and /readyz say so, and the bridge stays
// ready.
func TestABrokerGoesAway(t *testing.T) {
	t.Parallel()
	c, js := sharedCluster(t), startJetStream(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	b := startBridge(t, c.Kubeconfig(), fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [%s]}]
sinks: [{name: live, nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}}]
`, namespace, js.url()))
	b.waitReady()
	want := func(connected float64, body string) {
		t.Helper()
		eventually(t, 20*time.Second, func() error {
			code, got, err := b.get("/readyz")
			n := b.metric("deltabridge_sink_connected", "sink=live")
			if err != nil || code != http.StatusOK || n != connected || !strings.HasPrefix(got, body) {
				return fmt.Errorf("connected %.0f, /readyz: %d %s, %w", n, code, got, err)
			}
			return nil
		})
	}
	change := func(name string) {
		t.Helper()
		if err := oneLife(t.Context(), cs, namespace, name, 1, true); err != nil {
			t.Fatal(err)
		}
	}
	change("before")
	want(1, "ready\n")
	js.stop()
	change("meanwhile")
	want(0, "ready\nwithout effect on readiness:\n- sink live: retrying since 20")
	if age := b.metric("deltabridge_queue_age_seconds"); age <= 0 {
		t.Error("the events that wait have no age")
	}
	js.start()
	want(1, "ready\n")
	b.stop()
}
