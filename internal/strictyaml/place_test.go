package strictyaml

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// In each text the value of `a` holds an X; its place has to be found from its offset in the value, however the
// value is written.
func TestPlaceIn(t *testing.T) {
	for name, text := range map[string]string{
		"plain":           "a: b c X d",
		"plain, folded":   "a: b\n  c\n\n  d X e\nb: 1",
		"not ASCII":       "\"\u00e9\": 1\na: \u00e9\u4e16 X",
		"single quotes":   "a: 'it''s\n  not X'",
		"double quotes":   `a: "q \" b \\ n\n t\t sp\  e\e X"`,
		"broken quotes":   "a: \"b \\\n   c X\"",
		"literal":         "a: |\n  b\n\n   c X d\n",
		"literal, header": "a: |2- # X in a comment\n    b X\n",
		"folded":          "x: 1\na: >-\n  b\n  c\n\n    d X\n",
		"flow":            "{x: [1], a: b X}",
		"CRLF":            "x: 1\r\na: |\r\n  b\r\n  X\r\n",
		"in a list":       "x:\n  - a: |\n      b\n      c X\n",
		"at the start":    "a: X",
		"mark":            "\ufeffa: X",
	} {
		d := newDecoder("f", []byte(text))
		documents, err := parseYAML(d.text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		value := find(documents[0], "a")
		before := d.text[:strings.LastIndexByte(d.text, 'X')]
		wantLine := strings.Count(before, "\n") + 1
		wantColumn := len([]rune(before[strings.LastIndexByte(before, '\n')+1:])) + 1
		line, column := d.placeIn(value, strings.IndexByte(value.Value, 'X'))
		if line != wantLine || column != wantColumn {
			t.Errorf("%s: %d:%d, want %d:%d in\n%s", name, line, column, wantLine, wantColumn, text)
		}
		// The end of the value is not in the line that follows.
		last := len(strings.TrimRight(value.Value, " \n")) - 1
		line, column = d.placeIn(value, last)
		for offset := last + 1; offset <= len(value.Value)+1; offset++ {
			if endLine, endColumn := d.placeIn(value, offset); endLine != line || endColumn != column+1 {
				t.Errorf("%s: ends at %d:%d, want %d:%d in\n%s", name, endLine, endColumn, line, column+1, text)
			}
		}
		// No offset leads out of the text.
		for offset := range len(value.Value) + 2 {
			if line, column := d.placeIn(value, offset); line < 1 || column < 1 {
				t.Errorf("%s, offset %d: %d:%d", name, offset, line, column)
			}
		}
	}
}

// Behind a character that is written by its code, the place is that of the value.
func TestPlaceInBehindCode(t *testing.T) {
	for _, text := range []string{`x: 1
a: "x\x41 X"`, `x: 1
a: "u\u00e9 X"`, `x: 1
a: "U\U0001F600 X"`} {
		d := newDecoder("f", []byte(text))
		documents, err := parseYAML(d.text)
		if err != nil {
			t.Fatal(err)
		}
		value := find(documents[0], "a")
		if line, column := d.placeIn(value, strings.IndexByte(value.Value, 'X')); line != 2 || column != 4 {
			t.Errorf("%q: %d:%d", text, line, column)
		}
		if line, column := d.placeIn(value, 0); line != 2 || column != 5 {
			t.Errorf("%q: begins at %d:%d", text, line, column)
		}
	}
}

// Of an empty value there is only the beginning.
func TestPlaceInEmpty(t *testing.T) {
	for _, text := range []string{"a: ''\nb: 1", "a: |\n\n\nb: 1", "x: 1\na: \"\"", "a: |"} {
		d := newDecoder("f", []byte(text))
		documents, err := parseYAML(d.text)
		if err != nil {
			t.Fatal(err)
		}
		value := find(documents[0], "a")
		if line, _ := d.placeIn(value, 0); value.Value == "" && line != value.Line {
			t.Errorf("%q: line %d, want %d", text, line, value.Line)
		}
	}
}

// find gives the value of a key, wherever it is.
func find(n *yaml.Node, key string) *yaml.Node {
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && c.Value == key {
			return n.Content[i+1]
		}
		if found := find(c, key); found != nil {
			return found
		}
	}
	return nil
}

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
