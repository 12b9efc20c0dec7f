package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// auditReloaded is a bridge whose sinks for audit events change while it runs.
type auditReloaded struct {
	*reloaded

	address, token, tokenFile string
}

// config returns a configuration with more keys of audit, and sinks.
func (r *auditReloaded) config(more string, sinks ...string) string {
	return fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [%s]}]
audit: {listen: %q, tokenFile: %q, %s}
sinks:
%s`, r.namespace, r.address, r.tokenFile, more, strings.Join(sinks, ""))
}

func (r *auditReloaded) sink(name, more string) string {
	return fmt.Sprintf("  - {name: %[1]s, %[2]s nats: {url: %[3]q, subject: \"%[1]s.{resource}\", "+
		"stream: {name: %[1]s, create: true, duplicateWindow: 100ms}}}\n", name, more, r.live.url())
}

// create creates a ConfigMap, and then sends its audit event, whose auditID is the name.
func (r *auditReloaded) create(name string) {
	r.t.Helper()
	_, err := r.cs.CoreV1().ConfigMaps(r.namespace).Create(r.t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.send(fmt.Sprintf(`{"level":"Metadata","auditID":%q,"stage":"ResponseComplete"}`, name))
}

// send sends an audit event to the bridge.
func (r *auditReloaded) send(event string) { sendAudit(r.t, r.address, r.token, event) }

// expect waits until a stream has these events, and no others.
func (r *auditReloaded) expect(stream string, describe func(received) string, want ...string) {
	r.t.Helper()
	eventually(r.t, 20*time.Second, func() error {
		var got []string
		for _, m := range r.live.read(stream) {
			if text := describe(m); text != "" {
				got = append(got, text)
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("%s has %q, want %q", stream, got, want)
		}
		return nil
	})
}

func auditID(m received) string { id, _, _ := strings.Cut(m.id(), "."); return id }

// changed returns the name of the object that a change is about, or an empty string.
func changed(m received) string {
	if name := m.attributes["name"]; m.object() && name != "kube-root-ca.crt" {
		return name
	}
	return ""
}

// While the bridge runs, a sink for audit events is added and another one is removed, and the payload of
// another sink changes. Nothing is missing or repeated. What cannot change is refused, with the reason.
func TestReloadOfAuditEvents(t *testing.T) {
	t.Parallel()
	r := &auditReloaded{
		reloaded: &reloaded{
			c:    sharedCluster(t),
			live: startJetStream(t),
			dir:  t.TempDir(),
		},
		address: freeAddress(t),
		token:   "secret",
	}
	r.cs, r.file, r.tokenFile = clientset(t, r.c), filepath.Join(r.dir, "bridge.yaml"), filepath.Join(r.dir, "token")
	r.namespace = newNamespace(t, r.cs)
	if err := os.WriteFile(r.tokenFile, []byte(r.token), 0o600); err != nil {
		t.Fatal(err)
	}
	one, two := r.sink("one", "events: audit,"), r.sink("two", "events: audit,")
	plain, reduced := r.sink("changes", ""), r.sink("changes", "payload: metadata,")
	reload := func(config string) {
		t.Helper()
		r.write(config)
		r.signal(syscall.SIGHUP)
		r.inUse()
		r.waitReady()
	}
	r.bridge = startBridgeIn(t, r.dir, r.c.Kubeconfig(), r.config("", one, plain))
	r.waitReady()
	r.create("a")
	r.expect("changes", changed, "a")
	r.expect("one", auditID, "a")

	reload(r.config("", one, two, reduced))
	r.create("b")
	r.expect("changes", changed, "a", "b")
	r.expect("one", auditID, "a", "b")

	reload(r.config("", two, plain))
	r.create("c")
	r.expect("changes", changed, "a", "b", "c")
	r.expect("two", func(m received) string { // a new sink is sent what is in the journal
		if id := auditID(m); id != "a" {
			return id
		}
		return ""
	}, "b", "c")
	r.expect("one", auditID, "a", "b")

	for want, config := range map[string]string{
		"audit: cannot change while the bridge runs": r.config("maxBytes: 32Mi", two, plain),
		"audit: has no effect":                       r.config("", plain),
	} {
		r.write(config)
		r.signal(syscall.SIGHUP)
		r.refused(want)
	}
	r.live.stop()
	r.send(`{"level":"Metadata","auditID":"d","stage":"Panic"}`)
	r.write(r.config("", one, plain))
	eventually(t, 20*time.Second, func() error {
		if n := r.metric("deltabridge_audit_journal_events"); n == 0 {
			return errors.New("nothing waits in the journal")
		}
		return nil
	})
	r.signal(syscall.SIGHUP)
	r.awaitRefusal("1 events wait for the sink two")
	r.live.start()
	r.expect("two", func(m received) string { // only what is last
		if id := auditID(m); id == "d" {
			return id
		}
		return ""
	}, "d")
	r.stop()
}

// sendAudit sends an audit event to a bridge, as an API server does.
func sendAudit(t *testing.T, address, token, event string) {
	t.Helper()
	body := `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[` + event + `]}`
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatal(response.Status)
	}
}
