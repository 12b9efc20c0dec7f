package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/auditread"
	"github.com/deltabridge/deltabridge/internal/delivery"
	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/redact"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// auditDestination records what it is sent, unless it is away.
type auditDestination struct {
	away atomic.Bool
	mu   sync.Mutex
	ids  []string // the auditID of an event, or the message of a gap
	data []string
}

var errAway = errors.New("away")

func (d *auditDestination) Connect(context.Context) error { return nil }
func (d *auditDestination) Close(context.Context) error   { return nil }
func (d *auditDestination) Part(*event.Message) string    { return "" }

func (d *auditDestination) Send(_ context.Context, batch []*event.Message, results []error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n, m := range batch {
		if d.away.Load() {
			results[n] = errAway
			continue
		}
		id, _, _ := strings.Cut(m.ID, ".")
		if m.Type == event.Gap {
			id = fmt.Sprintf("gap of %d: %s", m.GapInfo.Events, m.GapInfo.Message)
		}
		d.ids, d.data = append(d.ids, id), append(d.data, string(m.Data))
	}
}

// sent returns what was sent so far, and forgets it.
func (d *auditDestination) sent() (ids []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids, d.ids = d.ids, nil
	return ids
}

func (d *auditDestination) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.ids)
}

// auditBridge is a process that delivers audit events, as often as it is started.
type auditBridge struct {
	t       *testing.T
	state   string
	rules   []filter.Rule
	sinks   map[string]*auditDestination
	buffer  delivery.Buffer
	store   *checkpoint.Store
	journal *audit.Journal
	e       *Engine
	stop    context.CancelFunc
	ended   chan error
	// maxBytes is the limit of the journal; 0 if there is none.
	maxBytes int64
	n        int // number of events that were appended
	// replica is set for one of several replicas (Options.AuditOnly).
	replica bool
}

func newAuditBridge(t *testing.T, names ...string) *auditBridge {
	t.Helper()
	b := &auditBridge{t: t, state: t.TempDir(), sinks: map[string]*auditDestination{}, buffer: roomy}
	for _, name := range names {
		b.sinks[name] = &auditDestination{}
	}
	return b
}

func (b *auditBridge) journalDir() string { return filepath.Join(b.state, "audit") }

// open opens the checkpoint and the journal.
func (b *auditBridge) open() {
	b.t.Helper()
	store, err := checkpoint.Open(checkpoint.Options{Path: b.state, ClusterName: "c", NoSync: true})
	if err != nil {
		b.t.Fatal(err)
	}
	o := audit.JournalOptions{Dir: b.journalDir(), MaxBytes: b.maxBytes, Logger: slog.New(slog.DiscardHandler)}
	for name := range b.sinks {
		o.Known = append(o.Known, auditread.Known(store.Positions(name))...)
	}
	if b.journal, err = audit.OpenJournal(o); err != nil {
		b.t.Fatal(err)
	}
	b.store = store
}

// start starts an engine, whose API server does not answer.
func (b *auditBridge) start(kept *Kept) {
	b.t.Helper()
	o := Options{
		Cluster:         "c",
		State:           b.state,
		Store:           b.store,
		Metrics:         metrics.New("", ""),
		ShutdownTimeout: time.Second,
		Kube: &rest.Config{
			Host: "https://127.0.0.1:1",
		},
		Logger:  slog.New(slog.DiscardHandler),
		Journal: b.journal,
		Kept:    kept, AuditOnly: b.replica,
	}
	for name, d := range b.sinks {
		o.Sinks = append(o.Sinks, Sink{
			Name: name, Encoder: &event.Encoder{Redactor: redact.New(make([]byte, 32))}, Destination: d, Buffer: b.buffer,
			Disconnect: d.Close, Audit: true, Rules: b.rules,
		})
	}
	var err error
	if b.e, err = New(o); err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	b.stop, b.ended = stop, make(chan error, 1)
	go func() { b.ended <- b.e.Run(ctx) }()
}

// end ends the engine, and closes what open has opened.
func (b *auditBridge) end() {
	b.t.Helper()
	b.stop()
	if err := errors.Join(<-b.ended, b.journal.Close(), b.store.Close()); err != nil {
		b.t.Error(err)
	}
}

// add appends events with the ids e1, e2 and so on.
func (b *auditBridge) add(count int) {
	b.t.Helper()
	for range count {
		b.n++
		raw := fmt.Sprintf(`{"auditID":"e%d","stage":"ResponseComplete","verb":"create","objectRef":{"resource":"secrets",`+
			`"namespace":"n%d","apiVersion":"v1"},"responseObject":{"kind":"Secret","data":{"a":"hunter2"}},`+
			`"stageTimestamp":"2020-01-01T00:00:00Z"}`, b.n, b.n%2)
		if err := b.journal.Append(b.t.Context(), [][]byte{[]byte(raw)}); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *auditBridge) await(what string, done func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatal("never: " + what)
		}
	}
}

func (b *auditBridge) awaitSent(sink string, count int) {
	b.t.Helper()
	b.await(fmt.Sprintf("%s is sent %d events", sink, count), func() bool { return b.sinks[sink].count() >= count })
}

// checkAcked checks up to where the journal has no events any more.
func (b *auditBridge) checkAcked(want uint64) {
	b.t.Helper()
	b.open()
	if s := b.journal.Status(); s.Acked != want {
		b.t.Errorf("journal: %+v, want everything up to %d acknowledged", s, want)
	}
	if err := errors.Join(b.journal.Close(), b.store.Close()); err != nil {
		b.t.Error(err)
	}
}

// ids returns the ids from e<first> to e<last>.
func ids(first, last int) (all []string) {
	for n := first; n <= last; n++ {
		all = append(all, fmt.Sprintf("e%d", n))
	}
	return all
}

func (b *auditBridge) check(sink string, want ...string) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.sinks[sink].sent()); diff != "" {
		b.t.Errorf("%s (-want +sent):\n%s", sink, diff)
	}
}

// Events reach all sinks, and a restart continues behind what was delivered. While a sink is away, its events wait in
// the journal, and not in its spill; the others do not wait.
func TestAuditDelivery(t *testing.T) {
	b := newAuditBridge(t, "a", "b")
	b.buffer.Events = 40 // five in flight
	b.open()
	b.start(nil)
	b.add(3)
	b.awaitSent("a", 3)
	b.awaitSent("b", 3)
	b.sinks["b"].away.Store(true)
	b.add(50)
	b.awaitSent("a", 53)
	b.check("a", ids(1, 53)...)
	b.await("b does not deliver", func() bool { return b.e.Stuck()["b"] >= 50 })
	for _, p := range b.e.pipelines {
		if n := p.Queue.Stats().Items; n > 5 {
			t.Errorf("%d events are in the queue of %s", n, p.Name)
		}
		if age := p.Queue.Age(); age > time.Minute {
			t.Errorf("events in the queue of %s count as %v old, so that they are spilled", p.Name, age)
		}
	}
	b.end()
	b.open()
	if s := b.journal.Status(); s.Acked < 3 || s.Acked > 8 || s.Last != 53 {
		t.Errorf("journal: %+v", s)
	}
	b.sinks["b"].away.Store(false)
	b.start(nil)
	b.awaitSent("b", 53)
	b.check("b", ids(1, 53)...)
	b.add(1)
	b.awaitSent("a", 1)
	b.check("a", "e54")
	b.awaitSent("b", 1)
	b.check("b", "e54")
	for _, data := range slices.Concat(b.sinks["a"].data, b.sinks["b"].data) {
		if strings.Contains(data, "hunter2") || !strings.Contains(data, `"apiVersion":"audit.k8s.io/v1"`) {
			t.Fatalf("data %s", data)
		}
	}
	b.end()
	b.checkAcked(54)
}

// While a sink is paused, nothing is put into its queue.
func TestAuditPaused(t *testing.T) {
	b := newAuditBridge(t, "a", "b")
	b.maxBytes = 1 << 20
	b.open()
	b.start(nil)
	paused := b.e.pipelines[0]
	b.await("the sink delivers", paused.Drain.Delivering)
	if _, err := paused.SetPaused(true); err != nil {
		t.Fatal(err)
	}
	observer := b.e.newObserver()
	observer.Sample(time.Now().Add(-5 * time.Second))
	b.add(10)
	b.awaitSent(b.e.pipelines[1].Name, 10)
	if n := paused.Queue.Stats().Items; n > 0 {
		t.Errorf("%d events are in the queue", n)
	}
	status := observer.Status().Sinks
	if fuse := status[0].Fuse; fuse == nil || !strings.Contains(fuse.Text, "no audit event is accepted") ||
		status[1].Fuse != nil {
		t.Errorf("fuses %+v, %+v", fuse, status[1].Fuse)
	}
	if waiting := status[0].Queue.Journal; waiting != 10 {
		t.Errorf("%d events wait in the journal", waiting)
	}
	if _, err := paused.SetPaused(false); err != nil {
		t.Fatal(err)
	}
	b.awaitSent(paused.Name, 10)
	b.end()
}

// A filter that lets nothing pass still moves the position.
func TestAuditFiltered(t *testing.T) {
	b := newAuditBridge(t, "a")
	b.rules = []filter.Rule{{Namespaces: []string{"n1"}, When: "event.auditID != 'e3'"}}
	b.open()
	b.start(nil)
	b.add(6)
	b.awaitSent("a", 2)
	b.await("all are read", func() bool { return b.e.pipelines[0].audit.Backlog() == 0 })
	b.end()
	b.check("a", "e1", "e5")
	b.checkAcked(6)
}

// If the process ends after the position was stored and before the journal has removed the events, nothing is sent
// again. If it ends before the position is stored, what was sent is sent again.
func TestAuditCrash(t *testing.T) {
	b := newAuditBridge(t, "a")
	b.open()
	b.add(5)
	stored := sinks.Positions{"audit journal": {Journal: b.journal.ID(), Next: 4}}
	if err := b.store.AddPositions(map[string]sinks.Positions{"a": stored}); err != nil {
		t.Fatal(err)
	}
	b.start(nil)
	b.awaitSent("a", 2)
	b.end()
	b.check("a", ids(4, 5)...)
}

const (
	goneGap = "gap of 0: audit events may be missing: audit events that were not delivered may be lost, because the audit " +
		"journal is not the one that they were in"
	oldCopy        = "an older copy"
	oldUndelivered = "an older copy, which lacks only what was not delivered"
)

// A lost disk is announced, and so is an older copy of it: once, but again if the process ends before the gap event is
// delivered. Later events follow.
func TestAuditLostDisk(t *testing.T) {
	for _, how := range []string{"an empty directory", oldCopy, oldUndelivered} {
		t.Run(how, func(t *testing.T) {
			b := newAuditBridge(t, "a")
			b.open()
			b.start(nil)
			b.add(1)
			b.awaitSent("a", 1)
			b.end()
			copyDir(t, b.journalDir(), b.journalDir()+".copy")
			b.open()
			b.start(nil)
			want := ids(1, 3)
			if how == oldUndelivered {
				b.await("the sink delivers", b.e.pipelines[0].Drain.Delivering)
				b.e.pipelines[0].Drain.Pause(time.Now())
				want = ids(1, 1)
			}
			b.add(2)
			b.awaitSent("a", len(want))
			b.check("a", want...)
			b.end()
			if err := os.RemoveAll(b.journalDir()); err != nil {
				t.Fatal(err)
			}
			if how != "an empty directory" {
				copyDir(t, b.journalDir()+".copy", b.journalDir())
			}

			b.open()
			b.sinks["a"].away.Store(true)
			b.start(nil)
			b.await("the gap event is in the queue", func() bool { return b.e.pipelines[0].Queue.Stats().Items > 0 })
			b.e.commitAudit()
			killed := t.TempDir()
			copyDir(t, b.state, killed)
			b.end()
			b.state = killed
			b.sinks["a"].away.Store(false)
			b.open()
			b.start(nil)
			b.add(1)
			b.awaitSent("a", 2)
			b.check("a", goneGap, "e4")
			b.end()
			b.open()
			b.start(nil)
			b.add(1)
			b.awaitSent("a", 1)
			b.check("a", "e5")
			b.end()
		})
	}
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// A damaged part of the journal is announced in its place.
func TestAuditDamagedPart(t *testing.T) {
	b := newAuditBridge(t, "a")
	b.open()
	b.add(20)
	if err := b.journal.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.store.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(b.journalDir(), "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(content, []byte(`"auditID":"e7"`)); at > 0 {
			content[at+12] = 'x'
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.open()
	b.start(nil)
	b.await("everything is read", func() bool { return b.e.pipelines[0].audit.Backlog() == 0 })
	b.end()
	sent := b.sinks["a"].sent()
	gap := slices.IndexFunc(sent, func(id string) bool { return strings.HasPrefix(id, "gap of ") })
	var lost int
	if gap < 0 {
		t.Fatalf("no gap event: %v", sent)
	}
	if _, err := fmt.Sscanf(sent[gap], "gap of %d:", &lost); err != nil || lost == 0 {
		t.Errorf("%s", sent[gap])
	}
	if diff := cmp.Diff(
		slices.Concat(ids(1, 6), ids(7+lost, 20)),
		slices.Delete(slices.Clone(sent), gap, gap+1),
	); diff != "" ||
		gap != 6 {
		t.Errorf("the gap at %d stands for %d events (-want +sent):\n%s", gap, lost, diff)
	}
}

// A changed configuration does not disturb a sink that stays the same: nothing is sent again, and nothing is lost.
func TestAuditReplacedEngine(t *testing.T) {
	b := newAuditBridge(t, "kept", "changed")
	b.open()
	b.start(nil)
	for n := range 2 {
		b.add(60)
		b.awaitSent("kept", 60*n+20)
		b.e.Replace(func(sink string) bool { return sink == "kept" })
		if err := <-b.ended; err != nil {
			t.Fatal(err)
		}
		if len(b.e.Kept().deliveries) != 1 {
			t.Fatal("the sink was not kept")
		}
		b.start(b.e.Kept())
	}
	b.add(80)
	for name := range b.sinks {
		b.awaitSent(name, 200)
		b.check(name, ids(1, 200)...)
	}
	b.end()
}

// What waits in the journal for a sink that is not kept counts as undelivered, and the sink gets it if it stays.
func TestAuditUndelivered(t *testing.T) {
	b := newAuditBridge(t, "stays", "removed")
	b.buffer.Events = 40 // five in flight
	b.open()
	b.start(nil)
	b.add(3)
	b.awaitSent("removed", 3)
	b.sinks["removed"].away.Store(true)
	b.add(50)
	b.awaitSent("stays", 53)
	b.e.Replace(func(sink string) bool { return sink == "stays" })
	if err := <-b.ended; err != nil {
		t.Fatal(err)
	}
	b.add(7)
	if n := b.e.Undelivered(); n["removed"] != 50 || len(n) != 1 {
		t.Errorf("undelivered: %v", n)
	}
	b.sinks["removed"].away.Store(false)
	b.start(b.e.Kept())
	for name := range b.sinks {
		b.awaitSent(name, 60)
		b.check(name, ids(1, 60)...)
	}
	b.end()
}

// No change passes the filter of a sink that is sent audit events. If the sink is sent changes later, it is therefore
// sent everything that passes its new filter.
func TestAuditSinkKnowsNoObjects(t *testing.T) {
	f, mistakes := filter.Compile((&Sink{Audit: true}).changeRules(), filter.Options{})
	if len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	for _, namespace := range []string{"", "shop"} {
		o := &object.Object{Identity: object.Identity{Namespace: namespace, Name: "n"}, Raw: []byte("{}")}
		if f.For(pods).Belongs(o) {
			t.Errorf("an object in the namespace %q passes", namespace)
		}
	}
}
