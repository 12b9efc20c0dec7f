package console

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// Style configures how text is formatted.
type Style struct {
	Width int  // maximum width of a line, in cells; 0 means unlimited
	Color bool // whether to use ANSI colors
}

// Color is the ANSI escape sequence of a color or style.
type Color string

// Colors and styles for Style.Paint.
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

// Paint returns the text with the color applied. If the style has no colors, it returns the text unchanged.
func (s Style) Paint(color Color, text string) string {
	if !s.Color || color == Plain || text == "" {
		return text
	}
	return string(color) + text + off
}

// Width returns the width of a text, in cells. The text must not contain control characters; use Clean to escape them.
func Width(text string) int { return runewidth.StringWidth(text) }

// Clean escapes control characters, including line breaks, and replaces invalid UTF-8 with U+FFFD.
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

// Pad appends spaces until the text has at least the given width.
func Pad(text string, to int) string { return runewidth.FillRight(text, to) }

const dots = ".."

// Cut truncates the end of a text to fit the given width. A width of 0 means no limit.
func Cut(text string, to int) string {
	if to <= 0 || Width(text) <= to {
		return text
	}
	return runewidth.Truncate(text, to, dots[:min(to, len(dots))])
}

// CutMiddle truncates the middle of a text to fit the given width, because both ends of a name are needed to recognize
// it. A width of 0 means no limit.
func CutMiddle(text string, to int) string {
	if to <= len(dots)+2 || Width(text) <= to {
		return Cut(text, to)
	}
	left := (to - len(dots)) / 2
	return head(text, left) + dots + runewidth.TruncateLeft(text, Width(text)-(to-len(dots)-left), "")
}

func head(text string, to int) string { return runewidth.Truncate(text, to, "") }

// Wrap breaks a text between words into lines of at most the given width. A width of 0 means no limit. Words that are
// longer than a line are not broken, because they may be addresses that a user copies.
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

// Count formats a number with commas as thousands separators.
func Count(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
