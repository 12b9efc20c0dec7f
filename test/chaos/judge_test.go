package chaos

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

var began = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// second is a time of the story.
func second(n float64) time.Time { return began.Add(time.Duration(n * float64(time.Second))) }

// story is a run in short: revisions, one each second, and what a sink got.
type story struct {
	t     *testing.T
	in    Input
	revs  []*Rev
	sinks []Sink
}

// tell begins a story. Each word is a revision: a name, then ":red" or ":blue" for another team, or "-" for its
// deletion.
func tell(t *testing.T, words string, sinks ...Sink) *story {
	t.Helper()
	s := &story{t: t, sinks: sinks, in: Input{Events: map[string][]*Event{}}}
	uids, teams := map[string]string{}, map[string]string{}
	for n, word := range strings.Fields(words) {
		rv := int64(n + 1)
		name, deleted := strings.CutSuffix(word, "-")
		name, team, labelled := strings.Cut(name, ":")
		if uids[name] == "" {
			uids[name] = fmt.Sprintf("uid-%s-%d", name, rv)
		}
		if labelled {
			teams[name] = team
		}
		s.revs = append(s.revs, &Rev{
			RV: rv, Resource: "secrets", Namespace: "a", Name: name, UID: uids[name], Deleted: deleted, Team: teams[name],
			Stamp: itoa(rv), At: second(float64(rv)),
		})
		if deleted {
			delete(uids, name)
			delete(teams, name)
		}
	}
	s.in.History = NewHistory(s.revs)
	return s
}

func (s *story) config() Config {
	return Config{Watch: []Watch{{Resources: []string{"secrets"}}}, Sinks: slices.Clone(s.sinks)}
}

// process runs from a second to another, which are revisions too. 0 as its end: it goes on.
func (s *story) process(from, to int64, how Action, c Config) *story {
	p := Process{
		Config:   c,
		Start:    second(float64(from)),
		StartRev: from,
		ReadyRev: max(from, 1),
		EndRev:   to,
		End:      second(float64(to)),
		Asked:    second(float64(to)),
		How:      string(how),
	}
	if to == 0 {
		p.EndRev, p.End = math.MaxInt64, time.Time{}
	}
	s.in.Timeline.Processes = append(s.in.Timeline.Processes, p)
	return s
}

func (s *story) fault(a Action, sink string, from, to int64) *story {
	s.in.Timeline.Faults = append(
		s.in.Timeline.Faults,
		Fault{Action: a, Sink: sink, From: second(float64(from)), To: second(float64(to)), Rev: from},
	)
	return s
}

// got adds what a sink holds: "added 3", "initial 3", "updated 4", "deleted 5", "left 5", "unknown 5", "gap relist 2
// 5", "gap overflow 2 5 3". "@9" behind it is the second at which it was stored; else that of its revision.
func (s *story) got(sink string, lines ...string) *story {
	for _, line := range lines {
		line, at, timed := strings.Cut(line, "@")
		words := strings.Fields(line)
		e := &Event{Operation: words[0], Resource: "secrets", Namespace: "a"}
		numbers := make([]int64, 3)
		for n, w := range words[1:] {
			if e.Operation == "gap" {
				if n == 0 {
					e.Gap = &Gap{Resource: "secrets", Reason: w}
					continue
				}
				n--
			}
			if _, err := fmt.Sscan(w, &numbers[n]); err != nil {
				s.t.Fatal(line, err)
			}
		}
		e.RV = numbers[0]
		e.At = second(float64(e.RV) + 0.1)
		if e.Gap != nil {
			e.Gap.From, e.Gap.To, e.Gap.Events = numbers[0], numbers[1], int(numbers[2])
			e.At = second(float64(e.Gap.To) + 0.1)
			e.ID = line
		} else if r := s.in.History.byRV[e.RV]; r != nil {
			e.Name, e.UID, e.Stamp = r.Name, r.UID, r.Stamp
			e.ID = e.UID + "." + itoa(e.RV)
		}
		switch e.Operation {
		case "initial":
			e.Operation, e.Initial = "added", true
		case "left":
			e.Operation, e.Left, e.ID = "deleted", true, e.ID+".left"
		case "unknown":
			e.Operation, e.Unknown, e.ID = "deleted", true, e.UID+".deleted"
		case "deleted":
			e.ID = e.UID + ".deleted"
		}
		if timed {
			var n float64
			if _, err := fmt.Sscan(at, &n); err != nil {
				s.t.Fatal(err)
			}
			e.At = second(n)
		}
		s.in.Events[sink] = append(s.in.Events[sink], e)
	}
	return s
}

// ends judges, and expects violations of these classes.
func (s *story) ends(want ...Class) {
	s.t.Helper()
	s.expect(Judge(s.in), want...)
}

func (s *story) expect(violations []Violation, want ...Class) {
	s.t.Helper()
	var got []Class
	for _, v := range violations {
		s.t.Log(v)
		got = append(got, v.Class)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.t.Errorf("violations: %q, want %q", got, want)
	}
}

// at gives the moments at which everything up to these revisions had arrived: the seconds of the revisions.
func at(revs ...int64) (settled []Settled) {
	for _, rev := range revs {
		settled = append(settled, Settled{second(float64(rev)), rev})
	}
	return settled
}

func stream(f Filter) Sink { return Sink{Name: "s", Kind: Stream, Filter: f, ShortWindow: true} }

func TestJudgeAnUndisturbedRun(t *testing.T) {
	const words = "x y x x- y"
	all := []string{"added 1", "added 2", "updated 3", "deleted 4", "updated 5"}
	one := func(change func([]string) []string) *story {
		s := tell(t, words, stream(Filter{}))
		return s.process(0, 0, "", s.config()).got("s", change(slices.Clone(all))...)
	}
	for name, c := range map[string]struct {
		change func([]string) []string
		want   []Class
	}{
		"all is well":              {func(l []string) []string { return l }, nil},
		"a state is missing":       {func(l []string) []string { return slices.Delete(l, 2, 3) }, []Class{Missing}},
		"the last one is missing":  {func(l []string) []string { return slices.Delete(l, 4, 5) }, []Class{Missing}},
		"a deletion is missing":    {func(l []string) []string { return slices.Delete(l, 3, 4) }, []Class{StillThere}},
		"wrong order":              {func(l []string) []string { l[0], l[2] = l[2], l[0]; return l }, []Class{Order, Operation, Operation}},
		"order of two objects":     {func(l []string) []string { l[0], l[1] = l[1], l[0]; return l }, nil},
		"twice":                    {func(l []string) []string { return slices.Insert(l, 3, l[2]) }, []Class{Repeated}},
		"deleted twice":            {func(l []string) []string { return append(l, l[3]) }, []Class{Repeated}},
		"unknown":                  {func(l []string) []string { l[4] = "updated 77"; return l }, []Class{Foreign, Missing}},
		"an update is no addition": {func(l []string) []string { l[0] = "updated 1"; return l }, []Class{Operation}},
		"a gap without a cause":    {func(l []string) []string { return append(l, "gap relist 1 3") }, []Class{GapCause}},
		"a drop without a cause":   {func(l []string) []string { return append(l, "gap overflow 1 3 1") }, []Class{GapCause}},
		"a refusal":                {func(l []string) []string { return append(l, "gap refused 1 1 1") }, []Class{GapCause}},
	} {
		t.Run(name, func(t *testing.T) {
			s := one(c.change)
			s.t = t
			s.ends(c.want...)
		})
	}
}

func TestJudgeContent(t *testing.T) {
	s := tell(t, "x", stream(Filter{}))
	s.process(0, 0, "", s.config()).got("s", "added 1")
	s.in.Events["s"][0].Stamp = "other"
	s.ends(Foreign)
}

func TestJudgePartitions(t *testing.T) {
	s := tell(t, "x x", stream(Filter{}))
	s.process(0, 0, "", s.config()).got("s", "added 1", "updated 2")
	s.in.Events["s"][1].Place = 1
	s.ends(Order)
}

func TestJudgeFilters(t *testing.T) {
	for name, c := range map[string]struct {
		got  []string
		want []Class
	}{
		"all is well":         {[]string{"added 1", "left 2", "added 4", "deleted 6"}, nil},
		"no leave":            {[]string{"added 1", "updated 4", "deleted 6"}, []Class{StillThere}},
		"not for the sink":    {[]string{"added 1", "left 2", "added 3", "left 3", "added 4", "deleted 6"}, []Class{Foreign}},
		"left without reason": {[]string{"added 1", "left 2", "added 4", "left 4", "deleted 6"}, []Class{Foreign, Operation}},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, "x:red x:blue x x:red y:blue x-", stream(Filter{Team: "red"}))
			s.process(0, 0, "", s.config()).got("s", c.got...).ends(c.want...)
		})
	}
}

func TestJudgeALeaveBeforeTheFirstList(t *testing.T) {
	s := tell(t, "x:red x:blue y:red", stream(Filter{Team: "red"}))
	s.process(2, 0, "", s.config())
	s.got("s", "added 3").ends()
}

func TestJudgeKills(t *testing.T) {
	for name, c := range map[string]struct {
		got  []string
		want []Class
	}{
		"what was not committed comes again": {[]string{"added 1", "updated 8", "updated 9", "updated 8@12", "updated 9@12.1", "updated 11@12.2", "updated 12@12.3"}, []Class{Repeated, Repeated}},
		"what was committed, too":            {[]string{"added 1", "updated 8", "updated 9", "added 1@12", "updated 11@12.2", "updated 12@12.3"}, []Class{Repeated}},
		"and nothing is missing":             {[]string{"added 1", "updated 8", "updated 9", "updated 12"}, []Class{Missing}},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, "x y y y y y y x x y x x", stream(Filter{Namespaces: []string{"a"}}))
			for _, r := range s.revs { // y is elsewhere
				if r.Name == "y" {
					r.Namespace = "b"
				}
			}
			s.in.History = NewHistory(s.revs)
			s.process(0, 10, Kill, s.config()).process(11, 0, "", s.config()).got("s", c.got...).ends(c.want...)
		})
	}
}

// A restated object has the id of its state: that the addition comes again after a kill is a repetition of the
// addition.
func TestJudgeAKillAfterAResync(t *testing.T) {
	s := tell(t, "x x", stream(Filter{}))
	s.process(0, 1, Kill, s.config()).process(1, 0, "", s.config())
	s.in.Timeline.Processes[0].End, s.in.Timeline.Processes[0].Asked = second(1.5), second(1.5)
	s.got("s", "added 1", "restated 1@1.3", "added 1@1.7", "updated 2").ends(Repeated)
}

func TestJudgeATermination(t *testing.T) {
	s := tell(t, "x x x", stream(Filter{}))
	s.process(0, 2, Term, s.config()).process(2, 0, "", s.config())
	s.got("s", "added 1", "updated 2", "updated 2@2.9", "updated 3").ends(Repeated)
}

// An initial list that was not finished begins again, without what the destination has.
func TestJudgeATerminationInAFirstList(t *testing.T) {
	for again, want := range map[string][]Class{"initial 3@5.1": nil, "initial 1@5.1": {Repeated}} {
		s := tell(t, "a b c a", stream(Filter{}))
		s.process(3, 4, Term, s.config()).process(5, 0, "", s.config())
		s.in.Timeline.Processes[0].ReadyRev = 0
		s.got("s", "initial 1@3.1", "initial 2@3.2", again, "initial 3@5.3", "updated 4@5.4")
		if want == nil {
			s.in.Events["s"] = append(s.in.Events["s"][:2], s.in.Events["s"][3:]...)
		}
		s.ends(want...)
	}
}

// A process that ended soon may not have heard of a deletion before it. If its checkpoint is lost, nobody has.
func TestJudgeADeletionBeforeAShortProcess(t *testing.T) {
	for start, want := range map[float64][]Class{6.5: nil, 4.5: {StillThere}} {
		s := tell(t, "x y y z x- y z z y", stream(Filter{}))
		s.process(0, 4, Term, s.config()).process(6, 7, Term, s.config()).fault(Lose, "", 7, 7).process(8, 0, "", s.config())
		s.in.Timeline.Processes[1].Start = second(start)
		s.in.Timeline.Processes[2].ReadyRev = 8
		s.got("s", "added 1", "added 2", "updated 3", "added 4", "updated 6@6.8", "updated 7", "initial 6@8.1", "initial 8@8.1", "updated 9").
			ends(want...)
	}
}

// What of a first list was sent is not known if a process could not finish it: all of it may leave.
func TestJudgeALeaveAfterAFirstListInPart(t *testing.T) {
	for ready, want := range map[int64][]Class{0: nil, 3: {Operation}} {
		s := tell(t, "a b c", stream(Filter{}))
		narrow := s.config()
		narrow.Watch = []Watch{{Resources: []string{"secrets"}, Namespaces: []string{"b"}}}
		s.process(3, 4, Term, s.config()).process(4, 0, "", narrow)
		s.in.Timeline.Processes[0].ReadyRev = ready
		s.got("s", "initial 1@3.1", "initial 3@3.3", "left 1@4.1", "left 2@4.2", "left 3@4.3").ends(want...)
	}
}

// The same of what changed meanwhile, so that it does not pass any more.
func TestJudgeALeaveOfAChangedObjectAfterAFirstListInPart(t *testing.T) {
	for ready, want := range map[int64][]Class{0: nil, 2: {Missing, Operation}} {
		s := tell(t, "a:blue b:red a:red c:red", stream(Filter{Team: "blue"}))
		s.process(2, 2, Term, s.config()).process(4, 0, "", s.config())
		s.in.Timeline.Processes[0].ReadyRev = ready
		s.got("s", "left 3@4.1", "left 2@4.2").ends(append(want, Operation)...) // b never passed
	}
}

// A state from before the process began was in no list.
func TestJudgeALeaveOfAnObjectThatHadChangedBefore(t *testing.T) {
	s := tell(t, "a:blue a:red b:red c:red", stream(Filter{Team: "blue"}))
	s.process(2, 3, Term, s.config()).process(4, 0, "", s.config())
	s.in.Timeline.Processes[0].ReadyRev = 0
	s.got("s", "left 2@4.1").ends(Operation)
}

// The same of what was deleted meanwhile.
func TestJudgeADeletionAfterAFirstListInPart(t *testing.T) {
	for ready, want := range map[int64][]Class{0: nil, 3: {Missing, Operation}} {
		s := tell(t, "a b a b- a a", stream(Filter{}))
		s.process(2, 3, Term, s.config()).process(5, 0, "", s.config()).fault(Forget, "", 4, 4)
		s.in.Timeline.Processes[0].ReadyRev = ready
		s.got("s", "initial 1@2.1", "gap relist 2 5", "unknown 2@5.1", "updated 3@5.1", "updated 5@5.2", "updated 6").
			ends(want...)
	}
}

// A killed process sent a deletion that it had not seen, and the successor of the object. The next process continues
// from what was committed, and repeats nothing.
func TestJudgeAMissedDeletionIsRepeated(t *testing.T) {
	for how, want := range map[Action][]Class{
		Kill: {Repeated, Repeated, Repeated, Repeated}, Term: {Repeated, Repeated, Repeated, Repeated},
	} {
		s := tell(t, "a a- a b b b", stream(Filter{}))
		s.process(0, 1, Kill, s.config()).fault(Forget, "", 2, 2).process(3, 4, how, s.config())
		s.fault(Forget, "", 4, 4).process(5, 0, "", s.config())
		s.got("s", "added 1", "added 1@3.1", "gap relist 1 3@3.1", "unknown 1@3.2", "added 3@3.3", "added 4@3.4",
			"added 1@5.1", "gap relist 1 5@5.1", "unknown 1@5.2", "added 3@5.3", "updated 5@5.4", "updated 6").
			ends(want...)
	}
}

// A list is compared with what all sinks had settled: deletions and what replaced the deleted come again to a sink that
// was ahead of another one, and other states do not, unless the watch was changed.
func TestJudgeAListWhileAnotherSinkIsBehind(t *testing.T) {
	other := stream(Filter{})
	other.Name = "o"
	for name, c := range map[string]struct {
		away, watch bool
		again       []string
		want        []Class
	}{
		"behind":      {away: true, again: []string{"unknown 2@10.2", "added 4@10.3"}},
		"not behind":  {again: []string{"unknown 2@10.2", "added 4@10.3"}, want: []Class{Repeated, Repeated}},
		"a state too": {away: true, again: []string{"updated 5@10.2"}, want: []Class{Repeated}},
		"a watch":     {away: true, watch: true, again: []string{"updated 5@10.2"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, "a b b- b a a a a a a", stream(Filter{}), other)
			last := s.config()
			if c.watch {
				last.Watch = []Watch{{Resources: []string{"secrets"}, Namespaces: []string{"a"}}}
			}
			s.process(0, 8, Kill, s.config()).fault(Forget, "", 9, 9).process(10, 0, "", last)
			if c.away {
				s.fault(Away, "o", 4, 9)
			}
			got := []string{
				"added 1",
				"added 2",
				"deleted 3",
				"added 4",
				"updated 5",
				"updated 6",
				"updated 7",
				"updated 8",
				"gap relist 1 10@10.1",
			}
			s.got("s", append(got, append(c.again, "updated 9@10.4", "updated 10@10.5")...)...)
			var violations []Violation
			for _, v := range Judge(s.in) {
				if v.Sink == "s" && v.Class == Repeated {
					violations = append(violations, v)
				}
			}
			s.expect(violations, c.want...)
		})
	}
}

// The bridge was killed in the initial lists with which it began: the next process sends them again.
func TestJudgeAKillInTheInitialLists(t *testing.T) {
	for how, want := range map[Action][]Class{Kill: nil, Term: {Operation}} {
		s := tell(t, "a a a a a a a a", stream(Filter{}))
		s.process(0, 2, Term, s.config()).fault(Lose, "", 3, 3).process(4, 5, how, s.config()).process(6, 0, "", s.config())
		s.got("s", "added 1", "updated 2", "initial 4@4.1", "initial 5@6.1", "updated 6@6.2", "updated 7", "updated 8").
			ends(want...)
	}
}

func TestJudgeAnOutage(t *testing.T) {
	s := tell(t, "x x x x x x x x x x", stream(Filter{}))
	s.process(0, 0, "", s.config()).fault(Hang, "s", 2, 5)
	s.got("s", "added 1", "updated 2", "updated 2@5", "updated 3@5", "updated 4@5", "updated 5", "updated 6", "updated 7", "updated 8", "updated 9", "updated 9@9.5", "updated 10").
		ends(Repeated, Repeated)
}

func TestJudgeLostHistory(t *testing.T) {
	for name, c := range map[string]struct {
		got  []string
		want []Class
	}{
		"all is well":               {[]string{"added 1", "added 2", "updated 20", "added 21", "gap relist 21 26", "updated 25", "unknown 2", "updated 27"}, nil},
		"a deletion is missing":     {[]string{"added 1", "added 2", "updated 20", "added 21", "gap relist 21 26", "updated 25", "updated 27"}, []Class{StillThere}},
		"the current state too":     {[]string{"added 1", "added 2", "updated 20", "added 21", "gap relist 21 26", "unknown 2", "updated 27"}, []Class{Missing}},
		"no gap":                    {[]string{"added 1", "added 2", "updated 20", "added 21", "updated 25", "unknown 2", "updated 27"}, []Class{Missing, Missing}},
		"wider than its cause":      {[]string{"added 1", "added 2", "updated 20", "added 21", "gap relist 2 26", "updated 25", "unknown 2", "updated 27"}, []Class{GapWidth}},
		"wider, and a hole":         {[]string{"added 1", "added 2", "added 21", "gap relist 2 26", "updated 25", "unknown 2", "updated 27"}, []Class{GapWidth}},
		"hole beside the gap":       {[]string{"added 1", "added 2", "added 21", "gap relist 21 26", "updated 25", "unknown 2", "updated 27"}, []Class{Missing}},
		"gap where nothing is lost": {[]string{"added 1", "added 2", "updated 20", "added 21", "gap relist 30 31", "updated 23", "updated 24", "updated 25", "unknown 2", "updated 27"}, []Class{GapCause}},
	} {
		t.Run(name, func(t *testing.T) {
			// x changes three times while the bridge is down, y goes, and n lives and dies there.
			words := "x y " + strings.Repeat("z ", 17) + "x w n x x x y- x n-"
			s := tell(t, words, stream(Filter{Namespaces: []string{"a"}}))
			for _, r := range s.revs {
				if r.Name == "z" {
					r.Namespace = "b"
				}
			}
			s.revs[21].Deleted, s.revs[27].Deleted = false, true
			s.in.History = NewHistory(s.revs)
			s.process(0, 21, Term, s.config()).process(26, 0, "", s.config()).fault(Forget, "", 25, 25)
			s.in.Timeline.Processes[1].ReadyRev = 28
			got := append(slices.Clone(c.got), "added 22@26.2", "deleted 28")
			s.got("s", got...).ends(c.want...)
		})
	}
}

// A changed watch explains a gap of the lists with which the process begins, and no later one.
func TestJudgeAGapAfterAChangedWatch(t *testing.T) {
	for gap, want := range map[string][]Class{"gap relist 2 4": nil, "gap relist 5 6": {GapCause}} {
		t.Run(gap, func(t *testing.T) {
			s := tell(t, "x x x x x x", stream(Filter{}))
			after := s.config()
			after.Watch = append(after.Watch, Watch{Resources: []string{"configmaps"}})
			s.process(0, 2, Term, s.config()).process(4, 0, "", after)
			s.got("s", "added 1", "updated 2", "updated 3", "updated 4", "updated 5", "updated 6", gap).ends(want...)
		})
	}
}

// A process that was ended before all sinks had what a changed watch means leaves that to the next one, which lists
// again.
func TestJudgeAGapAfterAnUnfinishedChange(t *testing.T) {
	for settled, want := range map[int64][]Class{0: nil, 4: {GapCause}} {
		s := tell(t, "x x x x x x", stream(Filter{}))
		after := s.config()
		after.Watch = append(after.Watch, Watch{Resources: []string{"configmaps"}})
		s.process(0, 2, Term, s.config()).process(3, 4, Kill, after).process(5, 0, "", after)
		if settled > 0 {
			s.in.Timeline.Settled = at(settled)
		}
		s.got("s", "added 1", "updated 2", "updated 3", "updated 4", "updated 5", "updated 6", "gap relist 3 5").ends(want...)
	}
}

// A gap is judged by when it was made, which its own time says, however late the destination took it.
func TestJudgeAGapThatWaited(t *testing.T) {
	s := tell(t, "x x x x x x x x x x x x x x", stream(Filter{}))
	s.process(0, 6, Term, s.config()).process(8, 0, "", s.config()).fault(Forget, "", 7, 7).fault(Hang, "s", 4, 13)
	s.in.Timeline.Processes[1].StartRev = 9 // the list is of a revision before
	s.got("s", "added 1", "updated 2", "updated 3", "updated 4@13", "updated 5@13", "gap relist 5 8", "updated 8@13.2",
		"updated 9@13.3", "updated 10@13.3", "updated 11@13.3", "updated 12@13.3", "updated 13@13.3", "updated 14@14")
	gap := s.in.Events["s"][5]
	gap.At, gap.Made = second(13.1), second(8.5)
	s.ends()
	gap.Made = time.Time{}
	gap.Gap.From = 2
	s.ends(GapWidth)
}

// A process that resumes is ready before it has read anything: if it ends soon, it may not know what came before it.
func TestJudgeAShortProcess(t *testing.T) {
	s := tell(t, "x x x x x x x x x x", stream(Filter{}))
	s.process(0, 4, Term, s.config()).process(6, 7, Term, s.config()).process(7, 0, "", s.config()).fault(Forget, "", 6, 6)
	s.got("s", "added 1", "updated 2", "updated 3", "gap relist 3 8", "updated 8", "updated 9", "updated 10").ends()
	s.in.Timeline.Processes[1].Start = second(4)
	s.ends(GapWidth)
}

// TestJudgeWhatCannotBeHad: what was sent in the second before a kill may be forgotten, if the history is lost as well.
func TestJudgeWhatCannotBeHad(t *testing.T) {
	for name, c := range map[string]struct {
		how  Action
		gap  string
		want []Class
	}{
		"killed, and the history is lost": {Kill, "gap relist 2 5", nil},
		"ended in order":                  {Term, "gap relist 2 5", []Class{StillThere}},
		"the checkpoint had it":           {Kill, "gap relist 3 5", []Class{StillThere}},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, "y y x x- y", stream(Filter{}))
			s.process(0, 3, c.how, s.config()).process(4, 0, "", s.config()).fault(Forget, "", 4, 4)
			s.in.Timeline.Processes[0].End, s.in.Timeline.Processes[1].ReadyRev = second(3.5), 5
			s.got("s", "added 1", "updated 2", "added 3", c.gap, "updated 5").ends(c.want...)
		})
	}
}

// A stream of last messages keeps the last gap event only: the bridge's log tells of those before it.
// A deletion that comes again is behind the addition of a successor, which the bridge has forgotten too.
func TestJudgeAForgottenSuccessor(t *testing.T) {
	for how, want := range map[Action][]Class{Kill: nil, Term: {GapWidth, Operation, Order}} {
		s := tell(t, "y:blue x:blue x:red x- x:blue y x", stream(Filter{Team: "blue"}))
		s.process(0, 5, how, s.config()).process(6, 0, "", s.config()).fault(Forget, "", 5, 5)
		s.in.Timeline.Processes[0].End = second(5.5)
		s.got("s", "added 1", "added 2", "left 3", "added 5", "gap relist 2 6", "unknown 2@6.1", "updated 6@6.2", "updated 7").
			ends(want...)
	}
}

// A killed process sent a leave that it had not seen. The object came back, and the next process compares it with the
// state that was committed.
func TestJudgeAForgottenLeave(t *testing.T) {
	for how, want := range map[Action][]Class{Kill: {Repeated}, Term: {Operation, Repeated}} {
		s := tell(t, "y:blue x:blue x:red y x:blue y", stream(Filter{Team: "blue"}))
		s.process(0, 2, Term, s.config()).fault(Forget, "", 3, 3).process(3, 4, how, s.config())
		s.fault(Forget, "", 5, 5).process(5, 0, "", s.config())
		s.in.Timeline.Processes[0].End, s.in.Timeline.Processes[1].End = second(2.5), second(4.5)
		s.got("s", "added 1", "added 2", "gap relist 2 4@4.1", "unknown 2@4.2", "updated 4@4.3", "gap relist 2 5@5.1",
			"updated 4@5.2", "updated 5@5.3", "updated 6").ends(want...)
	}
}

// A process is killed soon after its start with another watch. The next one lists again, and knows only what was
// committed: the leave carries an older state than what the killed process sent.
func TestJudgeALeaveAfterAForgottenChange(t *testing.T) {
	for how, want := range map[Action][]Class{Kill: nil, Term: {Order}} {
		s := tell(t, "y:blue x:red x:blue x:red y y", stream(Filter{}))
		after := s.config()
		after.Watch[0].Team = "blue"
		s.process(0, 2, Term, s.config()).process(2, 3, how, after).fault(Forget, "", 4, 4).process(4, 0, "", after)
		s.in.Timeline.Processes[0].End, s.in.Timeline.Processes[1].Start = second(2.4), second(2.5)
		s.in.Timeline.Processes[1].End = second(3.5)
		s.got("s", "added 1", "added 2", "updated 3", "gap relist 2 4@4.1", "left 2@4.2", "updated 5", "updated 6")
		s.ends(want...)
	}
}

// A killed process sent the leaves of a changed filter. An object of them is deleted while the history is lost.
func TestJudgeADeletionAfterAForgottenLeave(t *testing.T) {
	for how, want := range map[Action][]Class{Kill: nil, Term: {Operation}} {
		s := tell(t, "y:red x:blue y x- y y", stream(Filter{}))
		after := s.config()
		after.Sinks[0].Filter.Team = "red"
		s.process(0, 2, Term, s.config()).process(2, 3, how, after).fault(Forget, "", 4, 4).process(5, 0, "", after)
		s.in.Timeline.Processes[0].End, s.in.Timeline.Processes[1].Start = second(2.4), second(2.5)
		s.in.Timeline.Processes[1].End = second(3.5)
		s.got("s", "added 1", "added 2", "left 2@2.6", "updated 3", "gap relist 3 5@5.1", "unknown 2@5.2", "updated 5@5.3",
			"updated 6").ends(want...)
	}
}

// An object left while the bridge was down and its checkpoint was lost. It came back and left again unseen: the
// destination shows it since before the loss.
func TestJudgeALeaveAfterALostCheckpoint(t *testing.T) {
	for fault, want := range map[Action][]Class{Lose: nil, FreeDisk: {Operation, StillThere, StillThere, StillThere}} {
		s := tell(t, "y:red x:red y x:blue y x:red x:blue y", stream(Filter{Team: "red"}))
		s.process(0, 3, Term, s.config()).fault(fault, "", 4, 4).process(5, 5, Term, s.config())
		s.fault(Forget, "", 6, 6).process(6, 0, "", s.config())
		s.in.Timeline.Processes[1].End, s.in.Timeline.Processes[2].ReadyRev = second(5.5), 8
		s.got("s", "added 1", "added 2", "updated 3", "initial 5@5.1", "gap relist 5 8", "updated 8").ends(want...)
	}
}

func TestJudgeWhatCannotBeHadOfALatestState(t *testing.T) {
	for from, want := range map[int64][]Class{2: nil, 3: {StillThere}} {
		latest := stream(Filter{})
		latest.Kind = Latest
		s := tell(t, "y y x x- y", latest)
		s.process(0, 3, Kill, s.config()).process(4, 0, "", s.config()).fault(Forget, "", 4, 4)
		s.in.Timeline.Processes[0].End, s.in.Timeline.Processes[1].ReadyRev = second(3.5), 5
		s.in.Timeline.Relists = []Gap{{Resource: "secrets", Reason: "relist", From: from, To: 5}}
		s.got("s", "updated 5", "added 3").ends(want...)
	}
}

func TestJudgeDrops(t *testing.T) {
	for name, c := range map[string]struct {
		got  []string
		want []Class
	}{
		"as many as announced": {[]string{"added 1", "gap overflow 2 3 2", "updated 4"}, nil},
		"more than announced":  {[]string{"added 1", "gap overflow 2 2 1", "updated 4"}, []Class{Missing}},
		"without a gap":        {[]string{"added 1", "updated 4"}, []Class{Missing, Missing}},
		"a deletion too":       {[]string{"added 1", "gap overflow 2 4 3"}, nil},
		"and not announced":    {[]string{"added 1", "gap overflow 2 4 2"}, []Class{Missing}},
	} {
		t.Run(name, func(t *testing.T) {
			sink := stream(Filter{})
			sink.Overflow = "drop-oldest"
			words := "x x x x"
			if name == "a deletion too" || name == "and not announced" {
				words = "x x x x-"
			}
			s := tell(t, words, sink)
			s.process(0, 0, "", s.config()).fault(Hang, "s", 1, 4).got("s", c.got...).ends(c.want...)
		})
	}
}

// What was dropped or merged does not come again after a kill: newer events were sent.
func TestJudgeDropsBeforeAKill(t *testing.T) {
	for overflow, gap := range map[string][]string{"drop-oldest": {"gap overflow 2 3 2@4.1"}, "compact": nil} {
		t.Run(overflow, func(t *testing.T) {
			sink := stream(Filter{})
			sink.Overflow = overflow
			s := tell(t, "x x x x", sink)
			s.process(0, 5, Kill, s.config()).process(6, 0, "", s.config())
			s.got("s", slices.Concat([]string{"added 1"}, gap, []string{"updated 4@4.2", "updated 2@6.1", "updated 4@6.3"})...)
			s.ends(Order, Repeated)
		})
	}
}

func TestJudgeCompaction(t *testing.T) {
	sink := stream(Filter{})
	sink.Overflow = "compact"
	for name, c := range map[string]struct {
		got  []string
		want []Class
	}{
		"intermediate states": {[]string{"added 3", "added 4", "deleted 5"}, nil},
		"a final state":       {[]string{"added 2", "added 4", "deleted 5"}, []Class{Missing}},
		"a deletion":          {[]string{"added 3", "added 4"}, []Class{StillThere}},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, "x x x y y-", sink)
			s.process(0, 0, "", s.config()).got("s", c.got...).ends(c.want...)
		})
	}
}

// After a kill, and only then, a changed filter can make an update of an addition: what was not committed counts as not
// sent.
func TestJudgeAChangedFilterAfterAKill(t *testing.T) {
	for how, want := range map[Action][]Class{Kill: nil, Term: {Operation}} {
		t.Run(string(how), func(t *testing.T) {
			s := tell(t, "x:blue x:red x:blue", stream(Filter{Team: "blue"}))
			after := s.config()
			after.Sinks[0].Filter.Team = ""
			s.process(0, 2, how, s.config()).process(2, 0, "", after)
			s.in.Timeline.Settled = at(2)
			s.got("s", "added 1", "left 2", "updated 3").ends(want...)
		})
	}
}

// Nor is it sent as left, if it was new to the sink.
func TestJudgeAnObjectThatAKillForgot(t *testing.T) {
	for how, want := range map[Action][]Class{Kill: nil, Term: {StillThere}} {
		t.Run(string(how), func(t *testing.T) {
			s := tell(t, "x y:blue y", stream(Filter{}))
			after := s.config()
			after.Sinks[0].Filter.Team = "blue"
			s.process(0, 1, how, s.config()).process(2, 0, "", after)
			s.got("s", "added 1", "added 2", "updated 3").ends(want...)
		})
	}
}

// It is the same if a process in between ended before it had read what came before it.
func TestJudgeAnObjectThatAKillForgotAndAShortProcess(t *testing.T) {
	for up, want := range map[float64][]Class{14.5: nil, 12.5: {StillThere}} {
		t.Run(fmt.Sprint(up), func(t *testing.T) {
			s := tell(t, "x y:blue y", stream(Filter{}))
			after := s.config()
			after.Sinks[0].Filter.Team = "blue"
			s.process(0, 1, Kill, s.config()).process(12, 16, Term, s.config()).process(18, 0, "", after)
			s.in.Timeline.Processes[1].Up = second(up)
			s.got("s", "added 1", "added 2", "updated 3").ends(want...)
		})
	}
}

func TestJudgeAChangedFilter(t *testing.T) {
	for name, c := range map[string]struct {
		got  []string
		want []Class
	}{
		"all is well":   {[]string{"added 1", "updated 3", "left 3@4.5", "added 2@4.5", "updated 6"}, nil},
		"no leave":      {[]string{"added 1", "updated 3", "added 2@4.5", "updated 6"}, []Class{StillThere}},
		"no addition":   {[]string{"added 1", "updated 3", "left 3@4.5", "updated 6"}, []Class{Operation}},
		"nothing since": {[]string{"added 1", "updated 3", "left 3@4.5", "added 2@4.5"}, []Class{Missing}},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, "x:red y:blue x z:blue z- y", stream(Filter{Team: "red"}))
			after := s.config()
			after.Sinks[0].Filter.Team = "blue"
			s.process(0, 4, Term, s.config()).process(4, 0, "", after)
			s.in.Timeline.Settled = at(4)
			got := slices.Clone(c.got)
			if !slices.Contains(got, "added 4") { // z is gone: it may be sent or not
				s.got("s", got...).ends(c.want...)
			}
		})
	}
	t.Run("there and back", func(t *testing.T) { // the id of the second addition is that of the first
		s := tell(t, "x:red", stream(Filter{Team: "red"}))
		other := s.config()
		other.Sinks[0].Filter.Team = "blue"
		s.process(0, 2, Term, s.config()).process(2, 3, Term, other).process(3, 0, "", s.config())
		s.got("s", "added 1", "left 1@2.5", "added 1@3.5").ends()
		s.in.Events = map[string][]*Event{}
		s.got("s", "added 1", "left 1@2.5").ends(Missing)
	})
	t.Run("there and back, killed", func(t *testing.T) { // the last state follows the addition of the one before again
		s := tell(t, "x:red x:red", stream(Filter{Team: "red"}))
		other := s.config()
		other.Sinks[0].Filter.Team = "blue"
		s.process(0, 3, Kill, s.config()).process(3, 4, Kill, other).process(4, 0, "", s.config())
		s.got("s", "added 1", "updated 2", "left 1@3.5", "added 1@4.5", "updated 2@4.6")
		s.in.Events["s"][2].ID += ".filter.1"
		s.ends()
		s.in.Events = map[string][]*Event{}
		s.got("s", "added 1", "updated 2", "updated 2@4.6").ends(Repeated)
	})
}

// TestJudgeNewStarts: a process that does not know what a destination has sends an initial list, and no deletions of
// what went before that.
func TestJudgeNewStarts(t *testing.T) {
	all := []string{
		"added 1",
		"added 2",
		"added 3",
		"updated 4",
		"updated 9",
		"initial 1@16",
		"initial 9@16",
		"updated 18",
	}
	drop := func(n int) []string { return slices.Delete(slices.Clone(all), n, n+1) }
	for name, c := range map[string]struct {
		between func(*Config) // of the process in the middle
		lose    bool
		got     []string
		want    []Class
	}{
		"removed, and back":            {func(c *Config) { c.Sinks = nil }, false, all, nil},
		"a state of before is missing": {func(c *Config) { c.Sinks = nil }, false, drop(3), []Class{Missing}},
		"not in the list":              {func(c *Config) { c.Sinks = nil }, false, drop(6), nil},
		"renamed":                      {func(c *Config) { c.Sinks[0].Name, c.Sinks[0].Place = "other", "s" }, false, slices.Insert(slices.Clone(all), 5, "deleted 14@14.2"), nil},
		"renamed, after the last commit": {
			func(c *Config) { c.Sinks[0].Name, c.Sinks[0].Place = "other", "s" }, false,
			slices.Insert(slices.Clone(all), 5, "updated 9@14.2"), nil,
		},
		"renamed, and repeated": {
			func(c *Config) { c.Sinks[0].Name, c.Sinks[0].Place = "other", "s" }, false,
			append(slices.Clone(all), "updated 18@18.5"),
			[]Class{Repeated},
		},
		"moved, and back":        {func(c *Config) { c.Sinks[0].Place = "elsewhere" }, false, all, nil},
		"the checkpoint is lost": {func(*Config) {}, true, all, nil},
		"none of it":             {func(*Config) {}, false, all, []Class{Repeated, Repeated, StillThere}},
	} {
		t.Run(name, func(t *testing.T) {
			// z goes while nobody looks, or the bridge is down; f fills time.
			s := tell(t, "x y z y f f f f y f f f f z- f f f x", stream(Filter{Namespaces: []string{"a"}}))
			for _, r := range s.revs {
				if r.Name == "f" {
					r.Namespace = "b"
				}
			}
			s.in.History = NewHistory(s.revs)
			between := s.config()
			c.between(&between)
			s.process(0, 12, Term, s.config())
			if c.lose {
				s.fault(Lose, "", 13, 13)
				s.process(15, 0, "", s.config())
			} else {
				s.process(13, 15, Term, between).process(15, 0, "", s.config())
			}
			s.got("s", c.got...)
			var got []Violation
			for _, v := range Judge(s.in) {
				if v.Sink == "s" {
					got = append(got, v)
				}
			}
			s.expect(got, c.want...)
		})
	}
}

// A sink that is new at a destination does not know what it excludes, so what the destination shows of that stays.
func TestJudgeANewSinkWithAnotherWatch(t *testing.T) {
	for name, want := range map[string][]Class{"new": nil, "s": {StillThere, StillThere}} {
		s := tell(t, "x z:red x:blue y:blue y x- z y", stream(Filter{Team: "blue"}))
		after := s.config()
		after.Sinks[0].Name, after.Sinks[0].Place = name, "s"
		after.Sinks[0].Filter.Resources = []string{"configmaps"}
		s.process(0, 5, Term, s.config()).process(5, 0, "", after)
		s.in.Timeline.Settled = at(5)
		s.got("s", "added 3", "added 4", "updated 5").ends(want...)
	}
}

// What waited for a destination passed the filter of then. A sink that moves takes it along.
func TestJudgeAnotherFilterAndDestination(t *testing.T) {
	for name, want := range map[string][]Class{"s": nil, "new": {Foreign, Operation}} {
		s := tell(t, "x:red y:blue x y", stream(Filter{Team: "red"}))
		after := s.config()
		after.Sinks[0].Name, after.Sinks[0].Place, after.Sinks[0].Filter.Team = name, "elsewhere", "blue"
		s.process(0, 3, Term, s.config()).fault(Hang, "s", 1, 4).process(4, 0, "", after)
		s.got("elsewhere", "updated 3@4.1", "left 3@4.2", "initial 2@4.3", "updated 4@4.4")
		s.in.Events["elsewhere"][0].Made = second(3)
		var got []Violation
		for _, v := range Judge(s.in) {
			if v.Sink == "elsewhere" {
				got = append(got, v)
			}
		}
		s.expect(got, want...)
	}
}

// What a process has certainly handled it had to send, whatever the next one's filter says.
func TestJudgeAStateBeforeAChangedFilter(t *testing.T) {
	s := tell(t, "x:red x x y:blue y y y y y", stream(Filter{Team: "red"}))
	after := s.config()
	after.Sinks[0].Filter.Team = "blue"
	s.process(0, 8, Term, s.config()).process(8, 0, "", after)
	s.got("s", "added 1", "updated 3", "left 3@8.1", "initial 8@8.1", "updated 9").ends(Missing)
}

// Changed twice before all was sent, what the filter in the middle lets in leaves, whether it was sent or not.
func TestJudgeAFilterThatChangesTwice(t *testing.T) {
	for name, c := range map[string]struct {
		settled []int64
		want    []Class
	}{"at once": {nil, nil}, "after all was sent": {[]int64{4}, []Class{Operation}}} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, "x:red y:blue x x x", stream(Filter{Team: "red"}))
			middle := s.config()
			middle.Sinks[0].Filter.Team = ""
			s.process(0, 3, Term, s.config()).process(3, 5, Kill, middle).process(5, 0, "", s.config())
			s.in.Timeline.Settled = at(c.settled...)
			s.got("s", "added 1", "updated 3", "updated 4", "updated 5", "left 2@5.5").ends(c.want...)
		})
	}
}

// A filter that changes together with the watch: what only the new filter lets in, and is no longer watched, leaves
// although it never was there.
func TestJudgeAFilterThatChangesWithTheWatch(t *testing.T) {
	for name, c := range map[string]struct {
		settled []int64
		want    []Class
	}{"at once": {nil, nil}, "after all was sent": {[]int64{4}, []Class{Operation}}} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, "x:red y:blue x:red", stream(Filter{Team: "red"}))
			unwatched := s.config()
			unwatched.Watch = []Watch{{Resources: []string{"configmaps"}}}
			open := unwatched.Clone()
			open.Sinks[0].Filter.Team = ""
			s.process(0, 3, Term, s.config()).process(3, 5, Term, unwatched).process(5, 0, "", open)
			s.in.Timeline.Settled = at(c.settled...)
			s.got("s", "added 1", "updated 3", "left 3@4.5", "left 2@5.5").ends(c.want...)
		})
	}
}

func TestJudgeLatestStates(t *testing.T) {
	for name, c := range map[string]struct {
		got  []string
		want []Class
	}{
		"all is well":     {[]string{"updated 3", "deleted 4"}, nil},
		"an older state":  {[]string{"added 1", "deleted 4"}, []Class{Missing}},
		"what is deleted": {[]string{"updated 3", "added 2"}, []Class{StillThere}},
		"nothing":         {nil, []Class{Missing}},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, "x y x y-", Sink{Name: "s", Kind: Latest})
			s.process(0, 0, "", s.config()).got("s", c.got...).ends(c.want...)
		})
	}
}

func TestJudgeTombstones(t *testing.T) {
	s := tell(t, "x x-", Sink{Name: "s", Kind: CompactedTopic})
	s.process(0, 0, "", s.config()).got("s", "added 1", "deleted 2")
	for _, e := range s.in.Events["s"] {
		e.Key = "x"
	}
	s.ends(Tombstones)
	s.in.Events["s"] = append(s.in.Events["s"], &Event{Key: "x"})
	s.ends()
	s.in.Events["s"] = append(s.in.Events["s"], &Event{Key: "y"})
	s.ends(Tombstones)
}
