package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/kafka"
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
	for deadline := time.Now().Add(patience(20 * time.Second)); a.backups() == before && time.Now().Before(deadline); {
		select {
		case <-ctx.Done():
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Two bridges, as on two control plane nodes, write the events of their logs to the same topic, under the same name of the
// cluster and of the sink. Each event is there once, and after a kill of one of them, at least once.
func TestAuditEventsOfTwoBridges(t *testing.T) {
	t.Parallel()
	k, topic := kafka.ForTest(t), "two-bridges-"+newNamespace(t, clientset(t, sharedCluster(t)))
	kafka.CreateTopic(t, k.Addr(), topic, 3, nil)
	_, want := auditMessages(scale.Of(800, 20000))
	lines := slices.Collect(maps.Values(want))
	third := len(lines) / 3
	var logs, dirs []string
	for range 2 {
		dir := t.TempDir()
		logs, dirs = append(logs, filepath.Join(dir, "audit.log")), append(dirs, dir)
	}
	write := func(lines [][]byte) {
		t.Helper()
		for n, line := range lines {
			file, err := os.OpenFile(logs[n%2], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err == nil {
				_, err = file.Write(append(line, '\n'))
			}
			if err = errors.Join(err, file.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
	start := func(n int) *bridge {
		return startBridgeIn(t, dirs[n], sharedCluster(t).Kubeconfig(), fmt.Sprintf(`
audit: {files: [%q]}
sinks: [{name: kafka, events: audit, kafka: {brokers: [%q], topic: %q}}]
`, logs[n], k.Addr(), topic))
	}
	var got []received
	await := func(n int) {
		t.Helper()
		eventually(t, time.Minute, func() error {
			if got = slices.Concat(readKafka(t, k.Addr(), topic)...); len(got) < n {
				return fmt.Errorf("%d of %d events", len(got), n)
			}
			return nil
		})
	}
	write(lines[:third])
	one, two := start(0), start(1)
	await(third / 2)
	write(lines[third : 2*third])
	await(2 * third)
	if len(got) != 2*third {
		t.Errorf("%d records for %d events", len(got), 2*third)
	}
	one.kill()
	write(lines[2*third:])
	one = start(0)
	eventually(t, time.Minute, func() error {
		await(len(lines))
		if waits := one.metric("deltabridge_audit_events_total") < float64(len(lines)/2-third); waits ||
			one.metric("deltabridge_audit_journal_events")+two.metric("deltabridge_audit_journal_events") > 0 {
			return errors.New("events wait")
		}
		return nil
	})
	one.stop()
	two.stop()
	await(len(lines))
	// The killed one may have imported its events (half of two thirds) twice, and delivered the first copies twice.
	if repeated := judgeAudit(t, "Kafka", want, got); repeated > 2*third {
		t.Errorf("%d repetitions, but only one bridge was killed", repeated)
	}
}
