package strictyaml

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// One mistake does not hide another, and all are sorted by place. Each value has at most one.
func TestAllMistakesAtOnce(t *testing.T) {
	_, got := parse(strings.TrimPrefix(`
more: [{x: a}, {y: b, z: 1}]
sides: 1
name: 5
colour: green
weight: 1Ki
weight: 2Ki
point: &p {}
`, "\n"))
	want := []string{
		`f:1:1: inner: is missing too (add inner: {})`,
		`f:1:12: more[0].x: "a" is not a valid integer (example: x: 8)`,
		`f:1:20: more[1].y: "b" is not a valid integer (example: y: 9)`,
		`f:1:23: more[1]: unknown key "z" (the keys are x, y)`, // a key of one letter is similar to no other
		`f:2:8: sides: 1 is too small (the minimum is 3)`,
		`f:3:7: name: 5 is not a valid string (quote it: "5")`,
		`f:4:1: unknown key "colour" (did you mean color?)`,
		`f:6:1: key "weight" is given twice, first in line 5 (keep one of them)`,
		`f:7:8: point: has an anchor, an alias or a tag, which are not allowed (write the value itself, without &, * and !)`,
	}
	if diff := cmp.Diff(strings.Join(want, "\n"), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A file without a document, or with an empty one, has the defaults; the required keys are missing only in an object.
func TestEmptyFiles(t *testing.T) {
	for _, text := range []string{"", "# only a comment\n", "---\n", "--- # nothing\n...\n"} {
		s, at := Decode[shape]("f", []byte(text))
		if err := at.Err(); err != nil || at.Unreadable() || s.Sides != 4 || s.Color != "red" || s.Inner != nil {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
	if _, at := Decode[shape]("f", []byte("[]")); at.Err() == nil || at.Unreadable() ||
		!strings.Contains(at.Err().Error(), "f:1:1: a list is not a valid object (the keys are name, color,") {
		t.Errorf("a list: %v", at.Err())
	}
	if _, at := Decode[shape]("f", []byte("name: [")); !at.Unreadable() {
		t.Error("a file that is not YAML counts as readable")
	}
}

// An invalid entry keeps its place in a list, so that later checks name the right ones.
func TestInvalidEntriesKeepTheirPlaces(t *testing.T) {
	s, at := Decode[shape]("f", []byte("name: a\nmore: [{x: 1}, 5, {x: 3}]\ntags: [a, [b], c]\n"))
	if diff := cmp.Diff([]point{{X: 1}, {X: 7}, {X: 3}}, s.More); diff != "" {
		t.Errorf("more (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a", "", "c"}, s.Tags); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	if at.Fine("more[1]") || at.Fine("tags[1]") || !at.Fine("more[2]") || !at.Fine("tags[2]") || !at.Fine("tags") {
		t.Errorf("not the right entries have mistakes: %v", at.Err())
	}
}

// A message about a missing value is placed at the nearest object that is in the file.
func TestPlaceOfMissingValues(t *testing.T) {
	_, at := Decode[shape]("f", []byte("name: a\nmore:\n  - y: 1\npoint:\n  x: 1\n"))
	for key, want := range map[string]string{
		"more[0].x": "f:3:5: more[0].x: p (r)", "more[7].x": "f:3:3: more[7].x: p (r)", "point.y": "f:5:3: point.y: p (r)",
		"inner.x": "f:1:1: inner.x: p (r)", "name": "f:1:7: name: p (r)",
	} {
		at.Report(key, "p", "r")
		if err := at.Err(); !strings.Contains(err.Error()+"\n", want+"\n") {
			t.Errorf("%s: want %s in\n%v", key, want, err)
		}
	}
}

// Long and binary values are shortened and escaped in messages, each of which is one line.
func TestValuesInMessages(t *testing.T) {
	_, got := parse("inner: {}\nname: a\nhue: \"" + strings.Repeat("x", 200) + "\"\ncolor: \"a\\nb\\e[2J\"\n")
	for _, want := range []string{
		`hue: "` + strings.Repeat("x", 57) + `..." is not a valid value`, `color: "a\nb\x1b[2J" is not a valid value`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if strings.Count(got, "\n") != 1 {
		t.Errorf("not two lines:\n%s", got)
	}
}

func TestOrList(t *testing.T) {
	for want, texts := range map[string][]string{"": nil, "a": {"a"}, "a or b": {"a", "b"}, "a, b or c": {"a", "b", "c"}} {
		if got := OrList(texts); got != want {
			t.Errorf("%v: %q", texts, got)
		}
	}
}

// Defaults are set in structs within structs, but a pointer stays nil, so that a missing object can be told apart.
func TestDefaults(t *testing.T) {
	s := Default[shape]()
	if s.Point != (point{X: 7}) || s.Inner != nil || s.Weight != 1024 || s.Solid {
		t.Errorf("%+v", s)
	}
	defer func() {
		if text, _ := recover().(string); !strings.HasPrefix(text, "default of n: ") {
			t.Errorf("a default that is invalid: %q", text)
		}
	}()
	SetDefaults(reflect.ValueOf(&struct {
		N int `yaml:"n" default:"many"`
	}{}).Elem())
}
