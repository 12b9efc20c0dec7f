package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/deltabridge/deltabridge/internal/console"
)

// indent is the width of the column that contains the results.
const indent = 11

// WriteTable writes one line per finding, grouped by area. If a finding has a remedy, the remedy is on the next line.
// Lines are wrapped at the width of the style.
func (r Report) WriteTable(w io.Writer, style console.Style) error {
	var out strings.Builder
	area := ""
	for n := range r {
		f := &r[n]
		if f.Area != area {
			area = f.Area
			out.WriteString(style.Paint(console.Bold, area) + "\n")
		}
		width := style.Width
		if width > 0 {
			width = max(width, 2*indent) - indent
		}
		lines := console.Wrap(f.line(), width)
		if f.Remedy != "" {
			lines = append(lines, console.Wrap("-> "+f.Remedy, width)...)
		}
		fmt.Fprintf(&out, "  %s  %s\n", style.Paint(f.color(), console.Pad(f.Result(), len("warning"))),
			strings.Join(lines, "\n"+strings.Repeat(" ", indent)))
	}
	ok, warnings, failed := r.Count()
	fmt.Fprintf(&out, "\n%d ok, %s, %d failed\n", ok, counted(warnings, "warning"), failed)
	_, err := io.WriteString(w, out.String())
	return err
}

// line returns the step, its target and the text of the finding.
func (f *Finding) line() string {
	line := strings.TrimSpace(f.Step + " " + f.Target)
	if text := f.text(); text != "" {
		line += ": " + text
	}
	return line
}

func (f *Finding) color() console.Color {
	switch {
	case f.Err != nil:
		return console.Red
	case f.Warn:
		return console.Yellow
	default:
		return console.Green
	}
}

// counted formats a number and a noun. The noun is in the plural if n is not 1.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
