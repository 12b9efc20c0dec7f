package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/test/scale"
)

// apiHistory is the time that the fuse counts on after the queue is full.
const apiHistory = 75 * time.Second

// TestFuse: a broker is away while a steady rate of changes fills the queue on disk and in memory. At each moment before,
// the status has said how much longer that takes at least. After the outage, it says that everything is delivered.
func TestFuse(t *testing.T) {
	t.Parallel()
	c, js := sharedCluster(t), startJetStream(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	b := startBridgeIn(t, t.TempDir(), c.Kubeconfig(), fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [%s]}]
sinks:
  - name: audit
    buffer: {events: 64, bytes: 1Mi, spill: {maxBytes: 384Ki}}
    nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}
`, namespace, js.url()))
	b.waitReady()
	changes := startChanges(t, cs, namespace, 50, 20)
	pause(t, 15*time.Second) // so that the rate of the last seconds is that of the changes
	holdsOnce(t, func(string) error {
		eventually(t, time.Minute, func() error {
			if s := b.status(); s.Sinks[0].Fuse != nil || s.Sinks[0].Delivered == 0 || s.Sinks[0].Rate < 5 ||
				s.Sources[0].Rate < 5 ||
				s.Verdict.Health != control.Healthy {
				return fmt.Errorf("before the outage: %+v", s)
			}
			return nil
		})
		js.stop()
		foretold, full := b.watchFuse()
		b.atRisk()
		js.start()
		return judgeFuse(t, foretold, full)
	})
	changes.stop()
	truth := upTo(t, b, c, namespace)
	eventually(t, time.Minute, func() error {
		if s := b.status(); s.Sinks[0].Fuse != nil || s.Verdict.Text != "Everything is delivered." {
			return fmt.Errorf("after the outage: %+v", s)
		}
		return nil
	})
	if _, body, err := b.get("/metrics"); err != nil || strings.Contains(body, "\ndeltabridge_fuse_seconds{") {
		t.Errorf("the metric stays: %v", err)
	}
	if out, errs, err := runBridge(
		t,
		"status",
		"--address",
		b.addr,
	); err != nil ||
		!strings.HasPrefix(out, "OK  Everything is delivered.\n") {
		t.Errorf("bridge status: %v: %s%s", err, out, errs)
	}
	b.stop()
	judgeWhole(t, "audit", truth, "configmaps/"+namespace+"/", js.read("E2E"))
}

// atRisk requires that the command and the metric show a fuse that burns while the source waits.
func (b *bridge) atRisk() {
	t := b.t
	t.Helper()
	out, errs, err := runBridge(t, "status", "--address", b.addr)
	if err == nil || !strings.HasPrefix(out, "AT RISK  Sink audit does not deliver since ") ||
		!strings.Contains(errs, "sink audit: retrying") {
		t.Errorf("bridge status: %v: %s%s", err, out, errs)
	}
	if left := b.metric("deltabridge_fuse_seconds", "sink=audit"); left <= 0 || left > apiHistory.Seconds() {
		t.Errorf("while the source waits, the fuse is %v s", left)
	}
}

// moment is what the status said at a time: when the queue will be full at the earliest.
type moment struct{ at, full time.Time }

// watchFuse waits until a source waits for the queue. It returns what the status has said until then, and when the source
// began to wait.
func (b *bridge) watchFuse() (foretold []moment, full time.Time) {
	b.t.Helper()
	eventually(b.t, 2*time.Minute, func() error {
		s := b.status()
		fuse := s.Sinks[0].Fuse
		if fuse == nil {
			return errors.New("no fuse")
		}
		left := time.Duration(fuse.Seconds*float64(time.Second)) - apiHistory
		if s.Sinks[0].Queue.Blocked {
			full = s.At.Add(left)
			return nil
		}
		foretold = append(foretold, moment{s.At, s.At.Add(left)})
		return errors.New("the queue is not full")
	})
	return foretold, full
}

// judgeFuse compares what was foretold with when the queue was full.
func judgeFuse(t *testing.T, foretold []moment, full time.Time) (err error) {
	t.Helper()
	wrong := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	if len(foretold) < 50 {
		return fmt.Errorf("only %d statuses until the queue was full", len(foretold))
	}
	early := 0
	for n, m := range foretold {
		left := full.Sub(m.at)
		late := m.full.Sub(full)
		if late > scale.Of(10*time.Second, 3*time.Second)+max(0, left)*2/5 {
			wrong("%.1f s before the queue was full, it was foretold %.1f s too late", left.Seconds(), late.Seconds())
		}
		if -late > scale.Of(10*time.Second, 2*time.Second)+max(0, left)/2 {
			early++
		}
		if n%25 == 0 {
			t.Logf("%.1f s before the queue was full, %.1f s were foretold", left.Seconds(), m.full.Sub(m.at).Seconds())
		}
	}
	if early > len(foretold)/4 {
		wrong("%d of %d times, less than half of the time was foretold", early, len(foretold))
	}
	first, last := foretold[0], foretold[len(foretold)-1]
	if first.full.Sub(first.at) < 2*last.full.Sub(last.at) {
		wrong("at first %v, at last %v", first, last)
	}
	return err
}

// status reads the status.
func (b *bridge) status() (s control.Status) {
	b.t.Helper()
	code, body, err := b.get(control.StatusPath)
	if err == nil {
		err = json.Unmarshal([]byte(body), &s)
	}
	if err != nil || code != 200 || len(s.Sinks) == 0 {
		b.t.Fatalf("status: %d, %v: %s", code, err, body)
	}
	return s
}
