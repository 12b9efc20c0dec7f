package actor

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/scale"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/audit"
)

// actors returns the only answer's actors.
func actors(t *testing.T, answers []Answer) string {
	t.Helper()
	if len(answers) != 1 {
		t.Fatalf("%d answers: %+v", len(answers), answers)
	}
	return fmt.Sprintf("%v, %v", answers[0].By, answers[0].Requested)
}

// all returns the answers to a change, at the end of its wait at the latest.
func all(j *Joiner, c Change) []Answer {
	return append(j.Change(c), j.Expire(c.Observed.Add(5*time.Second))...)
}

// While audit events may be missing, and for everything that was made in that time, only proven actors are given.
func TestMissing(t *testing.T) {
	for _, test := range []struct {
		since, until int
		want         string
	}{{-4900, -4901, "alice sole, -"}, {-4900, -4899, "-, -"}, {95, 94, "alice sole, -"}, {95, 96, "-, -"}} {
		j := New(Options{})
		c := change(Updated, 4, 5)
		c.Since = at(test.since)
		j.Event(patchOf("alice", 80, 99).event(t), at(100))
		j.Missing(at(test.until))
		j.Missing(at(test.until - 1000))
		if got := actors(t, all(j, c)); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
	j := New(Options{})
	j.Missing(at(1_000_000))
	j.Event(putOf("alice", "4", 80, 99).event(t), at(100))
	if got := actors(t, all(j, change(Updated, 4, 5))); got != "alice proven, -" {
		t.Error(got)
	}
}

// An audit event that arrives late shows that others may be late as well.
func TestLate(t *testing.T) {
	for _, test := range []struct {
		skew, arrived int
		want          string
	}{{0, 5099, "alice sole, -"}, {0, 5100, "-, -"}, {10, 5109, "alice sole, -"}} {
		j := New(Options{MaxSkew: time.Duration(test.skew) * time.Millisecond})
		c := change(Updated, 4, 5)
		j.Change(c)
		j.Event(patchOf("alice", 80, 99).event(t), at(100))
		j.Event(call{user: "bob", verb: "get", name: "y", from: 50, to: 99}.event(t), at(test.arrived))
		if got := actors(t, j.Expire(at(5100))); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
}

// An audit event is kept for as long as a change can require it. After that, no actor is sole that could have had this
// event as a rival.
func TestKeep(t *testing.T) {
	for _, test := range []struct {
		observed, since int
		want            string
	}{{10_050, 5050, "-, -"}, {10_060, 60, "alice sole, -"}, {10_060, 49, "-, -"}, {10_060, 50, "alice sole, -"}} {
		j := New(Options{})
		j.Event(call{user: "bob", verb: "patch", name: "x", to: 40, level: "Metadata", code: 500}.event(t), at(50))
		j.Event(patchOf("alice", 80, 9000).event(t), at(9001))
		if test.observed > 10_050 {
			j.Expire(at(10_050))
		}
		c := change(Updated, 4, 5)
		c.Observed, c.Since = at(test.observed), at(test.since)
		got := j.Change(c)
		if got = append(got, j.Expire(at(test.observed+5000))...); actors(t, got) != test.want {
			t.Errorf("%+v: %s", test, actors(t, got))
		}
	}
}

// A deletion names who requested it, also if it is answered early.
func TestRequested(t *testing.T) {
	remove := call{verb: "delete", from: 80, to: 90, resource: "pods", response: object("u", 5, terminating, noGrace)}
	kubelet := call{
		user:     "kubelet",
		verb:     "delete",
		from:     200,
		to:       210,
		resource: "pods",
		response: object("u", 7, terminating, noGrace),
	}
	finished := pod(Finished, 5, 7)
	finished.Observed = at(205)

	rival := call{
		user:     "bob",
		verb:     "deletecollection",
		from:     150,
		to:       220,
		resource: "pods",
		response: `{"items":[` + object("u", 6) + `]}`,
	}
	j := New(Options{})
	j.Event(remove.event(t), at(91))
	j.Event(rival.event(t), at(221))
	if got := j.Change(pod(Marked, 4, 5)); got != nil {
		t.Fatal(got)
	}
	if got := append(j.Change(finished), j.Event(kubelet.event(t), at(300))...); got != nil {
		t.Errorf("answered before it is known who requested it: %v", got)
	}
	rival.user = "carol"
	j.Event(rival.event(t), at(301))
	if got := actors(t, j.Expire(at(5204))); got != "alice sole, -" {
		t.Error(got)
	}
	if got := actors(t, j.Expire(at(5205))); got != "kubelet proven, alice sole" {
		t.Error(got)
	}

	j = New(Options{})
	j.Event(remove.event(t), at(91))
	all(j, pod(Marked, 4, 5))
	j.Change(finished)
	if got := actors(t, j.Event(kubelet.event(t), at(300))); got != "kubelet proven, alice sole" {
		t.Error(got)
	}
	if len(j.marks) > 0 {
		t.Error("the mark remains")
	}
}

// Who requested a deletion is remembered for a limited number of objects.
func TestMarksAreBounded(t *testing.T) {
	j := New(Options{})
	for n := range 3 * maxMarks {
		c := change(Marked, 4, 5)
		c.UID = fmt.Sprint(n)
		j.Change(c)
		j.Expire(at(100_000))
	}
	if n := len(j.marks) + len(j.olderMarks); n > 2*maxMarks || n < maxMarks {
		t.Errorf("%d objects", n)
	}
}

// Times that are closer than the clocks may differ exclude nothing.
func TestSkew(t *testing.T) {
	hidden := call{user: "bob", verb: "patch", from: 0, to: 50, level: "Metadata"}
	before := func(from int) call {
		return call{user: "carol", verb: "patch", from: from, to: from + 1, response: object("u", 4)}
	}
	for name, test := range map[string]struct {
		calls []call
		want  string
	}{
		"a little later":   {[]call{patchOf("alice", 80, 90), patchOf("bob", 100, 105)}, "-, -"},
		"later":            {[]call{patchOf("alice", 80, 90), patchOf("bob", 101, 105)}, "alice sole, -"},
		"a little earlier": {[]call{patchOf("alice", 80, 90), hidden, before(60)}, "-, -"},
		"earlier":          {[]call{patchOf("alice", 80, 90), hidden, before(61)}, "alice sole, -"},
	} {
		j := New(Options{MaxSkew: 10 * time.Millisecond})
		for _, c := range test.calls {
			j.Event(c.event(t), at(110))
		}
		if got := actors(t, all(j, change(Updated, 4, 5))); got != test.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A request whose times are not known is nobody's, but a rival.
func TestNoTime(t *testing.T) {
	for _, rival := range []bool{false, true} {
		for _, received := range []bool{false, true} {
			j := New(Options{})
			e := patchOf("bob", 80, 90).event(t)
			if received {
				e.Received = time.Time{}
			} else {
				e.StageTime = time.Time{}
			}
			if j.Event(e, at(100)); rival {
				j.Event(patchOf("alice", 80, 90).event(t), at(100))
			}
			j.lost = time.Time{} // the time is not late, but missing
			if got := actors(t, all(j, change(Updated, 4, 5))); got != "-, -" {
				t.Errorf("rival %t, received %t: %s", rival, received, got)
			}
		}
	}
}

// Two requests are only the same actor if everything that is said about it is the same.
func TestSame(t *testing.T) {
	full := func() Actor {
		return Actor{
			Grade: Sole, User: "u", Groups: []string{"g"}, Impersonated: "i", ImpersonatedGroups: []string{"h"},
			SourceIPs: []string{"1"}, UserAgent: "a", AuditID: "d", Verb: "v",
		}
	}
	a := full()
	for n, change := range []func(*Actor){
		func(b *Actor) { b.Grade = Proven },
		func(b *Actor) { b.User = "" }, func(b *Actor) { b.Groups[0] = "" }, func(b *Actor) { b.Impersonated = "" },
		func(b *Actor) { b.ImpersonatedGroups = nil }, func(b *Actor) { b.SourceIPs = nil },
		func(b *Actor) { b.UserAgent = "" }, func(b *Actor) { b.AuditID = "" }, func(b *Actor) { b.Verb = "" },
	} {
		b := full()
		if change(&b); a.same(&b) != (n == 0) {
			t.Errorf("%+v", b)
		}
	}
}

// Two proofs contradict each other, so there is none.
func TestContradiction(t *testing.T) {
	j := New(Options{})
	j.Event(putOf("alice", "4", 80, 90).event(t), at(91))
	j.Event(putOf("bob", "4", 80, 90).event(t), at(91))
	if got := actors(t, all(j, change(Updated, 4, 5))); got != "-, -" {
		t.Error(got)
	}
}

// Of very many requests for one object, not all are looked at, and none is the only one.
func TestCrowded(t *testing.T) {
	for rivals, want := range map[int]string{maxRivals: "alice sole, -", maxRivals + 1: "-, -"} {
		j := New(Options{})
		j.Event(patchOf("alice", 80, 95).event(t), at(100))
		for range rivals { // excluded by their time
			j.Event(call{user: "bob", verb: "patch", from: 70, to: 90, level: "Metadata"}.event(t), at(91))
		}
		c := change(Updated, 4, 5)
		c.Since = at(91)
		if got := actors(t, all(j, c)); got != want {
			t.Errorf("%d rivals: %s", rivals, got)
		}
		if n := len(j.slots[nameKey("configmaps", "n", "x")].all()); n != maxRivals {
			t.Errorf("%d requests are looked at", n)
		}
	}
}

// Memory is bounded, and whatever is dropped makes sole actors impossible.
func TestBytesAreBounded(t *testing.T) {
	const limit = 1 << 20
	j := New(Options{MaxBytes: limit})
	var answers []Answer
	c := change(Updated, 4, 5)
	answers = append(answers, j.Change(c)...)
	answers = append(answers, j.Event(patchOf("alice", 80, 90).event(t), at(91))...)
	large := strings.Repeat("x", 1000)
	for n := range 5_000 {
		e := call{
			user:        "bob",
			verb:        "patch",
			from:        80,
			to:          95,
			response:    object(fmt.Sprint("other", n), 6),
			annotations: `{"` + large + `":""}`,
		}.event(
			t,
		)
		e.AuditID += large
		answers = append(answers, j.Event(e, at(96))...)
		if j.bytes > limit {
			t.Fatalf("%d bytes", j.bytes)
		}
	}
	if got := actors(t, append(answers, j.Expire(at(5100))...)); got != "-, -" {
		t.Error(got)
	}

	j = New(Options{MaxBytes: limit})
	answers = nil
	for n := range 5_000 {
		c := change(Updated, 4, 5)
		c.UID = fmt.Sprint(n)
		answers = append(answers, j.Change(c)...)
		if j.bytes > limit {
			t.Fatalf("%d bytes", j.bytes)
		}
	}
	if waiting := len(j.waiting); waiting < 500 || len(answers) != 5_000-waiting || answers[0].By != nil {
		t.Errorf("%d changes wait, %d answers", waiting, len(answers))
	}
}

// The sizes that the limit counts are not smaller than the memory that is used.
func TestSizes(t *testing.T) {
	n := scale.Of(5000, 20_000)
	heap := func() uint64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	for name, add := range map[string]func(j *Joiner, n int){
		"patches": func(j *Joiner, n int) {
			e := patchOf("alice", 80, 90)
			e.response = object(fmt.Sprintf("%036d", n), 5)
			j.Event(e.event(t), at(91))
		},
		"timeouts": func(j *Joiner, n int) {
			j.Event(call{verb: "patch", name: fmt.Sprintf("%036d", n), code: 504, to: 90}.event(t), at(91))
		},
		"lists": func(j *Joiner, n int) {
			if n%100 == 0 {
				items := make([]string, 100)
				for i := range items {
					items[i] = object(fmt.Sprintf("%036d", n+i), 4)
				}
				j.Event(call{verb: "deletecollection", to: 90, response: `{"items":[` + strings.Join(items, ",") + `]}`}.event(t), at(91))
			}
		},
		"changes": func(j *Joiner, n int) {
			c := change(Updated, 4, 5)
			c.UID = fmt.Sprintf("%036d", n)
			j.Change(c)
		},
	} {
		j := New(Options{MaxBytes: 1 << 30})
		before := heap()
		for i := range n {
			add(j, i)
		}
		used := int(heap() - before)
		t.Logf("%s: %d bytes each, %d counted", name, used/n, j.bytes/n)
		if j.bytes < used || j.bytes > 3*used {
			t.Errorf("%s: %d bytes counted, %d used", name, j.bytes, used)
		}
		runtime.KeepAlive(j)
	}
}

// The actor has what the audit event contains, with the address of the connection last.
func TestActor(t *testing.T) {
	e := call{user: "älice", verb: "patch", from: 80, to: 90, response: object("u", 5)}.event(t)
	raw := strings.Replace(
		string(e.Raw),
		`"sourceIPs":[`,
		`"impersonatedUser":{"username":"carol","groups":["h"]},"sourceIPs":[`+
			strings.Repeat(`"7.7.7.7",`, 50),
		1,
	)
	j := New(Options{})
	j.Event(parse(t, raw), at(91))
	got := all(j, change(Updated, 4, 5))
	want := &Actor{
		Grade:              Sole,
		User:               "älice",
		Groups:             []string{"g-älice", "all"},
		Impersonated:       "carol",
		ImpersonatedGroups: []string{"h"},
		SourceIPs:          []string{"7.7.7.7", "7.7.7.7", "7.7.7.7", "7.7.7.7", "7.7.7.7", "7.7.7.7", "6.6.6.6", "10.0.0.1"},
		UserAgent:          "agent-älice",
		AuditID:            "älicepatch",
		Verb:               "patch",
	}
	if diff := cmp.Diff(want, got[0].By); diff != "" {
		t.Error(diff)
	}
	if got[0].By.Groups[0] == "" || strings.Contains(raw, "\x00") {
		t.Error("empty")
	}
}

// What clients can choose neither makes an event large nor the join wrong.
func TestHostile(t *testing.T) {
	deep := strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000)
	big := strings.Repeat("y", 1<<20)
	for name, e := range map[string]call{
		"deep":          {verb: "patch", request: deep, response: object("u", 5, `,"annotations":{"a":"\"uid\":\"v\""},"labels":`+deep)},
		"big":           {verb: "patch", query: big, request: `{"data":"` + big + `"}`, response: object("u", 5, `,"labels":{"a":"`+big+`"}`)},
		"items in a CR": {verb: "patch", response: `{"items":[` + object("v", 9) + `],"rows":[` + object("v", 9) + `],` + object("u", 5)[1:]},
		"escapes":       {verb: "patch", request: `{"metad\u0061ta":{}}`, response: `{"metadat\u0061":{"uid":"\u0075","resourceVersi\u006fn":"5"}}`},
		"other fields":  {verb: "patch", response: `{"spec":{"metadata":` + object("v", 9) + `},"dryRun":["All"],` + object("u", 5)[1:]},
	} {
		e.from, e.to = 80, 90
		j := New(Options{})
		j.Event(e.event(t), at(91))
		if j.bytes > 2000 {
			t.Errorf("%s: %d bytes", name, j.bytes)
		}
		if got := actors(t, all(j, change(Updated, 4, 5))); got != "alice sole, -" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// The parameters of a URI are read as API servers do it.
func TestDryRunOf(t *testing.T) {
	for uri, want := range map[string]dryRun{
		"/x": notDry, "/x?dryRun=All": dry, "/x?a=b&dryRun=All": dry, "/dryRun=All?a": notDry, "/x?dry%52un=%41ll": dry,
		"/x?dryRun=All%zz": notDry, "/x?dryRun=All;a": notDry, "/x?dryrun=All": notDry, "/x?a=dryRun=All": notDry,
		"/x?%zz&dryRun=All": dry, "/x?dryRun=All" + strings.Repeat("&a=b", maxParameters): maybeDry, "": notDry,
		"/x?a=b" + strings.Repeat("&a=b", maxParameters): notDry,
	} {
		if got := dryRunOf([]byte(uri)); got != want {
			t.Errorf("%.30s: %d, want %d", uri, got, want)
		}
	}
}

// Whatever an event contains, nothing panics, and its size is that of its texts.
func FuzzRequest(f *testing.F) {
	for _, test := range tests {
		for _, c := range test.calls {
			f.Add(c.verb, c.sub, string(c.event(f).Raw))
		}
	}
	f.Fuzz(func(t *testing.T, verb, sub, raw string) {
		e := &audit.Event{
			Stage:     stageComplete,
			Verb:      verb,
			Object:    audit.ObjectReference{Resource: "pods", Subresource: sub},
			Received:  at(0),
			StageTime: at(1),
			Raw:       []byte(raw),
		}
		j := New(Options{})
		j.Event(e, at(2))
		if len(j.requests) > 0 && j.bytes > 1000+300*len(raw) {
			t.Errorf("%d bytes", j.bytes)
		}
		j.Expire(at(100_000))
		if len(j.slots) > 0 {
			t.Errorf("%d slots remain", len(j.slots))
		}
	})
}
