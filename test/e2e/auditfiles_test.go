package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/scale"
)

// startLogging starts an API server that writes audit events to a log, which it rotates and compresses.
func startLogging(t *testing.T) *audited {
	t.Helper()
	dir := t.TempDir()
	a := &audited{t: t, file: filepath.Join(dir, "audit.log"), bridgeDir: t.TempDir(), hidden: &hidden{t: t}}
	a.keys = fmt.Sprintf("audit: {files: [%q]}\n", a.file)
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\n"+auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	a.cluster = cluster.ForTest(t, func(o *cluster.Options) {
		o.APIServerFlags = []string{
			"--audit-policy-file=" + policy, "--audit-log-path=" + a.file, "--audit-log-maxsize=1", "--audit-log-maxbackup=0",
			"--audit-log-compress",
		}
	})
	return a
}

// backups returns the number of rotations.
func (a *audited) backups() int {
	a.t.Helper()
	paths, err := filepath.Glob(filepath.Join(filepath.Dir(a.file), "audit-*.log*"))
	if err != nil {
		a.t.Fatal(err)
	}
	return len(paths)
}

// Every audit event in the log of an API server is in the destination, although the log is rotated and compressed, and
// the bridge is killed twice and is down while the log is rotated.
func TestEveryLoggedAuditEventArrives(t *testing.T) {
	t.Parallel()
	a, js := startLogging(t), startJetStream(t)
	a.auditOnly = true
	a.hidden.value()
	config := a.keys + fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [audited]}]
sinks:
  - name: jetstream
    events: audit
    nats: {url: %q, subject: "audit.{cluster}.{group}.{resource}.{namespace}.{name}", stream: {name: AUDIT, create: true}}
`, js.url())
	b := startBridgeIn(t, a.bridgeDir, a.cluster.Kubeconfig(), config)
	b.waitReady()
	w := a.startWriters(scale.Of(210, 2100), 3)
	for range 2 {
		w.next()
		b.kill()
		before := a.backups()
		awaitRotation(w.ctx, a, before)
		t.Logf("%d files of the log before the kill, %d after it", before, a.backups())
		b = startBridgeIn(t, a.bridgeDir, a.cluster.Kubeconfig(), config)
	}
	w.wait()
	if err := a.cluster.StopAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := a.logged()
	if n := a.backups(); n < 2 {
		t.Fatalf("the log was rotated only %d times", n)
	}
	var got []received
	eventually(t, 2*time.Minute, func() error {
		if n := b.metric("deltabridge_audit_journal_events"); n > 0 {
			return fmt.Errorf("%v events wait in the journal", n)
		}
		if got = js.read("AUDIT"); len(got) < len(want) {
			return fmt.Errorf("%d events, but the API server has logged %d", len(got), len(want))
		}
		return nil
	})
	if n := b.metric("deltabridge_audit_lost_events_total"); n > 0 {
		t.Errorf("%v events are lost", n)
	}
	b.stop()
	a.judge("JetStream", want, js.read("AUDIT"))
}

// awaitRotation waits until the log was rotated again, unless everything was written before.
func awaitRotation(ctx context.Context, a *audited, before int) {
	for deadline := time.Now().Add(20 * time.Second); a.backups() == before && time.Now().Before(deadline); {
		select {
		case <-ctx.Done():
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}
