package doctor

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Style is how a table looks.
type Style struct {
	Width int  // of a line, in characters; 0: 120
	Color bool // by ANSI escapes
}

const (
	colorRed, colorGreen, colorYellow, colorBold, colorOff = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[1m", "\x1b[0m"

	defaultWidth, leastText = 120, 40
	// longest is that of a column before the last: what is longer gets a line of its own.
	longest = 36
)

// WriteTable writes the report for people: for each area a line for each step, with the remedy below where there is one.
func (r Report) WriteTable(w io.Writer, style Style) error {
	if style.Width == 0 {
		style.Width = defaultWidth
	}
	t := &table{style: style}
	for n := range r {
		t.step = max(t.step, runes(r[n].Step))
		if n := runes(r[n].Target); n <= longest {
			t.target = max(t.target, n)
		}
	}
	t.target = max(t.target, len("TARGET"))
	t.out.WriteString(t.colored(colorBold, "  RESULT   "+pad("STEP", t.step)+"  "+pad("TARGET", t.target)+"  FOUND, AND WHAT TO DO") + "\n")
	area := ""
	for n := range r {
		if r[n].Area != area {
			area = r[n].Area
			t.out.WriteString(t.colored(colorBold, area) + "\n")
		}
		t.row(&r[n])
	}
	ok, warnings, failed := r.Count()
	fmt.Fprintf(&t.out, "\n%d ok, %s, %s\n", ok,
		t.emphasized(colorYellow, warnings, counted(warnings, "warning")),
		t.emphasized(colorRed, failed, fmt.Sprintf("%d failed", failed)))
	_, err := io.WriteString(w, t.out.String())
	return err
}

type table struct {
	style        Style
	step, target int // widths
	out          strings.Builder
}

func (t *table) row(f *Finding) {
	const indent, result = "  ", len("warning")
	t.out.WriteString(indent + t.colored(colorOf(f), pad(f.Result(), result)) + "  " + pad(f.Step, t.step) + "  ")
	column := len(indent) + result + 2 + t.step + 2 + t.target + 2
	if runes(f.Target) > t.target {
		t.out.WriteString(f.Target + "\n" + strings.Repeat(" ", column))
	} else {
		t.out.WriteString(pad(f.Target, t.target) + "  ")
	}
	width := max(t.style.Width-column, leastText)
	lines := wrap(f.text(), width)
	if f.Remedy != "" {
		lines = append(lines, wrap("-> "+f.Remedy, width)...)
	}
	text := strings.Join(lines, "\n"+strings.Repeat(" ", column))
	t.out.WriteString(strings.TrimRight(text, " ") + "\n")
}

func (t *table) colored(color, text string) string {
	if !t.style.Color {
		return text
	}
	return color + text + colorOff
}

func (t *table) emphasized(color string, count int, text string) string {
	if count == 0 {
		return text
	}
	return t.colored(color, text)
}

func colorOf(f *Finding) string {
	switch {
	case f.Err != nil:
		return colorRed
	case f.Warn:
		return colorYellow
	default:
		return colorGreen
	}
}

func runes(text string) int { return utf8.RuneCountInString(text) }

func pad(text string, width int) string { return text + strings.Repeat(" ", max(width-runes(text), 0)) }

// counted is a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// wrap divides a text between words into lines of at most width characters. A longer word has a line of its own.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case runes(line)+1+runes(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
