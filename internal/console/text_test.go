package console

import (
	"strings"
	"testing"
	"unicode"
)

func TestText(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
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

// Clean leaves no control character in a text, whatever the text contains.
func FuzzClean(f *testing.F) {
	f.Add("\x1b]0;title\x07\u202e\u5e93")
	f.Fuzz(func(t *testing.T, text string) {
		if clean := Clean(text); strings.ContainsFunc(clean, unicode.IsControl) {
			t.Fatalf("%q became %q", text, clean)
		}
	})
}
