package evaluate

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/internal/console"
)

// Results contains the results of the tests of a file.
type Results struct {
	File    string
	Results []Result
	// Err is the reason why the tests could not be run, or nil.
	Err error
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
	Sink     string
	pairs    []pair
	outcomes []outcome // of all changes of the test
}

// outcome says what a change has caused at a sink.
type outcome struct {
	name   string // of the change
	report *Report
	sink   *Sink
}

// Failed returns the number of tests that failed.
func (r *Results) Failed() (n int) {
	for _, result := range r.Results {
		if len(result.Failures) > 0 {
			n++
		}
	}
	return n
}

// WriteTable writes the results as text. Tests that have passed are only counted.
func (r *Results) WriteTable(w io.Writer, style console.Style) error {
	t := &table{style: style}
	for _, result := range r.Results {
		if len(result.Failures) > 0 {
			t.row("FAIL", console.Red, fmt.Sprintf("  %s:%d  %s", r.File, result.Line, result.Name), console.Bold)
			t.result(&result)
		}
	}
	failed := r.Failed()
	passed := fmt.Sprintf("%d passed", len(r.Results)-failed)
	switch {
	case r.Err != nil:
		t.row("ERROR", console.Red, "  "+r.File, console.Plain)
		fmt.Fprintln(&t.out, r.Err)
	case failed > 0:
		t.row("FAIL", console.Red, fmt.Sprintf("  %s: %d failed, %s", r.File, failed, passed), console.Plain)
	default:
		t.row("ok", console.Green, "  "+r.File+": "+passed, console.Plain)
	}
	_, err := io.WriteString(w, t.out.String())
	return err
}

// result writes the failures of a test.
func (t *table) result(r *Result) {
	for n := range r.Failures {
		t.failure(&r.Failures[n])
	}
}

func (t *table) failure(f *Failure) {
	line := func(indent int, color console.Color, text string) {
		t.row(strings.Repeat(" ", indent), console.Plain, text, color)
	}
	line(2, console.Plain, "sink "+f.Sink+" (- expected, + sent)")
	missing := false
	for n := range f.pairs {
		switch p := &f.pairs[n]; {
		case p.want == nil:
			line(4, console.Green, "+ "+p.got.String())
			line(6, console.Plain, "not expected, but sent because of "+f.outcomes[p.got.change].name)
			t.why(&f.outcomes[p.got.change])
		case p.got == nil:
			line(4, console.Red, fmt.Sprintf("- event %d: %s", p.number, p.want))
			missing = true
		case p.fails():
			line(4, console.Plain, fmt.Sprintf("event %d: %s, because of %s", p.number, p.got, f.outcomes[p.got.change].name))
			for _, d := range p.differences {
				line(8, console.Plain, d.path)
				line(10, console.Red, "- "+cmp.Or(d.want, "(none)"))
				line(10, console.Green, "+ "+cmp.Or(d.got, "(none)"))
			}
		}
	}
	for n := range f.outcomes {
		if o := &f.outcomes[n]; missing && len(o.sink.messages) == 0 {
			line(4, console.Plain, "nothing was sent because of "+o.name)
			t.why(o)
		}
	}
}

// why writes why a change was sent to a sink or not.
func (t *table) why(o *outcome) {
	const indent = "      "
	if o.report.Watched {
		t.filters(o.sink, indent)
	} else {
		t.watch(o.report, indent)
	}
}

// String describes an expected event.
func (e *Event) String() string {
	return strings.TrimSpace(e.Operation + " " + cmp.Or(e.Subject, e.ID, e.Key))
}

// String describes a message that was sent.
func (m *Message) String() string { return m.operation + " " + m.about }
