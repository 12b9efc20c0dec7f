package chaos

import (
	"testing"
	"time"
)

func TestJudgeProgress(t *testing.T) {
	sink := stream(Filter{})
	sink.Progress = true
	for name, c := range map[string]struct {
		lines []string
		want  []Class
	}{
		"it covers what is there": {[]string{"added 1", "progress 1", "updated 2", "added 3", "progress 3"}, nil},
		"it is ahead":             {[]string{"added 1", "progress 2", "updated 2", "added 3"}, []Class{Ahead}},
		"it stays ahead":          {[]string{"progress 3", "progress 1", "added 1", "updated 2", "added 3"}, []Class{Ahead, Ahead, Ahead}},
		"what is no change":       {[]string{"added 1", "updated 2", "added 3", "progress 3", "restated 2"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, "x x y", sink)
			s.process(0, 0, "", s.config()).got("s", c.lines...).ends(c.want...)
		})
	}
}

func TestJudgeProgressWithAPosition(t *testing.T) {
	sink := stream(Filter{})
	sink.Progress, sink.Control = true, Apart
	for position, want := range map[int64][]Class{3: nil, 2: {Ahead}} {
		s := tell(t, "x x y", sink)
		s.process(0, 0, "", s.config()).got("s", "added 1", "updated 2", "added 3", "progress 2")
		events := s.in.Events["s"]
		for n, e := range events {
			e.Seq = int64(n + 1)
		}
		events[3].Apart, events[3].Position = true, map[int]int64{0: position}
		s.ends(want...)
	}
}

func TestJudgeControlEvents(t *testing.T) {
	for control, want := range map[Control][]Class{"": nil, Apart: {Misplaced}} {
		sink := stream(Filter{})
		sink.Control = control
		s := tell(t, "x", sink)
		s.process(0, 0, "", s.config()).got("s", "added 1", "progress 1").ends(want...)
	}
}

func TestJudgeDebounce(t *testing.T) {
	sink := stream(Filter{Debounce: time.Second})
	for name, c := range map[string]struct {
		lines []string
		want  []Class
	}{
		"an update is replaced":   {[]string{"added 1", "updated 3", "added 4", "deleted 5"}, nil},
		"the last state is lost":  {[]string{"added 1", "updated 2", "added 4", "deleted 5"}, []Class{Missing}},
		"an addition is replaced": {[]string{"updated 3", "added 4", "deleted 5"}, []Class{Missing, Operation}},
		"a deletion is lost":      {[]string{"added 1", "updated 3", "added 4"}, []Class{StillThere}},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, "x x x y y-", sink)
			s.process(0, 0, "", s.config()).got("s", c.lines...).ends(c.want...)
		})
	}
}

// Of several updates of an object, debounce sends one. If that one was dropped, the gap event counts one.
func TestJudgeDebounceAndDrops(t *testing.T) {
	for name, c := range map[string]struct {
		debounce time.Duration
		words    string
		gap      string
		want     []Class
	}{
		"the last of three":   {time.Second, "x x x x", "gap overflow 2 4 1", nil},
		"without debounce":    {0, "x x x x", "gap overflow 2 4 1", []Class{Missing}},
		"none is counted":     {time.Second, "x x x x", "gap overflow 2 4 0", []Class{Missing}},
		"of another object":   {time.Second, "x x x y y", "gap overflow 2 5 1", []Class{Missing}},
		"of each of them one": {time.Second, "x x x y y", "gap overflow 2 5 3", nil},
	} {
		t.Run(name, func(t *testing.T) {
			sink := stream(Filter{Debounce: c.debounce})
			sink.Overflow = "drop-oldest"
			s := tell(t, c.words, sink)
			s.process(0, 0, "", s.config()).fault(Hang, "s", 1, 5).got("s", "added 1", c.gap).ends(c.want...)
		})
	}
}

// A state in a list waits like an update, and can be replaced, if the bridge forgot that the object had left, or did not
// see it.
func TestJudgeDebounceInAList(t *testing.T) {
	for name, c := range map[string]struct {
		how  Action
		to   int64 // the first process
		got  []string
		want []Class
	}{
		"forgotten":     {Kill, 3, []string{"added 1", "added 2", "left 3", "gap relist 2 4", "left 5", "updated 6"}, nil},
		"not forgotten": {Term, 3, []string{"added 1", "added 2", "left 3", "gap relist 3 4", "updated 6"}, []Class{Missing}},
		"not seen":      {Term, 2, []string{"added 1", "added 2", "gap relist 2 4", "left 5", "updated 6"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, "y:blue x:blue x:red x:blue x:red y:blue", stream(Filter{Team: "blue", Debounce: time.Second}))
			s.process(0, c.to, c.how, s.config()).process(4, 0, "", s.config()).fault(Forget, "", 4, 4)
			s.in.Timeline.Processes[0].End, s.in.Timeline.Processes[1].ReadyRev = second(float64(c.to)+0.5), 4
			s.got("s", c.got...).ends(c.want...)
		})
	}
}

func TestJudgeZones(t *testing.T) {
	s := tell(t, "x x y", stream(Filter{Zone: "east"}))
	east, west := s.config(), s.config()
	east.Zones, west.Zones = map[string]string{"a": "east"}, map[string]string{"a": "west"}
	s.in.Timeline.Settled = at(3)
	s.process(0, 4, Term, east).process(4, 0, "", west).got("s", "added 1", "updated 2", "added 3", "left 2@5")
	s.ends(StillThere)
}
