package ledger

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A sink was sent the difference, but the source still has to bring what an earlier process sent. Updates say so until
// it has brought everything, and until what it has brought is settled.
func TestARefilterWithMore(t *testing.T) {
	const name = "c"
	noted := Refilter{Filters: []string{"F1"}, Change: name}
	settled := Refilter{Filters: []string{"F1"}, Change: name, Settled: true}
	stored := State{
		ResourceVersion: "50", Sinks: map[string]string{"a": "50"}, Refilters: map[string]Refilter{"a": noted},
	}
	l := New(Source{}, stored, []string{"a"}, 0)
	expect := func(step, watermark string, want ...Refilter) {
		t.Helper()
		if u, ok := l.Collect(); ok {
			stored = u.State
			l.Confirm()
		}
		var got []Refilter
		if r, ok := stored.Refilters["a"]; ok {
			got = append(got, r)
		}
		if diff := cmp.Diff(want, got); diff != "" || stored.Sinks["a"] != watermark {
			t.Errorf("%s: at %s, (-want +got):\n%s", step, stored.Sinks["a"], diff)
		}
	}
	track := func(position string) func() {
		number := l.Track("a")
		l.Advance(position)
		return func() { l.Settle("a", number) }
	}
	difference := track("51")
	l.FinishRefilter("a", name, true)
	expect("the difference is open", "50", noted)
	l.Advance("52")
	difference()
	expect("the difference is settled", "52", settled)
	if got := l.Refilter("a"); !cmp.Equal(got, settled) {
		t.Errorf("it is %+v", got)
	}
	leave := track("53")
	l.EndRefilter("a")
	l.Advance("54")
	expect("everything was brought, but not settled", "52", settled)
	leave()
	expect("everything is settled", "54")
}

// The filter changes again while the source still has to bring what an earlier process sent, and in a process that finds
// this in the state of the one before.
func TestARefilterAfterOneWithMore(t *testing.T) {
	state := State{ResourceVersion: "50", Sinks: map[string]string{"a": "50"}, Refilters: map[string]Refilter{
		"a": {Filters: []string{"F1"}, Change: "c1", Settled: true},
	}}
	l := New(Source{}, state, []string{"a"}, 0)
	number := l.Track("a")
	l.Advance("51")
	l.BeginRefilter("a", "F2", "c2")
	l.EndRefilter("a") // the earlier one: it has no effect
	l.Settle("a", number)
	u, _ := l.Collect()
	want := map[string]Refilter{"a": {Filters: []string{"F2"}, Change: "c2", Former: []string{"F1"}}}
	if diff := cmp.Diff(want, u.Refilters); diff != "" || u.Sinks["a"] != "51" {
		t.Errorf("at %s, (-want +got):\n%s", u.Sinks["a"], diff)
	}
	l.Confirm()
	l.FinishRefilter("a", "c2", false)
	l.Advance("52")
	if u, _ = l.Collect(); len(u.Refilters) > 0 || u.Sinks["a"] != "52" {
		t.Errorf("the difference is settled: %+v", u)
	}

	// The difference is open when everything was brought.
	state.Refilters["a"] = Refilter{Filters: []string{"F1"}, Change: "c1"}
	l = New(Source{}, state, []string{"a"}, 0)
	number = l.Track("a")
	l.FinishRefilter("a", "c1", true)
	l.EndRefilter("a")
	l.Advance("51")
	if u, ok := l.Collect(); ok {
		t.Errorf("the difference is open, but the state changes: %+v", u)
	}
	l.Confirm()
	l.Settle("a", number)
	if u, _ = l.Collect(); len(u.Refilters) > 0 || u.Sinks["a"] != "51" {
		t.Errorf("the difference is settled: %+v", u)
	}

	// Without a watermark, the sink is sent everything again.
	state.Sinks["a"], state.Refilters["a"] = "", Refilter{Filters: []string{"F1"}, Change: "c1", Settled: true}
	if l = New(Source{}, state, []string{"a"}, 0); l.Refilter("a").Settled || !l.GivingList() {
		t.Errorf("without a watermark: %+v", l.Refilter("a"))
	}
}
