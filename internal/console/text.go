package console

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
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

func cells(r rune) int {
	switch {
	case r < 0x7f:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// Width of a text that was cleaned, in cells.
func Width(text string) (n int) {
	for _, r := range text {
		n += cells(r)
	}
	return n
}

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
func Pad(text string, to int) string { return text + strings.Repeat(" ", max(to-Width(text), 0)) }

const dots = ".."

// Cut shortens a text to a width, at its end.
func Cut(text string, to int) string {
	if to <= 0 || Width(text) <= to {
		return text
	}
	if to <= len(dots) {
		return dots[:to]
	}
	return head(text, to-len(dots)) + dots
}

// CutMiddle shortens a text to a width, in its middle: both ends of a name tell much.
func CutMiddle(text string, to int) string {
	if to <= 0 || Width(text) <= to {
		return text
	}
	if to <= len(dots)+2 {
		return Cut(text, to)
	}
	left := (to - len(dots)) / 2
	return head(text, left) + dots + end(text, to-len(dots)-left)
}

func head(text string, to int) string {
	n := 0
	for i, r := range text {
		if n += cells(r); n > to {
			return text[:i]
		}
	}
	return text
}

func end(text string, to int) string {
	n := 0
	for i := len(text); i > 0; {
		r, size := utf8.DecodeLastRuneInString(text[:i])
		if n += cells(r); n > to {
			return text[i:]
		}
		i -= size
	}
	return text
}

// Wrap divides a text between words into lines of at most a width; 0 divides nothing. A word that is longer is divided.
func Wrap(text string, to int) []string {
	if to <= 0 || Width(text) <= to {
		return []string{text}
	}
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && Width(line)+1+Width(word) <= to {
			line += " " + word
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		for Width(word) > to {
			part := head(word, to)
			if part == "" { // one character that is wider
				break
			}
			lines, word = append(lines, part), word[len(part):]
		}
		line = word
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
