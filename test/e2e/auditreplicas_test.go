package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

// auditReplica is one of several replicas that accept audit events, and its directory.
type auditReplica struct {
	*bridge

	address, dir string
}

// auditReplicas are replicas behind a load balancer.
type auditReplicas struct {
	*audited

	all     *replicas
	service *sinktest.Proxy
}

func (r *auditReplicas) start() *auditReplica {
	r.t.Helper()
	one := &auditReplica{address: freeAddress(r.t), dir: r.t.TempDir()}
	own := *r.all
	own.config = fmt.Sprintf(r.keys, one.address) + own.config
	one.bridge = own.startIn(one.dir)()
	return one
}

// route makes the load balancer use a replica.
func (r *auditReplicas) route(to *auditReplica) {
	r.service.SetTarget(to.address)
	r.service.Cut()
}

// held returns the events in the journal of a replica that is killed: those that it had not delivered everywhere, apart
// from those that were spilled.
func (b *auditReplica) held() map[auditKey]bool {
	b.t.Helper()
	journal, err := audit.OpenJournal(audit.JournalOptions{
		Dir: filepath.Join(b.dir, "state", "audit"), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	defer journal.Close()
	held := map[auditKey]bool{}
	status := journal.Status()
	for next := status.Acked + 1; next <= status.Last; {
		records, err := journal.Read(b.t.Context(), next, 1<<20)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, record := range records {
			if next = record.Last + 1; record.Err != nil {
				b.t.Fatal(record.Err)
			}
			held[keyOf(b.t, record.Event.Raw)] = true
		}
	}
	return held
}

// spilled returns the files of the state of a replica that is killed, without its journal. They contain the events that
// were waiting for a sink when it went away.
func (b *auditReplica) spilled() (files []byte) {
	b.t.Helper()
	state := filepath.Join(b.dir, "state")
	if err := filepath.WalkDir(state, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path == filepath.Join(state, "audit"):
			return filepath.SkipDir
		case d.IsDir():
			return nil
		}
		content, err := os.ReadFile(path)
		files = append(files, content...)
		return err
	}); err != nil {
		b.t.Fatal(err)
	}
	return files
}

// loss is what is lost with the disk of a replica.
type loss struct {
	replica string
	held    map[auditKey]bool // what its journal had
	spilled []byte            // what else the disk had
	by      time.Time         // the gap event must begin before
}

// judge checks that only events of the lost disk are missing, and that a gap event names it.
func (r *auditReplicas) judge(broker string, lost loss, got []received) (missing int) {
	r.t.Helper()
	gaps := map[string]bool{}
	events := slices.DeleteFunc(slices.Clone(got), func(m received) bool {
		if m.attributes["type"] != "dev.deltabridge.gap" {
			return false
		}
		var gap struct{ Message string }
		if err := json.Unmarshal(
			m.data,
			&gap,
		); err != nil ||
			!strings.Contains(gap.Message, "replica "+lost.replica+" is gone") {
			r.t.Errorf("%s: unexpected gap event %s (%v)", broker, m.data, err)
		}
		_, after, _ := strings.Cut(gap.Message, "accepted since ")
		text, _, _ := strings.Cut(after, " ")
		if since, err := time.Parse(time.RFC3339, text); err != nil || since.After(lost.by) {
			r.t.Errorf("%s: %s: %v, want a time before %v", broker, gap.Message, err, lost.by)
		}
		gaps[m.id()] = true
		return true
	})
	if len(gaps) != 1 {
		r.t.Errorf("%s: %d gap events, want 1", broker, len(gaps))
	}
	seen := map[auditKey]bool{}
	for _, m := range events {
		seen[keyOf(r.t, m.data)] = true
	}
	want := r.logged()
	for key := range want {
		if seen[key] {
			continue
		}
		missing++
		delete(want, key)
		if !lost.held[key] && !bytes.Contains(lost.spilled, []byte(key.AuditID)) {
			r.t.Errorf("%s: %+v is missing, and was not on the lost disk", broker, key)
		}
	}
	r.t.Logf("%s: %d events of the lost disk are missing", broker, missing)
	r.audited.judge(broker, want, events)
	return missing
}

// Two replicas without a volume accept the audit events of an API server. The standby is killed, with its disk, while
// JetStream is away. The leader is stopped, as in a rolling update. Every audit event is in both destinations, except
// those that only the lost disk had: a gap event names this replica, and since when events may be missing.
func TestAuditEventsOfReplicas(t *testing.T) {
	t.Parallel()
	service := sinktest.NewProxy(t, "")
	r := &auditReplicas{audited: startAudited(t, auditPolicy, service.Addr()), service: service}
	js, logs, k := startJetStream(t), startJetStream(t), kafka.ForTest(t)
	r.hidden.value()
	topic := "audit-" + newNamespace(t, clientset(t, r.cluster))
	kafka.CreateTopic(t, k.Addr(), topic, 3, nil)
	r.all = newReplicas(t, r.cluster.Kubeconfig(), "audit-replicas", fmt.Sprintf(
		"nats: {url: %q, stream: {name: STATE, create: true}}", logs.url()), fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [audited]}]
sinks:
  - {name: changes, kafka: {brokers: [%q], topic: %q, createTopics: {partitions: 1, replicationFactor: 1}}}
  - name: jetstream
    events: audit
    nats: {url: %q, subject: "audit.{cluster}.{group}.{resource}.{namespace}.{name}", stream: {name: AUDIT, create: true}}
  - {name: kafka, events: audit, kafka: {brokers: [%q], topic: %q}}
`, k.Addr(), topic+"-changes", js.url(), k.Addr(), topic)).withShortLease()
	leader := r.start()
	leader.waitLeader()
	standby := r.start()
	standby.waitReady()
	r.route(standby)
	w := r.startWriters(scale.Of(200, 2000), 4)
	eventually(t, time.Minute, func() error {
		if standby.metric("deltabridge_events_acknowledged_total", "sink=jetstream") == 0 {
			return errors.New("the standby has delivered nothing")
		}
		return nil
	})
	js.stop()
	w.next()
	eventually(t, time.Minute, func() error {
		if n := standby.metric("deltabridge_audit_journal_events"); n < 10 {
			return fmt.Errorf("only %v events wait in the journal while JetStream is away", n)
		}
		return nil
	})
	lost := loss{by: time.Now()} // the first of these events was accepted before
	w.next()                     // all of this part was written while JetStream was away
	if n := leader.metric("deltabridge_audit_events_total"); n > 0 {
		t.Errorf("the leader has accepted %v events", n)
	}
	lost.replica = standby.status().Replica.Name
	standby.kill()
	lost.held, lost.spilled = standby.held(), standby.spilled()
	r.route(leader)
	js.start()
	third := r.start()
	third.waitReady()

	w.next()
	eventually(t, time.Minute, func() error {
		if leader.metric("deltabridge_audit_events_total") == 0 {
			return errors.New("the leader has accepted nothing")
		}
		if leader.metric("deltabridge_events_acknowledged_total", "sink=jetstream") == 0 {
			return errors.New("the leader has not noticed that JetStream is back")
		}
		return nil
	})
	leader.stop() // refuses events, and delivers what it has
	if strings.Contains(leader.log.String(), "stopping with audit events") {
		t.Error("the leader has stopped with events that it could not deliver")
	}
	r.route(third)
	w.wait()
	third.waitLeader()
	eventually(t, 3*time.Minute, func() error { // a record lapses after six times the duration of the lease
		if !strings.Contains(leader.log.String()+third.log.String(), "because a replica is gone\" replica="+lost.replica) {
			return errors.New("no leader has announced the loss")
		}
		return nil
	})
	if err := r.cluster.StopAPIServer(t.Context()); err != nil { // sends what it has
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error {
		if n := third.metric("deltabridge_audit_journal_events"); n > 0 {
			return fmt.Errorf("%v events wait in the journal", n)
		}
		return nil
	})
	third.stop()
	if r.judge("JetStream", lost, js.read("AUDIT")) == 0 {
		t.Error("JetStream: nothing was lost with the disk, so the test shows nothing")
	}
	r.judge("Kafka", lost, slices.Concat(readKafka(t, k.Addr(), topic)...))
}

// A replica without a sink for changes accepts and delivers audit events, also after a restart, and has no other rights
// than those that `bridge rbac` prints. That a sink cannot be paused is said with the reason.
func TestReplicasForAuditEventsOnly(t *testing.T) {
	t.Parallel()
	js, address, dir, tokenFile := startJetStream(t), freeAddress(t), t.TempDir(), filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newReplicas(t, "", "audit-only", fmt.Sprintf("nats: {url: %q, stream: {name: STATE, create: true}}", js.url()),
		fmt.Sprintf(`
audit: {listen: %q, tokenFile: %q}
sinks:
  - {name: who, events: audit, nats: {url: %q, subject: "who.{resource}", stream: {name: WHO, create: true}}}
`, address, tokenFile, js.url()))
	r.kubeconfig = withRights(t, sharedCluster(t), fmt.Sprintf("state: {path: %q%s}\n", dir, r.state)+r.config)
	for n := range 2 {
		b := r.startIn(dir)()
		b.waitLeader()
		sendAudit(t, address, "secret", fmt.Sprintf(`{"level":"Metadata","auditID":"e%d","stage":"Panic"}`, n))
		eventually(t, 20*time.Second, func() error {
			if got := js.read("WHO"); len(got) != n+1 || auditID(got[n]) != fmt.Sprintf("e%d", n) {
				return fmt.Errorf("%d events", len(got))
			}
			return nil
		})
		if out, errs, err := runBridge(t, "pause", "who", "--config", filepath.Join(dir, "bridge.yaml")); err == nil ||
			!strings.Contains(errs, "every replica delivers those that it has accepted") {
			t.Errorf("pause: %v: %s%s", err, out, errs)
		}
		if s := b.status(); len(s.Sinks) != 1 || s.Sinks[0].Name != "who" {
			t.Errorf("sinks: %+v", s.Sinks)
		}
		if log := b.log.String(); strings.Contains(log, "orbidden") {
			t.Error("the bridge lacks a right")
		}
		b.stop()
	}
}
