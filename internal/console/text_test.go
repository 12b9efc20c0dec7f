package console

import (
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

func TestWidths(t *testing.T) {
	for text, want := range map[string]int{"": 0, "web": 3, "\u5e93\u5b58": 4, "e\u0301": 1, "\u00fc": 1, "\uff21": 2} {
		if got := Width(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	for _, tt := range []struct{ got, want string }{
		{Cut("web-7d4b9c6f5", 8), "web-7d.."},
		{Cut("web", 3), "web"},
		{Cut("webs", 1), "."},
		{Cut("\u5e93\u5b58\u5e93\u5b58", 7), "\u5e93\u5b58.."},
		{CutMiddle("team-a/web-7d4b9c6f5-x2x4z", 16), "team-a/..5-x2x4z"},
		{CutMiddle("\u5e93\u5b58\u5e93\u5b58\u5e93", 9), "\u5e93..\u5b58\u5e93"},
		{CutMiddle("short", 0), "short"},
		{Pad("\u5e93", 4), "\u5e93  "},
		{Clean("a\x1b[31mb\nc\xff"), `a\x1b[31mb\nc` + "\ufffd"},
		{Clean("gr\u00fc\u00df dich"), "gr\u00fc\u00df dich"},
		{Count(-1234567), "-1,234,567"},
		{Count(999), "999"},
		{Style{Color: true}.Paint(Red, "x"), "\x1b[31mx\x1b[0m"},
		{Style{}.Paint(Red, "x"), "x"},
	} {
		if tt.got != tt.want {
			t.Errorf("%q, want %q", tt.got, tt.want)
		}
	}
}

func TestWrap(t *testing.T) {
	got := Wrap("one two  three abcdefghijk \u5e93\u5b58\u5e93", 5)
	if diff := cmp.Diff([]string{"one", "two", "three", "abcdefghijk", "\u5e93\u5b58\u5e93"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever a text holds, what is left of it steers no terminal and is as wide as asked for.
func FuzzText(f *testing.F) {
	f.Add("\x1b]0;title\x07\u202e\u5e93", 3)
	f.Fuzz(func(t *testing.T, text string, to int) {
		to = to&0x3f + 1
		clean := Clean(text)
		if strings.ContainsFunc(clean, unicode.IsControl) {
			t.Fatalf("%q became %q", text, clean)
		}
		for _, cut := range []string{Cut(clean, to), CutMiddle(clean, to)} {
			if Width(cut) > to {
				t.Fatalf("%q is wider than %d", cut, to)
			}
		}
		for _, line := range Wrap(clean, to) {
			if Width(line) > to && strings.ContainsRune(line, ' ') {
				t.Fatalf("%q is wider than %d", line, to)
			}
		}
	})
}
