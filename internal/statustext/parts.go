package statustext

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/internal/control"
)

// sinks writes a table of the sinks, and below it what is to be said about single ones.
func (t *text) sinks(s *control.Status) {
	if len(s.Sinks) == 0 {
		return
	}
	t.line("")
	rows := [][]string{{
		"SINK", "HEALTH", "EVENTS/S", "DELIVERED", "FILTERED", "LAG", "WAITING", "MEMORY", "DISK", "FUSE", "DESTINATION",
	}}
	for n := range s.Sinks {
		k := &s.Sinks[n]
		fuse := "-"
		if k.Fuse != nil {
			fuse = left(k.Fuse)
		}
		rows = append(rows, []string{
			console.Clean(k.Name), console.Clean(string(k.Health)), rate(k.Rate), console.Count(k.Delivered),
			console.Count(k.Filtered), seconds(k.Lag), console.Count(k.Waiting()), share(k.Queue.Bytes, k.Queue.MemoryBytes),
			share(k.Queue.DiskBytes, k.Queue.MaxDisk), fuse, console.Clean(k.Destination),
		})
	}
	t.table(rows, func(n int) console.Color { return color(s.Sinks[n].Health) })
	for n := range s.Sinks {
		t.sinkNotes(&s.Sinks[n], s.At)
	}
}

// shownGaps is the maximum number of gaps of a sink that are shown.
const shownGaps = 3

func (t *text) sinkNotes(k *control.Sink, at time.Time) {
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, console.Clean(fmt.Sprintf(format, args...))) }
	if !k.PausedSince.IsZero() {
		note("paused since %s", k.PausedSince.Local().Format(time.DateTime))
	}
	if k.Queue.Blocked {
		note("the queue is full (overflow: %s), so sources wait", k.Queue.Overflow)
	}
	if k.Fuse != nil {
		note("fuse: %s", k.Fuse.Text)
	}
	for _, p := range k.Parked {
		note("parked: %s events for %s", console.Count(int64(p.Events)), p.Destination)
	}
	if k.Dropped > 0 {
		note("dropped: %s events", console.Count(k.Dropped))
	}
	for _, g := range k.Gaps[:min(shownGaps, len(k.Gaps))] {
		note("gap: %s of %s, %s", g.Reason, g.Resource, ago(g.At, at))
	}
	if k.Problem == nil && len(notes) == 0 {
		return
	}
	t.line("%s:", console.Clean(k.Name))
	t.problem(k.Problem)
	for _, n := range notes {
		t.line("  %s", n)
	}
}

// shownSources is the maximum number of sources with problems that are shown.
const shownSources = 20

// sources writes the sum of the sources that work, and a line for each other one.
func (t *text) sources(s *control.Status) {
	if len(s.Sources) == 0 {
		return
	}
	var sum control.Source
	well := 0
	var healths []control.Health
	rows := [][]string{{"SOURCE", "HEALTH", "OBJECTS", "CHANGES/S", "LAST CONTACT", "PROBLEM"}}
	for n := range s.Sources {
		source := &s.Sources[n]
		sum.Objects, sum.Rate = sum.Objects+source.Objects, sum.Rate+source.Rate
		if source.Health == control.Healthy {
			well++
			continue
		}
		problem := "the initial list is not complete yet"
		if source.Problem != nil {
			problem = source.Problem.Text
		}
		name := strings.TrimSpace(source.Resource + " " + source.Namespace + " " + source.Selector)
		rows = append(rows, []string{
			console.Clean(name), console.Clean(string(source.Health)), console.Count(int64(source.Objects)), rate(source.Rate),
			ago(source.LastContact, s.At), console.Clean(problem),
		})
		healths = append(healths, source.Health)
	}
	t.line("\nsources: %d of %d are ok; %s objects, %s changes/s", well, len(s.Sources),
		console.Count(int64(sum.Objects)), rate(sum.Rate))
	if len(healths) == 0 {
		return
	}
	more := len(healths) - shownSources
	t.table(rows[:1+min(shownSources, len(healths))], func(n int) console.Color { return color(healths[n]) })
	if more > 0 {
		t.line("and %d more; -o json shows all", more)
	}
}

func left(f *control.Fuse) string {
	switch d := time.Duration(f.Seconds * float64(time.Second)); {
	case d <= 0:
		return "lost?"
	case d >= 30*24*time.Hour:
		return ">30d"
	default:
		return ">" + duration.HumanDuration(d)
	}
}

// share shows a size and its limit.
func share(used, limit int64) string {
	if used == 0 {
		return "0"
	}
	text := size(used)
	if limit > 0 {
		text += fmt.Sprintf(" (%d%%)", used*100/limit)
	}
	return text
}

// size shows a number of bytes with at most four digits.
func size(n int64) string {
	unit := int64(1)
	for unit < 1<<40 && n/unit >= 10<<10 {
		unit <<= 10
	}
	return resource.NewQuantity(n/unit*unit, resource.BinarySI).String() + "B"
}

func rate(r float64) string {
	if r >= 100 {
		return console.Count(int64(r + .5))
	}
	return strconv.FormatFloat(r, 'f', 1, 64)
}

// seconds shows a lag.
func seconds(s float64) string {
	if s < 10 {
		return strconv.FormatFloat(s, 'f', 1, 64) + "s"
	}
	return duration.HumanDuration(time.Duration(s * float64(time.Second)))
}

// ago shows how long ago a time was.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return seconds(max(0, now.Sub(t).Seconds())) + " ago"
}
