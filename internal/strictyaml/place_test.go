package strictyaml

import (
	"strings"
	"testing"
)

// Where the YAML ends to be YAML, wherever in the file that is.
func TestSyntaxPlaces(t *testing.T) {
	for text, want := range map[string]string{
		"a: b: c":                        "f:1:5",
		"x: 1\n\na: b: c\nz: 1\n":        "f:3:5",
		"a:\n\tb: 1":                     "f:2:1",
		"a: @x":                          "f:1:4",
		"x: \"1\"\na: \"never\nclosed\n": "f:2:4",
		"x: \"b: c: d\"\na: b: c\n":      "f:2:5",
		"a: \"1" + strings.Repeat("\n  2", 8) + "\"\nb: \"never\n": "f:10:4",
		"a: {b}}":                         "f:1:7",
		"# \u4e16\u754c\na: \u00e9 x: y":  "f:2:7",
		"a: *x":                           "f:1:4",
		"\ufeffa: b: c":                   "f:1:5",
		strings.Repeat("x\n", 100_000):    "f:",
		"a: b: c\n---\nq: r: s\n":         "f:1:5",
		"cluster: a\n---\nq: r: s\n":      "f:3:5",
		"a: [b,\n# comment\nc\n":          "f:",
		"a: \x01":                         "f:1:4",
		"a: \"x\" y\n":                    "f:1:8",
		strings.Repeat("[", 20000) + "\n": "f:1:",
	} {
		_, at := Decode[struct{}]("f", []byte(text))
		err := at.Err()
		if err == nil {
			t.Errorf("%.50q: no error", text)
			continue
		}
		if !strings.HasPrefix(err.Error(), want) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%.50q: %.200v, want one at %s", text, err, want)
		}
	}
}
