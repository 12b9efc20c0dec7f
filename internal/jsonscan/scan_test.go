package jsonscan

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestValue(t *testing.T) {
	for text, want := range map[string]int{
		`"a"`: 3, `"a\"b" `: 6, `"\\"x`: 4, `"\\\""`: 6, `""`: 2, `{}`: 2, `[{"]":"}"}],`: 11, `[[]]`: 4, `12,`: 2, `true}`: 4, `null`: 4, `-1.5e3 `: 6, `1"`: 1,
		``: -1, `"`: -1, `"a`: -1, `"\"`: -1, `"\\\"`: -1, `{`: -1, `{"a`: -1, `[{]`: -1, `,`: -1, `}`: -1, ` 1`: -1, `:`: -1,
	} {
		if got := Value([]byte(text), 0); got != want {
			t.Errorf("Value(%s) = %d, want %d", text, got, want)
		}
		if behind := want + 3; want >= 0 && Value([]byte("xyz"+text), 3) != behind {
			t.Errorf("Value(xyz%s) from 3: want %d", text, behind)
		}
	}
	if got := Value([]byte("1"), 7); got != -1 {
		t.Errorf("beyond the end: %d", got)
	}
}

func TestSpace(t *testing.T) {
	for text, want := range map[string]int{"": 0, " \t\r\n": 4, "\v": 0, "  x ": 2} {
		if got := Space([]byte(text), 0); got != want {
			t.Errorf("Space(%q) = %d, want %d", text, got, want)
		}
	}
}

// The value of a valid text ends where the text does; on anything else nothing panics.
func FuzzValue(f *testing.F) {
	for _, text := range []string{`{"a":[1,"\"]",{}]} `, `"\\"`, `-0.5e+3,`, `[[[`, `"\u0022"x`, "nul\x00"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		start := Space(b, 0)
		got := Value(b, start)
		if got != -1 && (got <= start || got > len(b)) {
			t.Fatalf("%d of %d", got, len(b))
		}
		if want := len(bytes.TrimRight(b, " \t\r\n")); json.Valid(b) && got != want {
			t.Errorf("%d, and the value ends at %d", got, want)
		}
	})
}

// Every byte value before, at and behind a quote, at every distance.
func TestQuote(t *testing.T) {
	for length := range 80 {
		for c := range 256 {
			b := bytes.Repeat([]byte{byte(c)}, length)
			if got, want := quote(b), bytes.IndexByte(b, '"'); got != want {
				t.Fatalf("%d times %#x: %d, want %d", length, c, got, want)
			}
			for at := range b {
				b[at] = '"'
				if got, want := quote(b), bytes.IndexByte(b, '"'); got != want {
					t.Fatalf("a quote at %d of %d times %#x: %d, want %d", at, length, c, got, want)
				}
				b[at] = byte(c)
			}
		}
	}
}

// Every byte value in every place of texts of every length.
func TestIsPlain(t *testing.T) {
	for _, filler := range []byte{' ', 'a', '[', ']', 0x7f} {
		for length := range 40 {
			b := bytes.Repeat([]byte{filler}, length)
			if !isPlain(b) {
				t.Fatalf("%q", b)
			}
			for at := range b {
				for c := range 256 {
					b[at] = byte(c)
					if got, want := isPlain(b), c >= ' ' && c < 0x80 && c != '\\'; got != want {
						t.Fatalf("%q: %t", b, got)
					}
				}
				b[at] = filler
			}
		}
	}
}
