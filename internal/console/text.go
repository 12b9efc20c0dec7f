package console

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Style configures how text is formatted.
type Style struct {
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

// Count formats a number with commas as thousands separators.
func Count(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
