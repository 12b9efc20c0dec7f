package strictyaml

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// color is a set of values.
type color string

// shape has a key of each type.
type shape struct {
	Name   string            `yaml:"name"         required:"true" example:"square"    pattern:"^[a-z]+$"`
	Color  color             `yaml:"color"                        example:"green"                        default:"red"   enum:"red green"`
	Hue    string            `yaml:"hue"                          example:"warm"                                         enum:"warm cold"`
	Sides  int               `yaml:"sides"                        example:"5"                            default:"4"                      min:"3"  max:"100"`
	Weight int64             `yaml:"weight"                       example:"2Mi"                          default:"1Ki"                    min:"1"  max:"1Gi"`
	Age    time.Duration     `yaml:"age"                          example:"2m"                           default:"1m"                     min:"1s" max:"1h"`
	Solid  bool              `yaml:"solid"                        example:"true"                         default:"false"`
	Tags   []string          `yaml:"tags"                         example:"[a, b]"`
	Places []string          `yaml:"places"                       example:"a,b"                                                                              format:"commas"`
	Labels map[string]string `yaml:"labels"                       example:"{a: b}"`
	Secret string            `yaml:"passwordFile"                 example:"/password"                                                                        format:"file"`
	Point  point             `yaml:"point"`
	Inner  *point            `yaml:"inner"`
	More   []point           `yaml:"more"`
	common `yaml:",inline"`

	notForFiles func() //nolint:unused // it has no tag
}

type common struct {
	Owner string `yaml:"owner" example:"me"`
	Pair  string `yaml:"pair"  example:"you"`
}

type point struct {
	X int `yaml:"x" default:"7" example:"8"`
	Y int `yaml:"y"             example:"9"`
}

func (s *shape) Validate(at *Section) {
	if at.Has("name") {
		at.NotEmpty("name", s.Name, "write square")
	}
	at.Together("owner", "pair")
	at.AtMostOne("tags", "places")
	if s.Inner == nil {
		at.Report("inner", "is missing too", "add inner: {}")
	}
	if strings.Contains(strings.Join(s.Places, ","), "!") {
		at.Report("places", "has a !", "remove it")
	}
}

// parse decodes and checks.
func parse(text string) (*shape, string) {
	s, at := Decode[shape]("f", []byte(text))
	if !at.Unreadable() {
		s.Validate(at)
	}
	if err := at.Err(); err != nil {
		return s, err.Error()
	}
	return s, ""
}

func TestDecode(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, mistakes := parse(`
name: "42"
color: green
hue: ""
sides: 0x10
weight: 1.5Ki
age: 1m30s
solid: true
places: a , b
labels: {a: 1, b.c: true}
passwordFile: ` + file + `
point: {y: 2}
inner: {}
more: [{x: 1}, {}]
owner: o
pair: p
`)
	if mistakes != `f:5:8: sides: 0x10 is not a valid integer (example: sides: 5)` {
		t.Fatal(mistakes)
	}
	want := &shape{
		Name:   "42",
		Color:  "green",
		Sides:  4,
		Weight: 1536,
		Age:    90 * time.Second,
		Solid:  true,
		Places: []string{"a", "b"},
		Labels: map[string]string{
			"a":   "1",
			"b.c": "true",
		},
		Secret: file,
		Point:  point{7, 2},
		Inner:  &point{X: 7},
		More:   []point{{X: 1}, {X: 7}},
		common: common{"o", "p"},
	}
	if diff := cmp.Diff(
		want,
		s,
		cmp.AllowUnexported(shape{}),
		cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "notForFiles" }, cmp.Ignore()),
	); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Each text has one mistake.
func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"name: 42":                           `2:7: name: 42 is not a valid string (quote it: "42")`,
		"name: 2026-01-01":                   `2:7: name: 2026-01-01 is not a valid string (quote it: "2026-01-01")`,
		"name: [a]":                          `2:7: name: a list is not a valid string (example: name: square)`,
		"name:\n  a: b":                      `3:3: name: an object is not a valid string (example: name: square)`,
		"name: ''":                           "2:7: name: is empty (write square)",
		"name:":                              "2:6: name: has no value (add a value or remove the key, and check the indentation of the next line)",
		"name: &a b":                         `2:7: name: has an anchor, an alias or a tag, which are not allowed (write the value itself, without &, * and !)`,
		"name: !!str b":                      `2:7: name: has an anchor, an alias or a tag, which are not allowed (write the value itself, without &, * and !)`,
		"sides: 5":                           "1:1: name: is missing (add name: square)",
		"nmae: a":                            `2:1: unknown key "nmae" (did you mean name?)`,
		"name: a\nname: b":                   `3:1: key "name" is given twice, first in line 2 (keep one of them)`,
		"name: a\n? [b]\n: c":                `3:3: has a key that is not a plain string (write a word, without <<, brackets, & and !)`,
		"name: a\nx: 1":                      `3:1: unknown key "x" (the keys are name, color, hue, sides, weight, age, solid, tags, places, labels, passwordFile, point, inner, more, owner, pair)`,
		"name: a\npassword: s3cret":          `3:1: unknown key "password": secrets and certificates are not allowed in this file (write the value to another file, and name that file with passwordFile)`,
		"name: a\npwd: s3cret":               `3:1: unknown key "pwd" (the keys are name, color, hue, sides, weight, age, solid, tags, places, labels, passwordFile, point, inner, more, owner, pair)`,
		"name: a\npoint: {password: s3cret}": `3:9: point: unknown key "password" (the keys are x, y)`,
		"name: a\npoint: {z: 1}":             `3:9: point: unknown key "z" (the keys are x, y)`,
		"name: a\npoint: [1]":                `3:8: point: a list is not a valid object (the keys are x, y)`,
		"name: a\nmore: {x: 1}":              `3:7: more: an object is not a valid list (begin each entry with "- ")`,
		"name: a\nmore: [{x: 1}, {x: a}]":    `3:20: more[1].x: "a" is not a valid integer (example: x: 8)`,
		"name: a\ntags: b":                   `3:7: tags: "b" is not a valid list (example: tags: [a, b])`,
		"name: a\nlabels: [b]":               `3:9: labels: a list is not a valid object (example: labels: {a: b})`,
		"name: a\nlabels: {a.b: [c]}":        `3:15: labels["a.b"]: is not a single value (write name: value)`,
		"name: a\ncolor: ''":                 `3:8: color: "" is not a valid value (write red or green)`,
		"name: a\ncolor: pink":               `3:8: color: "pink" is not a valid value (write red or green)`,
		"name: a\nhue: hot":                  `3:6: hue: "hot" is not a valid value (write warm or cold)`,
		"name: a\nsides: 2":                  "3:8: sides: 2 is too small (the minimum is 3)",
		"name: a\nsides: 101":                "3:8: sides: 101 is too large (the maximum is 100)",
		"name: a\nsides: '5'":                `3:8: sides: "5" is not a valid integer (example: sides: 5)`,
		"name: a\nweight: 0":                 "3:9: weight: 0 is too small (the minimum is 1)",
		"name: a\nweight: 2Gi":               "3:9: weight: 2Gi is too large (the maximum is 1Gi)",
		"name: a\nweight: many":              `3:9: weight: "many" is not a valid size (example: weight: 2Mi)`,
		"name: a\nage: 1ms":                  "3:6: age: 1ms is too small (the minimum is 1s)",
		"name: a\nage: 2h":                   "3:6: age: 2h is too large (the maximum is 1h)",
		"name: a\nage: 2d":                   `3:6: age: "2d" is not a valid duration (example: age: 2m)`,
		"name: a\nsolid: yes":                `3:8: solid: "yes" is not a valid boolean (example: solid: true)`,
		"name: a\npasswordFile: gone":        `3:15: passwordFile: stat gone: no such file or directory (set it to a file that the bridge can read)`,
		"name: a\npasswordFile: .":           `3:15: passwordFile: . is not a regular file (set it to a file that the bridge can read)`,
		"name: a\nowner: me":                 "1:1: pair: is missing, but owner is given (set all of owner, pair, or none of them)",
		"name: a\npair: me":                  "1:1: owner: is missing, but pair is given (set all of owner, pair, or none of them)",
		"name: a\ntags: [b]\nplaces: c":      "4:9: places: cannot be used together with tags (keep one of them)",
		"name: a\nplaces: 'a''b! c'":         `3:9: places: has a ! (remove it)`,
		"name: a\nplaces: [a]":               `3:9: places: a list is not a valid string (example: places: a,b)`,
		"name: a\nowner: 1\npair: p":         `3:8: owner: 1 is not a valid string (quote it: "1")`,
		"name: a\n---\nname: b":              "3:1: the file contains a second document (keep one, and remove the --- lines)",
		"name: a\nmore: [&p {x: 1}, {y: 2}]": `3:8: more[0]: has an anchor, an alias or a tag, which are not allowed (write the value itself, without &, * and !)`,
		"name: a\nsides: [":                  `3:1: this is not YAML: did not find expected node content (check the indentation, indent with spaces, close quotes, and quote strings with special characters)`,
	} {
		if _, got := parse("inner: {}\n" + text); got != "f:"+want {
			t.Errorf("%q:\n got %s\nwant f:%s", text, got, want)
		}
	}
}

func TestSection(t *testing.T) {
	_, root := Decode[shape]("f", []byte("name: a\npoint: {x: 1, z: 2}\nmore:\n  - {x: 1}\nowner: ''\npair:\n"))
	at := root.At("more[0]")
	if at.path != "more[0]" || !at.Has("x") || at.Has("y") || !at.Has("") || root.Has("more[1]") ||
		!root.Has("more[0].x") {
		t.Errorf("%s: x %v, y %v", at.path, at.Has("x"), at.Has("y"))
	}
	if root.Fine("pair") || !root.Fine("owner") {
		t.Error("not which keys have a mistake")
	}
	if given := root.Given(
		"name",
		"owner",
		"pair",
		"tags",
		"point",
	); !slices.Equal(
		given,
		[]string{"name", "pair", "point"},
	) {
		t.Errorf("given %v", given)
	}
	at.Report("y", "is missing", "add it")
	at.Report("y", "is reported twice", "add it")
	at.Address("x", "nowhere", false, "remedy")
	if got := root.Err().
		Error(); !strings.Contains(got, "f:4:5: more[0].y: is missing (add it)\n") ||
		strings.Contains(got, "twice") ||
		!strings.Contains(got, `f:4:9: more[0].x: "nowhere" is not an address of the form host:port (remedy)`) {
		t.Error(got)
	}
}

func TestAddress(t *testing.T) {
	for _, test := range []struct {
		text    string
		connect bool
		problem string
	}{
		{"a:1", true, ""},
		{"[::1]:1", true, ""},
		{":8080", false, ""},
		{"a:0", false, ""},
		{"a_b.c.:65535", true, ""},
		{":1", true, "has no host"},
		{"a:0", true, "has no port"},
		{"a:65536", false, "has no port"},
		{"a", false, "is not an address"},
		{"a b:1", true, "has no valid host"},
		{"a:b", false, "has no port"},
		{"::1:1", true, "is not an address"},
	} {
		at := &Section{d: newDecoder("")}
		at.Address("key", test.text, test.connect, "remedy")
		if err := at.Err(); err == nil != (test.problem == "") || err != nil && !strings.Contains(err.Error(), test.problem) {
			t.Errorf("%q: %v, want %q", test.text, err, test.problem)
		}
	}
}

func TestFields(t *testing.T) {
	var names, types []string
	for _, f := range Fields(reflect.TypeFor[shape]()) {
		names, types = append(names, f.Name), append(types, f.TypeName())
	}
	wantNames := strings.Fields(
		"name color hue sides weight age solid tags places labels passwordFile point inner more owner pair",
	)
	if diff := cmp.Diff(wantNames, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(strings.Fields("string string string integer size duration boolean"), types[:7]); diff != "" {
		t.Errorf("types (-want +got):\n%s", diff)
	}
}

// Whatever the text: no panic, and mistakes that are within it, in order, on one line each.
func FuzzDecode(f *testing.F) {
	f.Add("name: a\ninner: {}\nplaces: \"\\u00e9 !\"\n")
	f.Add("name: |2- # c\n    !\nplaces: >-\n  a\n\n  b!\n")
	f.Add("a: &x [*x]\n<<: {b: c}\n? d\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, at := Decode[shape]("f", []byte(text))
		if !at.Unreadable() {
			s.Validate(at)
		}
		err := at.Err()
		breaks := 0
		for _, mark := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
			breaks += strings.Count(text, mark)
		}
		for i, m := range at.d.mistakes {
			if m.Line < 1 || m.Column < 1 || m.Line > breaks+1 || strings.ContainsAny(m.Error(), "\n\r") {
				t.Errorf("%q: %v", text, m)
			}
			if i > 0 && (m.Line < at.d.mistakes[i-1].Line) {
				t.Errorf("%q: not in order:\n%v", text, err)
			}
		}
	})
}
