package doctor

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/deltabridge/deltabridge/internal/console"
)

// WriteTable writes one line per finding, grouped by area. If a finding has a remedy, the remedy is on the next line.
func (r *Report) WriteTable(w io.Writer, style console.Style) error {
	var out strings.Builder
	area := ""
	for _, f := range r.Findings {
		if f.Area != area {
			area = f.Area
			out.WriteString(style.Paint(console.Bold, area) + "\n")
		}
		result, color := f.Result, console.Green
		switch f.Result {
		case resultFailed:
			result, color = "FAILED", console.Red
		case resultWarning:
			color = console.Yellow
		}
		parts := []string{strings.TrimSpace(f.Step + " " + f.Target), f.Detail, f.Error}
		parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
		line := strings.Join(parts, ": ")
		fmt.Fprintf(&out, "  %s  %s\n", style.Paint(color, fmt.Sprintf("%-7s", result)), line)
		if f.Remedy != "" {
			fmt.Fprintf(&out, "           -> %s\n", f.Remedy)
		}
	}
	fmt.Fprintf(&out, "\n%d ok, %d warnings, %d failed\n", r.OK, r.Warnings, r.Failed)
	_, err := io.WriteString(w, out.String())
	return err
}
