package strictyaml

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
)

// free has values that are not decoded, and an object with arbitrary keys.
type free struct {
	Any    *yaml.Node         `yaml:"any"    example:"{a: 1}"`
	Points map[string][]point `yaml:"points" example:"{a: [{x: 1}]}"`
}

func TestNodesAndMaps(t *testing.T) {
	f, at := Decode[free]("f", []byte("any: {a: [1, null]}\npoints:\n  a.b: [{x: 1}, {}]\n  c: []\n"))
	if err := at.Err(); err != nil {
		t.Fatal(err)
	}
	var value any
	if err := f.Any.Load(&value); err != nil || f.Any.Line != 1 {
		t.Errorf("line %d, %v", f.Any.Line, err)
	}
	if diff := cmp.Diff(any(map[string]any{"a": []any{1, nil}}), value); diff != "" {
		t.Errorf("any (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string][]point{"a.b": {{X: 1}, {X: 7}}, "c": {}}, f.Points); diff != "" {
		t.Errorf("points (-want +got):\n%s", diff)
	}
	if n := at.Node(`points["a.b"][1]`); n == nil || n.Line != 3 || at.Node("points.d") != nil {
		t.Errorf("the nodes of keys are wrong: %v", n)
	}
}

func TestMistakesInNodesAndMaps(t *testing.T) {
	for text, want := range map[string]string{
		"any:": "f:1:5: any: has no value " +
			"(add a value or remove the key, and check the indentation of the next line)",
		"any: {a: &b 1}": "f:1:6: any: has an anchor, an alias or a tag, which are not allowed " +
			"(write the value itself, without &, * and !)",
		"any: [{a: 1, a: 2}]":    `f:1:14: any: key "a" is given twice, first in line 1 (keep one of them)`,
		"points: {a: {x: 1}}":    `f:1:13: points["a"]: an object is not a valid list (example: points: {a: [{x: 1}]})`,
		"points: {a: [{z: 1}]}":  `f:1:15: points["a"][0]: unknown key "z" (the keys are x, y)`,
		"points: {a: [], a: []}": `f:1:17: points: key "a" is given twice, first in line 1 (keep one of them)`,
		"points: [a]":            `f:1:9: points: a list is not a valid object (example: points: {a: [{x: 1}]})`,
	} {
		_, at := Decode[free]("f", []byte(text))
		if err := at.Err(); err == nil || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
}
