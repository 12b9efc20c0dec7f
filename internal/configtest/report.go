package configtest

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/internal/console"
)

// Report is the result of the tests of a file.
type Report struct {
	File    string
	Results []Result
	// Err is the reason why the tests could not be run, or nil.
	Err     error
	Updated bool // whether the file was changed
}

// Result is the result of one test.
type Result struct {
	Name     string
	Line     int
	Failures []Failure // empty if the test has passed
	Took     time.Duration
}

// Failure describes how the events of one sink differ from the expected ones.
type Failure struct {
	Sink  string
	pairs []pair
	notes map[int][]string // why a change caused no event, or an unexpected one, by the number of the change
	names []string         // of the changes
}

// Failed returns the number of tests that failed.
func (r *Report) Failed() (n int) {
	for _, result := range r.Results {
		if len(result.Failures) > 0 {
			n++
		}
	}
	return n
}

// WriteTable writes the report as text. Tests that have passed are only counted.
func (r *Report) WriteTable(w io.Writer, style console.Style) error {
	var b strings.Builder
	for _, result := range r.Results {
		if len(result.Failures) > 0 {
			fmt.Fprintf(&b, "%s  %s:%d  %s\n", style.Paint(console.Red, "FAIL"), console.Clean(r.File), result.Line,
				style.Paint(console.Bold, console.Clean(result.Name)))
			result.write(&b, style)
		}
	}
	failed := r.Failed()
	passed := fmt.Sprintf("%d passed", len(r.Results)-failed)
	switch {
	case r.Err != nil:
		fmt.Fprintf(&b, "%s  %s\n%v\n", style.Paint(console.Red, "ERROR"), console.Clean(r.File), r.Err)
	case r.Updated:
		fmt.Fprintf(&b, "%s  %s: updated\n", style.Paint(console.Yellow, "ok"), console.Clean(r.File))
	case failed > 0:
		fmt.Fprintf(&b, "%s  %s: %d failed, %s\n", style.Paint(console.Red, "FAIL"), console.Clean(r.File), failed, passed)
	default:
		fmt.Fprintf(&b, "%s  %s: %s\n", style.Paint(console.Green, "ok"), console.Clean(r.File), passed)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// write writes the failures of a test.
func (r *Result) write(b *strings.Builder, style console.Style) {
	for n := range r.Failures {
		r.Failures[n].write(b, style)
	}
}

func (f *Failure) write(b *strings.Builder, style console.Style) {
	fmt.Fprintf(b, "  sink %s (- expected, + sent)\n", console.Clean(f.Sink))
	line := func(indent int, color console.Color, text string) {
		fmt.Fprintf(b, "%*s%s\n", indent, "", style.Paint(color, console.Clean(text)))
	}
	silent := map[int]bool{}
	for n, p := range f.pairs {
		switch {
		case p.want == nil:
			line(4, console.Green, "+ "+p.got.String())
			line(8, console.Plain, "not expected, but sent because of "+f.names[p.got.change-1])
			for _, note := range f.notes[p.got.change] {
				line(8, console.Plain, note)
			}
		case p.got == nil:
			line(4, console.Red, fmt.Sprintf("- event %d: %s", p.number, p.want))
			f.addSilent(n, silent)
		case len(p.differences) > 0:
			line(4, console.Plain, fmt.Sprintf("event %d: %s, because of %s", p.number, p.got, f.names[p.got.change-1]))
			for _, d := range p.differences {
				d.write(line)
			}
		}
	}
	for _, change := range slices.Sorted(maps.Keys(silent)) {
		line(4, console.Plain, "nothing was sent because of "+f.names[change-1])
		for _, note := range f.notes[change] {
			line(8, console.Plain, note)
		}
	}
}

func (d *difference) write(line func(indent int, color console.Color, text string)) {
	line(8, console.Plain, d.path)
	line(10, console.Red, "- "+cmp.Or(d.want, "(none)"))
	line(10, console.Green, "+ "+cmp.Or(d.got, "(none)"))
}

// addSilent adds the changes that could have caused the missing event of a pair: those about which the sink was sent
// nothing, between the expected events before and after it that were sent.
func (f *Failure) addSilent(missing int, changes map[int]bool) {
	first, last := 1, len(f.names)
	sent := map[int]bool{}
	for n, p := range f.pairs {
		if p.got != nil {
			sent[p.got.change] = true
		}
		switch {
		case p.fails():
		case n < missing:
			first = p.got.change
		default:
			last = min(last, p.got.change)
		}
	}
	for change := first; change <= last; change++ {
		if !sent[change] {
			changes[change] = true
		}
	}
}

// String describes an expected event.
func (e *Event) String() string {
	return strings.TrimSpace(e.Operation + " " + cmp.Or(e.Subject, e.ID, e.Key))
}

// String describes an event that was sent.
func (s *sent) String() string { return s.operation + " " + s.about }
