package ledger

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/test/scale"
)

func stateOf(t testing.TB, name string, rv int) *object.Object {
	t.Helper()
	o, err := object.New(fmt.Appendf(nil, `{"metadata":{"name":%q,"resourceVersion":"%d"}}`, name, rv))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func collected(t *testing.T, l *Ledger) (rv string, sinks map[string]string, upserts, deletes int) {
	t.Helper()
	u, ok := l.Collect()
	if !ok {
		t.Fatal("there is nothing to write")
	}
	l.Confirm()
	return u.ResourceVersion, u.Sinks, len(u.Upserts), len(u.Deletes)
}

func TestAFirstList(t *testing.T) {
	l := New(Source{Name: "pods"}, State{}, []string{"a", "b"}, 0)
	if _, ok := l.Collect(); ok {
		t.Error("there is something to write before the first list")
	}
	l.Begin("10")
	a1, b1 := l.Track("a"), l.Track("b")
	a2 := l.Track("a")
	l.FinishList("a")
	l.FinishList("b")
	l.Advance("10")
	if rv, sinks, _, _ := collected(t, l); rv != "10" || sinks["a"]+sinks["b"] != "" {
		t.Errorf("nothing is settled: %s %v", rv, sinks)
	}
	l.Settle("a", a2)
	l.SetRow("x", stateOf(t, "x", 11))
	l.Advance("11")
	l.Settle("a", a1)
	rv, sinks, upserts, _ := collected(t, l)
	if diff := cmp.Diff(map[string]string{"a": "11", "b": ""}, sinks); diff != "" || rv != "10" || upserts != 0 {
		t.Errorf("b has not settled its initial list: %s, %s, %d rows", rv, diff, upserts)
	}
	l.Settle("b", b1)
	rv, sinks, upserts, _ = collected(t, l)
	if diff := cmp.Diff(map[string]string{"a": "11", "b": "11"}, sinks); diff != "" || rv != "11" || upserts != 1 {
		t.Errorf("%s, %s, %d rows", rv, diff, upserts)
	}
}

func TestANewSinkHoldsTheRows(t *testing.T) {
	l := New(Source{}, State{ResourceVersion: "50", Sinks: map[string]string{"old": "70"}}, []string{"old", "new"}, 0)
	given := l.Track("new")
	l.FinishList("new")
	l.SetRow("x", nil)
	l.Advance("60")
	if rv, sinks, upserts, deletes := collected(
		t,
		l,
	); rv != "50" || sinks["old"] != "70" || sinks["new"] != "" ||
		upserts+deletes > 0 {
		t.Errorf("the watermark moved before the new sink had settled: %s, %v", rv, sinks)
	}
	l.Settle("new", given)
	rv, sinks, _, deletes := collected(t, l)
	if diff := cmp.Diff(map[string]string{"old": "70", "new": "60"}, sinks); diff != "" || rv != "60" || deletes != 1 {
		t.Errorf("%s, %s, %d rows went", rv, diff, deletes)
	}
}

func TestAnUpdateThatCouldNotBeWritten(t *testing.T) {
	l := New(Source{}, State{ResourceVersion: "1", Sinks: map[string]string{"a": "1"}}, []string{"a"}, 0)
	l.SetRow("x", stateOf(t, "x", 2))
	l.SetRow("gone", nil)
	l.Advance("2")
	l.Collect()
	l.TakeBack()
	l.SetRow("x", stateOf(t, "x", 3))
	l.Advance("3")
	again, ok := l.Collect()
	if !ok || again.ResourceVersion != "3" || len(again.Upserts) != 1 || again.Upserts[0].ResourceVersion != "3" ||
		len(again.Deletes) != 1 {
		t.Errorf("%+v", again)
	}
	if _, ok := l.Collect(); ok {
		t.Error("the same is given twice")
	}
}

// Whatever is settled in whatever order: a sink's watermark covers nothing that it has not settled; what exists at the
// source's watermark has a row; no row is ahead of it, or without Squeeze behind it; and the last state of an object,
// while it is being handed over also the one before it, is to be found in the ledger or on disk.
func FuzzLedger(f *testing.F) {
	f.Add([]byte{1, 2, 3, 200, 4, 150, 151, 250, 5, 6, 7, 251, 200, 201})
	f.Add([]byte{0, 3, 0, 3, 0, 250, 160, 161, 162, 163, 250})
	f.Fuzz(func(t *testing.T, steps []byte) {
		m := newLedgerModel(t)
		if len(steps) > 0 && steps[0]&1 == 0 {
			m.squeezes = true
		}
		for _, step := range steps {
			switch {
			case step < 128:
				m.change(step)
			case step < 240:
				m.settle(int(step - 128))
			default:
				m.collect(step >= 250)
			}
		}
	})
}

type ledgerModel struct {
	t        *testing.T
	l        *Ledger
	rv       int
	squeezes bool
	born     map[string]int              // by key: since which rv it exists
	exists   map[string][]bool           // by key: existence at each rv
	latest   map[string][]int            // by key: the rv of its state at each rv
	open     []modelChange               // not settled
	rows     map[string]*object.Object   // what is on disk
	at       int                         // watermark on disk
	states   map[string][]*object.Object // by key: the states since it was last created, the last two at most
}

type modelChange struct {
	sink string
	seq  uint64
	rv   int
}

var modelKeys = []string{"x", "y", "z"}

func newLedgerModel(t *testing.T) *ledgerModel {
	m := &ledgerModel{
		t:      t,
		rows:   map[string]*object.Object{},
		born:   map[string]int{},
		exists: map[string][]bool{},
		latest: map[string][]int{},
		states: map[string][]*object.Object{},
	}
	m.l = New(Source{}, State{ResourceVersion: "0", Sinks: map[string]string{"a": "0", "b": "0"}}, []string{"a", "b"}, 0)
	for _, key := range modelKeys {
		m.exists[key], m.latest[key] = []bool{false}, []int{0}
	}
	return m
}

func (m *ledgerModel) change(step byte) {
	m.rv++
	key := modelKeys[step%3]
	for _, k := range modelKeys {
		m.exists[k] = append(m.exists[k], m.exists[k][m.rv-1])
		m.latest[k] = append(m.latest[k], m.latest[k][m.rv-1])
	}
	if m.exists[key][m.rv-1] && step%5 == 0 {
		m.exists[key][m.rv] = false
		m.l.SetRow(key, nil)
		m.states[key] = m.states[key][len(m.states[key])-1:]
		m.find(key)
		m.states[key] = nil
	} else {
		m.exists[key][m.rv], m.latest[key][m.rv] = true, m.rv
		o := stateOf(m.t, key, m.rv)
		if m.exists[key][m.rv-1] {
			m.l.SetRow(key, o)
		} else {
			m.l.AddRow(key, o)
			m.born[key] = m.rv
		}
		states := append(m.states[key], o)
		m.states[key] = states[max(0, len(states)-2):]
		m.find(key)
	}
	for n, sink := range []string{"a", "b"} {
		if step>>(5+n)&1 == 0 { // otherwise its filter keeps the change back
			m.open = append(m.open, modelChange{sink, m.l.Track(sink), m.rv})
		}
	}
	m.l.Advance(strconv.Itoa(m.rv))
	if m.squeezes && step%7 == 0 {
		m.l.Squeeze()
		for k, states := range m.states {
			m.states[k] = states[max(0, len(states)-1):]
			m.find(k)
		}
	}
	if m.l.Held() != sizeOf(m.l) {
		m.t.Fatalf("%d bytes are held, it says %d", sizeOf(m.l), m.l.Held())
	}
}

// find searches for the states of an object that may be requested.
func (m *ledgerModel) find(key string) {
	for _, o := range m.states[key] {
		if m.l.Find(key, o.Identity) == nil && (m.rows[key] == nil || m.rows[key].ResourceVersion != o.ResourceVersion) {
			m.t.Fatalf("%s@%s is neither in the ledger nor on disk", key, o.ResourceVersion)
		}
	}
}

func (m *ledgerModel) settle(n int) {
	if len(m.open) == 0 {
		return
	}
	n %= len(m.open)
	m.l.Settle(m.open[n].sink, m.open[n].seq)
	m.open = append(m.open[:n], m.open[n+1:]...)
}

func (m *ledgerModel) collect(fails bool) {
	u, ok := m.l.Collect()
	if !ok {
		return
	}
	if fails {
		m.l.TakeBack()
		return
	}
	for _, key := range modelKeys {
		m.states[key] = m.states[key][max(0, len(m.states[key])-1):]
		m.find(key) // it is being written
	}
	at, err := strconv.Atoi(u.ResourceVersion)
	if err != nil || at < m.at {
		m.t.Fatalf("watermark %q after %d", u.ResourceVersion, m.at)
	}
	m.at = at
	for sink, text := range u.Sinks {
		rv, _ := strconv.Atoi(text)
		if rv < at {
			m.t.Fatalf("sink %s is at %d, behind the source's %d", sink, rv, at)
		}
		for _, c := range m.open {
			if c.sink == sink && c.rv <= rv {
				m.t.Fatalf("sink %s is at %d, and has not settled %d", sink, rv, c.rv)
			}
		}
	}
	for _, o := range u.Upserts {
		m.rows[o.Name] = o
	}
	for _, key := range u.Deletes {
		delete(m.rows, key)
	}
	m.l.Confirm()
	for _, key := range modelKeys {
		row := m.rows[key]
		alive := m.exists[key][m.rv] && (m.born[key] <= at)
		if m.exists[key][at] && row == nil && (!m.squeezes || alive) {
			m.t.Fatalf("%s exists at %d and has no row", key, at)
		}
		if row != nil {
			if rv, _ := strconv.Atoi(row.ResourceVersion); rv > at {
				m.t.Fatalf("row %s@%d is ahead of %d", key, rv, at)
			}
			if rv, _ := strconv.Atoi(row.ResourceVersion); !m.squeezes && (rv != m.latest[key][at] || !m.exists[key][at]) {
				m.t.Fatalf(
					"row %s@%d at watermark %d, where it is at %d (exists: %t)",
					key,
					rv,
					at,
					m.latest[key][at],
					m.exists[key][at],
				)
			}
		}
	}
}

// What a sink that drops or merges leaves behind is bounded by the objects that exist, however long the oldest of it
// stays open: also where names do not recur.
func TestWhatIsSettledBehindAnOpenChangeIsLetGoOf(t *testing.T) {
	for name, key := range map[string]func(n int) string{
		"names that recur": func(n int) string { return "k" + strconv.Itoa(n%50) },
		"names that don't": func(n int) string { return "k" + strconv.Itoa(n) },
	} {
		t.Run(name, func(t *testing.T) {
			l := New(Source{}, State{ResourceVersion: "0", Sinks: map[string]string{"a": "0"}}, []string{"a"}, 7)
			var total atomic.Int64
			l.CountIn(&total)
			first := l.Track("a")
			rv, most := 0, int64(0)
			reach := func() { rv++; l.Advance(strconv.Itoa(rv)) }
			reach()
			var waiting []uint64
			for n := range scale.Of(20_000, 100_000) {
				l.AddRow(key(n), stateOf(t, key(n), rv+1))
				waiting = append(waiting, l.Track("a"))
				reach()
				l.SetRow(key(n), nil)
				reach()
				if len(waiting) > 100 {
					l.Settle("a", waiting[0])
					l.Settle("a", waiting[0]) // once more changes nothing
					waiting = waiting[1:]
				}
				if l.Held() > 100_000 {
					l.Squeeze()
				}
				most = max(most, l.Held())
			}
			if n := len(l.sinks["a"].open); n > 102 || most > 101_000 {
				t.Errorf("%d events of a sink are kept, and %d bytes of rows waited", n, most)
			}
			if total.Load() != l.Held() || l.Held() != sizeOf(l) {
				t.Errorf("%d bytes are held, the total says %d, the ledger %d", sizeOf(l), total.Load(), l.Held())
			}
			if got, _ := l.Unsettled("a"); got != 1+len(waiting) {
				t.Errorf("%d are open", got)
			}
			for _, number := range append(waiting, first) {
				l.Settle("a", number)
			}
			if got, _ := l.Unsettled("a"); got != 0 || watermarkOf(l, "a") != strconv.Itoa(rv) {
				t.Errorf("in the end: %d are open, at %s of %d", got, watermarkOf(l, "a"), rv)
			}
			l.Collect()
			if l.Confirm(); total.Load() != 0 {
				t.Errorf("%d bytes are held of nothing", total.Load())
			}
		})
	}
}

// Of an object that changes often, only these states are held: the last settled state, a state that is being written,
// and the unsettled states.
func TestSettledStatesOfOneObjectAreHeldOnce(t *testing.T) {
	l := New(Source{}, State{ResourceVersion: "0", Sinks: map[string]string{"a": "0"}}, []string{"a"}, 0)
	var total atomic.Int64
	l.CountIn(&total)
	o := stateOf(t, "x", 1)
	update := func(rv int, change func(string, *object.Object), o *object.Object) uint64 {
		change("x", o)
		number := l.Track("a")
		l.Advance(strconv.Itoa(rv))
		return number
	}
	l.Settle("a", update(1, l.AddRow, o))
	for rv := 2; rv <= 1000; rv++ {
		if rv == 500 {
			l.Collect()
		}
		l.Settle("a", update(rv, l.SetRow, stateOf(t, "x", rv)))
	}
	l.TakeBack()
	if held := l.Held(); held > 3*(rowChange{object: stateOf(t, "x", 1000)}).size() || held != sizeOf(l) ||
		held != total.Load() {
		t.Errorf("%d bytes are held of %d states, the total says %d", held, len(*l.pending["x"]), total.Load())
	}
	if rv, _, upserts, _ := collected(t, l); rv != "1000" || upserts != 1 {
		t.Errorf("the next update is at %s and has %d rows", rv, upserts)
	}
	// The row that was never written does not exist: an object that goes too leaves nothing to write.
	l = New(Source{}, State{ResourceVersion: "0", Sinks: map[string]string{"a": "0"}}, []string{"a"}, 0)
	l.Settle("a", update(1, l.AddRow, o))
	l.Settle("a", update(2, l.SetRow, stateOf(t, "x", 2)))
	update(3, l.SetRow, stateOf(t, "x", 3))
	update(4, l.SetRow, nil)
	if l.Squeeze(); l.Held() != 0 {
		t.Errorf("%d bytes are held of an object that came and went", l.Held())
	}
}

// sizeOf returns the size of the waiting changes.
func sizeOf(l *Ledger) (size int64) {
	for _, changes := range l.pending {
		for _, c := range *changes {
			size += c.size()
		}
	}
	return size
}

func TestSqueeze(t *testing.T) {
	for changes, want := range map[string]string{
		"":          "",
		"a":         "a",
		"u":         "u",
		"uu":        "u",
		"auuu":      "au",
		"ad":        "",
		"auud":      "",
		"uud":       "d",
		"d":         "d",
		"dau":       "dau",
		"dauuu":     "dau",
		"daud":      "d",
		"uudaudauu": "dau",
		"adadada":   "a",
	} {
		var given []rowChange
		for n, kind := range changes {
			c := rowChange{seq: uint64(n), added: kind == 'a'}
			if kind != 'd' {
				c.object = stateOf(t, "x", n)
			}
			given = append(given, c)
		}
		got := ""
		for _, c := range squeeze(given) {
			switch {
			case c.object == nil:
				got += "d"
			case c.added:
				got += "a"
			default:
				got += "u"
			}
		}
		if got != want {
			t.Errorf("%s becomes %s, want %s", changes, got, want)
		}
	}
}

// The scope that is written is the scope of the rows. It stays the old scope until all events of the list of the new
// scope are settled.
func TestALedgerOfAnotherScope(t *testing.T) {
	before := State{
		Source:          Source{Name: "pods", Scope: "old"},
		ResourceVersion: "10",
		Sinks:           map[string]string{"a": "10", "b": "10"},
	}
	l := New(Source{Name: "pods", Scope: "new"}, before, []string{"a", "b"}, 0)
	l.SetRow("left", nil)
	a := l.Track("a")
	l.SetRow("entered", stateOf(t, "entered", 5))
	b := l.Track("b")
	scope := func(want, rv string, rows int) {
		t.Helper()
		if u, ok := l.Collect(); !ok {
			if rows > 0 {
				t.Error("nothing is to be written")
			}
		} else if u.Source.Scope != want || u.ResourceVersion != rv || len(u.Upserts)+len(u.Deletes) != rows {
			t.Errorf(
				"scope %q at %s, %d rows; want %q at %s, %d",
				u.Source.Scope,
				u.ResourceVersion,
				len(u.Upserts)+len(u.Deletes),
				want,
				rv,
				rows,
			)
		}
	}
	scope("old", "10", 0)
	l.Advance("20")
	l.Settle("b", b)
	scope("old", "10", 0)
	l.Settle("a", a)
	scope("new", "20", 2)

	l = New(Source{Name: "pods", Scope: "new"}, before, []string{"a", "b"}, 0)
	l.Advance("10") // the list brought nothing
	if u, ok := l.Collect(); !ok || u.Source.Scope != "new" {
		t.Errorf("the scope is not written: %t %+v", ok, u)
	}
}

// A sink whose filter has changed keeps its watermark, and the watermark of the source does not move, until the sink
// has settled the difference. Its Refilter is then removed. A sink that is sent the initial list after the restart has
// no Refilter.
func TestARefilter(t *testing.T) {
	noted := map[string]Refilter{"a": {Filters: []string{"F1"}, Change: "c"}, "b": {Filters: []string{"F0"}, Change: "c"}}
	l := New(
		Source{},
		State{ResourceVersion: "50", Sinks: map[string]string{"a": "60", "b": ""}, Refilters: noted},
		[]string{"a", "b", "gone"},
		0,
	)
	l.SetRow("x", nil)
	l.Advance("70")
	if !l.GivingList() || l.Refilter("a").Change != "c" ||
		len(l.Refilter("gone").Filters)+len(l.Refilter("none").Filters) > 0 {
		t.Errorf("giving a list: %t, %+v", l.GivingList(), l.Refilter("a"))
	}
	u, ok := l.Collect()
	want := Update{State: State{ResourceVersion: "50", Sinks: map[string]string{"a": "60", "b": ""}, Refilters: noted}}
	if ok {
		if diff := cmp.Diff(want, u); diff != "" {
			t.Errorf("before the difference is settled (-want +got):\n%s", diff)
		}
	}
	for _, sink := range []string{"a", "b", "gone"} {
		number := l.Track(sink)
		l.FinishList(sink)
		l.Advance("80")
		if got := l.HeldBy(); len(got) == 0 {
			t.Errorf("%s holds nothing", sink)
		}
		l.Settle(sink, number)
	}
	if u, ok = l.Collect(); !ok || len(u.Refilters) > 0 || u.ResourceVersion != "80" || u.Sinks["a"] != "80" ||
		u.Sinks["b"] != "80" ||
		len(l.HeldBy()) > 0 {
		t.Errorf("settled: %+v, held by %v", u, l.HeldBy())
	}
	if len(l.Refilter("a").Filters) > 0 || l.GivingList() || l.Open() != 0 {
		t.Errorf("%+v, %t, %d", l.Refilter("a"), l.GivingList(), l.Open())
	}
}

// The filter of a sink changes while the process runs. Until the sink has settled the difference, updates contain the
// filters before, and the watermark from which a restart sends the difference again.
func TestARefilterAtRunTime(t *testing.T) {
	l := New(Source{}, State{ResourceVersion: "50", Sinks: map[string]string{"a": "50", "b": "50"}}, []string{"a", "b"}, 0)
	expect := func(step, watermark string, filters ...string) {
		t.Helper()
		u, ok := l.Collect()
		if !ok {
			t.Fatalf("%s: there is nothing to write", step)
		}
		l.Confirm()
		got := u.Refilters["a"].Filters
		if u.Sinks["a"] != watermark || !cmp.Equal(got, filters) || u.Refilters["b"].Filters != nil {
			t.Errorf("%s: %q, %v, want %q, %v", step, u.Sinks["a"], u.Refilters, watermark, filters)
		}
	}
	earlier := l.Track("a")
	l.Advance("60")
	l.BeginRefilter("a", "F1", "c1")
	expect("an earlier event is open", "50", "F1")
	l.BeginRefilter("a", "F2", "c2")
	if got := l.Refilter("a"); got.Change != "c2" {
		t.Errorf("the change is %s", got.Change)
	}
	during := l.Track("a")
	l.Settle("b", l.Track("b"))
	l.Advance("70")
	l.Settle("a", earlier)
	expect("the difference is being sent", "60", "F1", "F2")
	difference := l.Track("a")
	l.FinishRefilter("a", "c1", false)
	if got := l.Refilter("a"); got.Change != "c2" {
		t.Errorf("after the difference of an earlier change, the change is %q", got.Change)
	}
	l.FinishRefilter("a", "c2", false)
	later := l.Track("a")
	l.Advance("80")
	l.Settle("a", during)
	l.Settle("a", later)
	expect("the difference is not settled", "60", "F1", "F2")
	l.BeginRefilter("a", "F3", "c3")
	l.FinishList("a")
	expect("the filter changes again", "60", "F1", "F2", "F3")
	l.Settle("a", difference)
	l.Advance("90")
	expect("everything is settled", "90")
	l.BeginRefilter("a", "F4", "c4")
	expect("the next change", "90", "F4")
}

// The filter of a sink changes before the sink has settled its initial list.
func TestARefilterInTheInitialList(t *testing.T) {
	l := New(Source{}, State{}, []string{"a"}, 0)
	l.Begin("10")
	number := l.Track("a")
	l.FinishList("a")
	l.Advance("10")
	l.BeginRefilter("a", "F1", "c1")
	l.FinishList("a")
	want := State{ResourceVersion: "10", Sinks: map[string]string{"a": ""}, Refilters: map[string]Refilter{
		"a": {Filters: []string{"F1"}, Change: "c1"},
	}}
	u, _ := l.Collect()
	if diff := cmp.Diff(want, u.State); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	l.Confirm()
	l.Settle("a", number)
	if u, _ = l.Collect(); u.Sinks["a"] != "10" || len(u.Refilters) > 0 {
		t.Errorf("settled: %+v", u.State)
	}
}

// watermarkOf gives the watermark of a sink.
func watermarkOf(l *Ledger, sink string) string {
	m, fresh := l.sinks[sink].watermark()
	if fresh {
		return ""
	}
	return m.resourceVersion
}

// An event keeps the watermark before it until it is settled, in whatever order events are settled.
func TestOldestEventKeepsTheWatermark(t *testing.T) {
	l := New(Source{}, State{ResourceVersion: "50", Sinks: map[string]string{"a": "50"}}, []string{"a"}, 0)
	first := l.Track("a")
	l.Advance("60")
	second := l.Track("a")
	l.Advance("70")
	other := l.Track("a")
	for _, step := range []struct {
		settled   uint64
		watermark string
	}{{0, "50"}, {second, "50"}, {first, "70"}, {other, "70"}} {
		if l.Settle("a", step.settled); watermarkOf(l, "a") != step.watermark {
			t.Errorf("after %d: %s, want %s", step.settled, watermarkOf(l, "a"), step.watermark)
		}
	}
}

// After etcd was restored to an earlier revision, what sinks had settled before the process began says nothing.
func TestStartOver(t *testing.T) {
	l := New(Source{}, State{ResourceVersion: "50", Sinks: map[string]string{"a": "90"}}, []string{"a"}, 0)
	l.SetRow("x", nil)
	l.Advance("60")
	if _, sinks, _, _ := collected(t, l); sinks["a"] != "90" {
		t.Errorf("the watermark fell back: %v", sinks)
	}
	l.StartOver("5")
	l.Advance("10")
	if rv, sinks, _, _ := collected(t, l); rv != "10" || sinks["a"] != "10" {
		t.Errorf("at %s, %v", rv, sinks)
	}
}

// If a sink had not settled everything when etcd was restored, the next process must find out about the restore by
// itself. The position before the restore would be one that the cluster reaches again.
func TestStartOverOfAnUnsettledSink(t *testing.T) {
	l := New(Source{}, State{ResourceVersion: "90", Sinks: map[string]string{"a": "90", "b": "90"}}, []string{"a", "b"}, 0)
	l.Advance("100")
	open := l.Track("a")
	l.Advance("101")
	l.StartOver("60")
	for _, position := range []string{informer.Unreachable, "60", "70"} { // the first is before the new list was read
		if position != informer.Unreachable {
			l.Advance(position)
		}
		u, ok := l.Collect()
		l.Confirm()
		want := State{
			ResourceVersion: informer.Unreachable,
			Sinks:           map[string]string{"a": informer.Unreachable, "b": position},
			History:         "60",
		}
		if diff := cmp.Diff(want, u.State); diff != "" || !ok {
			t.Errorf("at %q: %t, %s", position, ok, diff)
		}
	}
	l.Settle("a", open)
	if rv, sinks, _, _ := collected(t, l); rv != "70" || sinks["a"] != "70" {
		t.Errorf("settled: at %s, %v", rv, sinks)
	}
}

// The size of a ledger's waiting changes is counted until Discard.
func TestDiscard(t *testing.T) {
	var total atomic.Int64
	ledgers := map[string]*Ledger{}
	for _, name := range []string{"x", "y"} {
		l := New(Source{}, State{ResourceVersion: "1", Sinks: map[string]string{"a": "1"}}, []string{"a"}, 0)
		l.CountIn(&total)
		l.Track("a")
		l.SetRow(name, stateOf(t, name, 2))
		if l.Held() != 0 {
			t.Error("what no position covers counts")
		}
		l.Advance("2")
		ledgers[name] = l
	}
	if total.Load() == 0 || total.Load() != ledgers["x"].Held()+ledgers["y"].Held() {
		t.Errorf("%d bytes in all, %d and %d", total.Load(), ledgers["x"].Held(), ledgers["y"].Held())
	}
	ledgers["x"].Discard()
	if total.Load() != ledgers["y"].Held() {
		t.Errorf("%d bytes in all, %d are left", total.Load(), ledgers["y"].Held())
	}
}

// An event that a sink is sent again on purpose blocks the positions of the sink only until it is settled, even if the
// source never moves again. A restart does not bring such events again.
func TestCoversWhatWasSentAgain(t *testing.T) {
	l := New(Source{Name: "pods"}, State{ResourceVersion: "10", Sinks: map[string]string{"a": "10"}}, []string{"a"}, 0)
	for _, c := range []struct {
		track func(string) uint64
		want  bool
	}{{l.TrackAgain, true}, {l.Track, false}} {
		number := c.track("a")
		recorded := l.Recorded("a")
		l.Settle("a", number)
		l.Collect()
		if got := l.Covers("a", recorded); got != c.want {
			t.Errorf("event %d, recorded %d, covered: %t", number, recorded, got)
		}
	}
	l.Advance("10")
	if l.Collect(); !l.Covers("a", l.Recorded("a")) {
		t.Error("not covered by the next position")
	}
}
