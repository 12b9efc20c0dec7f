package console

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// Style is how text looks.
type Style struct {
	Width int  // of a line, in cells; 0: nothing is cut or wrapped
	Color bool // by ANSI escapes
}

// Color is an ANSI escape.
type Color string

// The colors.
const (
	Red    Color = "\x1b[31m"
	Green  Color = "\x1b[32m"
	Yellow Color = "\x1b[33m"
	Purple Color = "\x1b[35m"
	Cyan   Color = "\x1b[36m"
	Bold   Color = "\x1b[1m"
	Dim    Color = "\x1b[2m"
	Alarm  Color = "\x1b[1;37;41m" // bold white on red
	Plain  Color = ""

	off = "\x1b[0m"
)

// Paint colors a text, if the style has colors.
func (s Style) Paint(color Color, text string) string {
	if !s.Color || color == Plain || text == "" {
		return text
	}
	return string(color) + text + off
}

// Width of a text that was cleaned, in cells.
func Width(text string) int { return runewidth.StringWidth(text) }

// Clean replaces what could steer a terminal, line ends included, by its escaped form, and invalid UTF-8 by U+FFFD.
func Clean(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if unicode.IsGraphic(r) {
			b.WriteRune(r)
		} else {
			quoted := strconv.QuoteRuneToGraphic(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}

// Pad fills a text up to a width.
func Pad(text string, to int) string { return runewidth.FillRight(text, to) }

const dots = ".."

// Cut shortens a text to a width, at its end. 0 cuts nothing.
func Cut(text string, to int) string {
	if to <= 0 || Width(text) <= to {
		return text
	}
	return runewidth.Truncate(text, to, dots[:min(to, len(dots))])
}

// CutMiddle shortens a text to a width, in its middle: both ends of a name say much. 0 cuts nothing.
func CutMiddle(text string, to int) string {
	if to <= len(dots)+2 || Width(text) <= to {
		return Cut(text, to)
	}
	left := (to - len(dots)) / 2
	return head(text, left) + dots + runewidth.TruncateLeft(text, Width(text)-(to-len(dots)-left), "")
}

func head(text string, to int) string { return runewidth.Truncate(text, to, "") }

// Wrap divides a text between words into lines of at most a width; 0 divides nothing. A longer word has a line of its own: it
// may be an address that somebody copies.
func Wrap(text string, to int) []string {
	if to <= 0 || Width(text) <= to {
		return []string{text}
	}
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case Width(line)+1+Width(word) > to:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// Count is a number with a comma between each three digits.
func Count(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
