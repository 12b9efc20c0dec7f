package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/delivery"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// reporter is a pipeline with progress events, and its sink, which has a part for each object.
type reporter struct {
	t         *testing.T
	p         *pipeline
	listeners map[string]*listener // by source

	mu      sync.Mutex      // guards the following fields
	watched map[string]bool // the sources that are watched
	leaving map[schema.GroupResource]bool
	unknown bool // not all sources are known

	refuses func(name string) error // why the sink does not take the events of an object; nil if it takes them
	stuck   chan struct{}           // if it is not nil, Send waits until it is closed
	takes   time.Duration           // how long Send takes
	took    []*event.Message
	onMark  func(info event.ProgressInfo)
	arrived func(destination string) error // says which destination it has
}

func (r *reporter) Connect(context.Context) error { return nil }
func (r *reporter) Close(context.Context) error   { return nil }

func (r *reporter) Part(m *event.Message) string {
	if m.Type.IsControl() {
		return "control"
	}
	return m.Identity.Name
}

func (r *reporter) Send(ctx context.Context, batch []*event.Message, results []error) {
	r.mu.Lock()
	stuck, takes := r.stuck, r.takes
	r.mu.Unlock()
	if stuck != nil {
		select {
		case <-stuck:
		case <-ctx.Done():
		}
	}
	time.Sleep(takes)
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, m := range batch {
		if results[n] = cmpOr(ctx.Err(), r.refuses(m.Identity.Name)); results[n] != nil {
			continue
		}
		r.took = append(r.took, m)
		if m.Type == event.Progress && r.onMark != nil {
			r.onMark(*m.ProgressInfo)
		}
	}
}

// set changes fields of the reporter.
func (r *reporter) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func cmpOr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

const reportEvery = 10 * time.Second

// startReporter must be called in a bubble. The sink gets progress events about the sources, which are watched.
func startReporter(t *testing.T, buffer delivery.Buffer, sources ...informer.Source) *reporter {
	t.Helper()
	r := &reporter{
		t: t, listeners: map[string]*listener{}, watched: map[string]bool{}, refuses: nothing,
	}
	r.p = pipelineFor(t, buffer)
	r.p.progress.every = reportEvery
	r.p.progress.sources = func() (map[string]bool, map[schema.GroupResource]bool, bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return maps.Clone(r.watched), r.leaving, !r.unknown
	}
	for _, s := range sources {
		r.watched[s.Name] = true
		r.p.progress.attach(s)
		to := ledger.New(ledger.Source{}, ledger.State{}, []string{r.p.Name}, 0)
		r.listeners[s.Name] = newListener(t.Context(), r.p, s, to, "")
	}
	r.arrived = r.p.Drain.Sink.(*sinks.Guard).OnDestination
	r.p.Drain.Sink, r.p.Drain.MaxBatch = r, 3
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.p.Drain.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return r
}

// withoutA refuses the events of the object a.
func withoutA(name string) error {
	if name == "a" {
		return sinks.Unavailable("a", sinks.Rejected(errors.New("no")))
	}
	return nil
}

var podsSource = informer.Source{Name: "pods", Resource: pods}

func namedPod(t *testing.T, name string, rv int) *object.Object {
	t.Helper()
	o, err := object.New(fmt.Appendf(nil,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"shop","uid":%q,"resourceVersion":"%d"}}`,
		name, "u-"+name, rv))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// change pushes a change of an object and reaches its resourceVersion.
func (r *reporter) change(source, name string, rv int) {
	r.t.Helper()
	r.listeners[source].OnUpdate(namedPod(r.t, name, rv-1), namedPod(r.t, name, rv))
	r.listeners[source].OnPosition(strconv.Itoa(rv))
}

// taken returns what the sink has taken since the last call, as "operation resourceVersion", in the order in which it
// was taken.
func (r *reporter) taken() (all []string) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.took {
		text := m.Type.String() + " " + m.Identity.ResourceVersion
		if m.Resource != pods {
			text += " " + m.Resource.Resource
		}
		all = append(all, text)
	}
	r.took = nil
	return all
}

func (r *reporter) expect(want ...string) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.taken()); diff != "" {
		r.t.Errorf("at the destination (-want +got):\n%s", diff)
	}
}

// A progress event is sent at each interval, also while nothing happens. It says as of when it knows.
func TestProgressEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReporter(t, roomy, podsSource)
		time.Sleep(time.Minute)
		r.expect() // nothing is known yet
		l := r.listeners["pods"]
		l.OnAdd(namedPod(t, "a", 3), true)
		time.Sleep(time.Minute) // the list takes long
		r.expect("added 3")
		l.OnSynced("5", 1)
		l.OnPosition("5")
		time.Sleep(reportEvery)
		r.expect("synced 5", "progress 5")
		time.Sleep(2 * reportEvery)
		r.expect("progress 5", "progress 5")
		r.change("pods", "a", 8)
		at := time.Now()
		time.Sleep(3 * reportEvery)
		synctest.Wait()
		last := r.took[len(r.took)-1]
		r.expect("updated 8", "progress 8", "progress 8", "progress 8")
		l.OnPosition("8") // a bookmark
		time.Sleep(reportEvery)
		synctest.Wait()
		now := r.took[0]
		r.expect("progress 8")
		for _, tt := range []struct {
			m    *event.Message
			asOf time.Time
		}{{last, at}, {now, at.Add(3 * reportEvery)}} {
			var info event.ProgressInfo
			if err := json.Unmarshal(tt.m.Data, &info); err != nil {
				t.Fatal(err)
			}
			want := event.ProgressInfo{Resource: "pods", ResourceVersion: "8", AsOf: tt.asOf.UTC()}
			if diff := cmp.Diff(want, info); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
		}
		if last.ID == now.ID || last.Subject() != "pods" || now.Time.Before(at.Add(3*reportEvery)) {
			t.Errorf("events %+v and %+v", last, now)
		}
	})
}

// Each line of the table is a reason why there is no progress event, or not a newer one.
func TestNoProgressEvents(t *testing.T) {
	inA, inB := informer.Source{Name: "pods in a", Resource: pods}, informer.Source{Name: "pods in b", Resource: pods}
	for name, tt := range map[string]struct {
		sources []informer.Source
		run     func(r *reporter)
		want    []string
	}{
		"a source of the resource has no position": {
			sources: []informer.Source{inA, inB},
			run:     func(r *reporter) { r.change("pods in a", "a", 7) },
			want:    []string{"updated 7"},
		},
		"the lowest position of the resource counts": {
			sources: []informer.Source{inA, inB},
			run: func(r *reporter) {
				r.change("pods in a", "a", 101)
				r.change("pods in b", "b", 99)
			},
			want: []string{"updated 101", "updated 99", "progress 99"},
		},
		"a source that is not watched any more": {
			sources: []informer.Source{inA, inB},
			run: func(r *reporter) {
				r.change("pods in a", "a", 7)
				r.set(func() { delete(r.watched, "pods in b") })
			},
			want: []string{"updated 7", "progress 7"},
		},
		"not all sources are known": {
			run: func(r *reporter) {
				r.set(func() { r.unknown = true })
				r.change("pods", "a", 7)
			},
			want: []string{"updated 7"},
		},
		"leaves of another source are not sent yet": {
			run: func(r *reporter) {
				r.set(func() { r.leaving = map[schema.GroupResource]bool{pods.GroupResource(): true} })
				r.change("pods", "a", 7)
			},
			want: []string{"updated 7"},
		},
		"the difference of a changed filter is not sent yet": {
			run: func(r *reporter) {
				r.listeners["pods"].refilter = &refilter{}
				r.listeners["pods"].floor = "9"
				r.listeners["pods"].OnPosition("7")
			},
		},
		"an update waits because of a debounce": {
			run: func(r *reporter) {
				l := r.listeners["pods"]
				l.OnPosition("7")
				l.waits.add(&waitingUpdate{now: namedPod(r.t, "a", 8), position: "7", number: 1})
				l.OnPosition("9")
			},
			want: []string{"progress 7"},
		},
		"a part of the initial list may be missing": {
			run: func(r *reporter) {
				r.listeners["pods"].partial = true
				r.listeners["pods"].OnPosition("7")
			},
		},
		"resourceVersions that cannot be compared": {
			run: func(r *reporter) { r.listeners["pods"].OnPosition("x7") },
		},
		"an event is parked": {
			run: func(r *reporter) {
				r.set(func() { r.refuses = withoutA })
				r.change("pods", "a", 7)
				r.change("pods", "b", 8)
			},
			want: []string{"updated 8"},
		},
		"another resource has parked events": {
			sources: []informer.Source{podsSource, {Name: "nodes", Resource: pods.GroupVersion().WithResource("nodes")}},
			run: func(r *reporter) {
				r.set(func() { r.refuses = withoutA })
				r.change("pods", "a", 7)
				r.listeners["nodes"].OnPosition("9")
			},
			want: []string{"progress 9 nodes"},
		},
		"the sink is paused": {
			run: func(r *reporter) {
				r.p.Drain.Pause(time.Now())
				r.change("pods", "a", 7)
			},
		},
		"the destination is new": {
			run: func(r *reporter) {
				if err := r.arrived("stream B"); err != nil {
					r.t.Error(err)
				}
				r.change("pods", "a", 7)
			},
			want: []string{"updated 7"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tt.sources == nil {
					tt.sources = []informer.Source{podsSource}
				}
				r := startReporter(t, roomy, tt.sources...)
				synctest.Wait()
				tt.run(r)
				time.Sleep(reportEvery + time.Second)
				r.expect(tt.want...)
			})
		})
	}
}

// While the sink is behind, progress events follow the events that they cover, one for each interval of the past.
func TestProgressEventsWhileBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReporter(t, delivery.Buffer{Events: 1000, Bytes: 1 << 20, Overflow: delivery.Block}, podsSource)
		synctest.Wait()
		r.set(func() {
			r.takes = 300 * time.Millisecond // longer than the queue waits to store acknowledgements
			r.stuck = make(chan struct{})
		})
		for rv := 1; rv <= 40; rv++ {
			r.change("pods", "a", rv)
			time.Sleep(time.Second)
			r.p.progress.cut(time.Now(), r.p.Queue) // as the tracker does
		}
		r.expect()
		close(r.stuck)
		time.Sleep(9 * time.Second)
		got := r.taken()
		if got[len(got)-1] != "progress 40" || len(got) < 43 {
			t.Errorf("%d: %v", len(got), got)
		}
		for n, text := range got {
			if n > 0 && text[:8] == "progress" && got[n-1][len("updated"):] < text[len("progress"):] {
				t.Errorf("%s follows %s", text, got[n-1])
			}
		}
		// However long it lasts, few cuts wait.
		r.set(func() { r.stuck = make(chan struct{}) })
		for rv := 41; rv <= 500; rv++ {
			r.change("pods", "a", rv)
			time.Sleep(time.Second)
			r.p.progress.cut(time.Now(), r.p.Queue)
		}
		if n := len(r.p.progress.cuts); n < maxCuts/2 || n > maxCuts {
			t.Errorf("%d cuts wait", n)
		}
		close(r.stuck)
		time.Sleep(time.Minute)
		if got := r.taken(); got[len(got)-1] != "progress 500" {
			t.Errorf("%v", got)
		}
	})
}

// A state that was merged into a later one is delivered later than the events around it.
func TestProgressEventsAfterMerges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReporter(
			t,
			delivery.Buffer{Events: 8, Bytes: 1 << 20, Overflow: delivery.Compact, DiskBytes: 1},
			podsSource,
		)
		synctest.Wait()
		r.set(func() { r.takes, r.stuck = 300*time.Millisecond, make(chan struct{}) })
		for n, name := range []string{"x", "y", "a", "b", "c", "d", "e", "f", "a"} {
			r.change("pods", name, n+1)
			synctest.Wait()
			if n == 2 {
				time.Sleep(reportEvery)
				r.p.progress.cut(time.Now(), r.p.Queue)
			}
		}
		if n := r.p.Queue.Stats().Merged; n != 1 || len(r.p.progress.cuts) != 1 {
			t.Fatalf("%d merged, %d cuts", n, len(r.p.progress.cuts))
		}
		close(r.stuck)
		time.Sleep(2 * reportEvery)
		got := r.taken()
		if n := slices.Index(got, "progress 9"); n < 0 || slices.Index(got, "updated 9") > n ||
			slices.Contains(got, "progress 3") {
			t.Errorf("%v", got)
		}
	})
}

// When etcd was restored, the positions from before do not count any more, not even for events that wait.
func TestProgressEventsAfterARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReporter(t, roomy, podsSource)
		r.change("pods", "a", 100)
		synctest.Wait()
		r.taken()
		r.set(func() { r.stuck = make(chan struct{}) })
		r.change("pods", "a", 101)
		time.Sleep(reportEvery)
		r.p.progress.cut(time.Now(), r.p.Queue)
		r.listeners["pods"].OnGap("101", "50", "restored")
		time.Sleep(reportEvery)
		r.p.progress.cut(time.Now(), r.p.Queue)
		close(r.stuck)
		time.Sleep(reportEvery)
		r.expect("updated 101", "gap 50")
		r.listeners["pods"].OnPosition("50")
		time.Sleep(reportEvery)
		r.expect("progress 50")
	})
}

// model knows what was pushed, and checks each progress event when the destination gets it.
type model struct {
	*reporter

	pushed []*object.Object
	rv     int
	last   map[string]int // the last position, by source
	marks  int
}

// covered reports whether the destination has an event, a newer one of the same object, or a gap event in its place.
func (m *model) covered(o *object.Object) bool {
	version := func(text string) int {
		rv, _ := strconv.Atoi(text)
		return rv
	}
	return slices.ContainsFunc(m.took, func(got *event.Message) bool {
		if got.GapInfo != nil {
			return version(got.GapInfo.From) <= version(o.ResourceVersion) &&
				version(o.ResourceVersion) <= version(got.GapInfo.To)
		}
		return got.Identity.Name == o.Name && version(got.Identity.ResourceVersion) >= version(o.ResourceVersion)
	})
}

func (m *model) check(info event.ProgressInfo) {
	m.marks++
	upTo, _ := strconv.Atoi(info.ResourceVersion)
	for _, o := range m.pushed {
		if rv, _ := strconv.Atoi(o.ResourceVersion); rv <= upTo && !m.covered(o) {
			m.t.Errorf("progress up to %d, but %s %d is not there", upTo, o.Name, rv)
		}
	}
	if last := min(m.last["pods in a"], m.last["pods in b"]); upTo > last {
		m.t.Errorf("progress up to %d, but the position is %d", upTo, last)
	}
}

// step does something at random.
func (m *model) step(random *rand.Rand) {
	source := []string{"pods in a", "pods in b"}[random.IntN(2)]
	l := m.listeners[source]
	switch random.IntN(14) {
	default:
		for range 1 + random.IntN(6) {
			m.rv++
			name := source[len(source)-1:] + strconv.Itoa(random.IntN(4))
			o := namedPod(m.t, name, m.rv)
			m.set(func() { m.pushed, m.last[source] = append(m.pushed, o), m.rv })
			l.OnUpdate(namedPod(m.t, name, m.rv-1), o)
			l.OnPosition(o.ResourceVersion)
		}
	case 0, 1:
		m.rv++
		m.set(func() { m.last[source] = m.rv })
		l.OnPosition(strconv.Itoa(m.rv)) // a bookmark
	case 2, 3, 4:
		time.Sleep(time.Duration(random.IntN(15)) * time.Second)
	case 5:
		down := strconv.Itoa(random.IntN(4))
		m.refuse(func(name string) error {
			if name != "" && name[1:] == down {
				return sinks.Unavailable(name, errors.New("no leader"))
			}
			return nil
		})
	case 6:
		m.refuse(func(string) error { return errors.New("away") })
	case 7:
		m.refuse(nothing)
	case 8:
		m.p.Queue.Persist()
	}
	synctest.Wait()
	m.p.progress.cut(time.Now(), m.p.Queue)
}

func nothing(string) error { return nil }

func (m *model) refuse(refuses func(string) error) { m.set(func() { m.refuses = refuses }) }

// A progress event is never ahead of what the destination has, whatever happens to it and to the queue. When everything
// is delivered, it is not behind either.
func TestProgressIsNeverAhead(t *testing.T) {
	for name, buffer := range map[string]delivery.Buffer{
		"block":                    {Events: 1000, Bytes: 1 << 20, Overflow: delivery.Block},
		"spill":                    {Events: 12, Bytes: 1 << 20, Overflow: delivery.Block, DiskBytes: 1 << 20},
		"compact on a full disk":   {Events: 40, Bytes: 1 << 20, Overflow: delivery.Compact, DiskBytes: 1},
		"drop on a full disk":      {Events: 12, Bytes: 1 << 20, Overflow: delivery.DropOldest, DiskBytes: 1},
		"compact with enough room": {Events: 1000, Bytes: 1 << 20, Overflow: delivery.Compact},
	} {
		t.Run(name, func(t *testing.T) {
			marks := 0
			for seed := range uint64(8) {
				synctest.Test(t, func(t *testing.T) {
					m := &model{last: map[string]int{}}
					m.reporter = startReporter(t, buffer,
						informer.Source{Name: "pods in a", Resource: pods}, informer.Source{Name: "pods in b", Resource: pods})
					m.set(func() { m.onMark, m.takes = m.check, 250*time.Millisecond })
					random := rand.New(rand.NewPCG(seed, 1))
					for range 60 {
						m.step(random)
						if t.Failed() {
							t.Fatalf("seed %d", seed)
						}
					}
					m.refuse(nothing)
					time.Sleep(2 * time.Minute)
					synctest.Wait()
					at := m.took[len(m.took)-1]
					if want := strconv.Itoa(min(m.last["pods in a"], m.last["pods in b"])); at.Type != event.Progress ||
						at.Identity.ResourceVersion != want {
						t.Errorf("seed %d: the last event is %s %s, want progress %s", seed, at.Type, at.Identity.ResourceVersion, want)
					}
					marks += m.marks
				})
			}
			t.Logf("%d progress events", marks)
		})
	}
}
