package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/deltabridge/deltabridge/internal/console"
)

const (
	defaultWidth, leastText = 120, 40
	// maxTarget is the maximum width of the column TARGET. The text after a longer target starts on a new line.
	maxTarget = 36
)

// WriteTable writes the report as a table: the steps of each area, each with its remedy below it if there is one.
func (r Report) WriteTable(w io.Writer, style console.Style) error {
	if style.Width == 0 {
		style.Width = defaultWidth
	}
	t := &table{style: style}
	for n := range r {
		t.step = max(t.step, console.Width(r[n].Step))
		if n := console.Width(r[n].Target); n <= maxTarget {
			t.target = max(t.target, n)
		}
	}
	t.target = max(t.target, len("TARGET"))
	t.out.WriteString(t.style.Paint(console.Bold, "  RESULT   "+console.Pad("STEP", t.step)+"  "+console.Pad("TARGET", t.target)+"  FOUND, AND WHAT TO DO") + "\n")
	area := ""
	for n := range r {
		if r[n].Area != area {
			area = r[n].Area
			t.out.WriteString(t.style.Paint(console.Bold, area) + "\n")
		}
		t.row(&r[n])
	}
	ok, warnings, failed := r.Count()
	fmt.Fprintf(&t.out, "\n%d ok, %s, %s\n", ok,
		t.emphasized(console.Yellow, warnings, counted(warnings, "warning")),
		t.emphasized(console.Red, failed, fmt.Sprintf("%d failed", failed)))
	_, err := io.WriteString(w, t.out.String())
	return err
}

type table struct {
	style        console.Style
	step, target int // widths
	out          strings.Builder
}

func (t *table) row(f *Finding) {
	const indent, result = "  ", len("warning")
	t.out.WriteString(indent + t.style.Paint(colorOf(f), console.Pad(f.Result(), result)) + "  " + console.Pad(f.Step, t.step) + "  ")
	column := len(indent) + result + 2 + t.step + 2 + t.target + 2
	if console.Width(f.Target) > t.target {
		t.out.WriteString(f.Target + "\n" + strings.Repeat(" ", column))
	} else {
		t.out.WriteString(console.Pad(f.Target, t.target) + "  ")
	}
	width := max(t.style.Width-column, leastText)
	lines := console.Wrap(f.text(), width)
	if f.Remedy != "" {
		lines = append(lines, console.Wrap("-> "+f.Remedy, width)...)
	}
	text := strings.Join(lines, "\n"+strings.Repeat(" ", column))
	t.out.WriteString(strings.TrimRight(text, " ") + "\n")
}

func (t *table) emphasized(color console.Color, count int, text string) string {
	if count == 0 {
		return text
	}
	return t.style.Paint(color, text)
}

func colorOf(f *Finding) console.Color {
	switch {
	case f.Err != nil:
		return console.Red
	case f.Warn:
		return console.Yellow
	default:
		return console.Green
	}
}

// counted formats a number of things, in the plural if n is not 1.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
