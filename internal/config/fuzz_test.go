package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
)

// Whatever the text: no panic, and either a Config or mistakes that all say where and what, in order, on one line
// each, and within the text.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yaml", "../../examples/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f", data)
		if (c == nil) == (err == nil) {
			t.Fatalf("Parse gave %v and %v", c, err)
		}
		if err == nil {
			return
		}
		mistakes := mistakesOf(t, err)
		breaks := 1
		for _, mark := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
			breaks += strings.Count(string(data), mark)
		}
		for _, m := range mistakes {
			if m.Line < 1 || m.Column < 1 || m.Line > breaks {
				t.Errorf("a mistake outside of the text: %v", m)
			}
			if m.File != "f" || m.Problem == "" || strings.ContainsAny(m.Error(), "\n\r") {
				t.Errorf("a mistake that is no line: %q", m)
			}
		}
		inOrder := slices.IsSortedFunc(mistakes, func(a, b *strictyaml.Mistake) int {
			if a.Line != b.Line {
				return a.Line - b.Line
			}
			return a.Column - b.Column
		})
		if !inOrder {
			t.Errorf("the mistakes are in no order:\n%v", err)
		}
	})
}

// mistakesOf returns the mistakes that Parse reports.
func mistakesOf(t *testing.T, err error) []*strictyaml.Mistake {
	t.Helper()
	all, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("the error does not join mistakes: %v", err)
	}
	var mistakes []*strictyaml.Mistake
	for _, err := range all.Unwrap() {
		m, ok := err.(*strictyaml.Mistake)
		if !ok {
			t.Fatalf("%v is not a mistake", err)
		}
		mistakes = append(mistakes, m)
	}
	return mistakes
}
