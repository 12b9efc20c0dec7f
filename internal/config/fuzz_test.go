package config

import (
	"errors"
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
		errs, ok := errors.AsType[*strictyaml.Errors](err)
		if !ok || len(errs.Mistakes) == 0 {
			t.Fatalf("not the mistakes: %v", err)
		}
		breaks := 1
		for _, mark := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
			breaks += strings.Count(string(data), mark)
		}
		for _, m := range errs.Mistakes {
			if m.Line < 1 || m.Column < 1 || m.Line > breaks {
				t.Errorf("a mistake outside of the text: %v", m)
			}
			if m.File != "f" || m.Problem == "" || strings.ContainsAny(m.String(), "\n\r") {
				t.Errorf("a mistake that is no line: %q", m)
			}
		}
		inOrder := slices.IsSortedFunc(errs.Mistakes, func(a, b *strictyaml.Mistake) int {
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
