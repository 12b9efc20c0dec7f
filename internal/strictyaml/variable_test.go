package strictyaml

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestVariables(t *testing.T) {
	t.Setenv("STRICT_NUMBER", "7")
	t.Setenv("STRICT_TEXT", "x: [1]\n  y: \"2\" # no comment")
	t.Setenv("STRICT_EMPTY", "")
	s, at := Decode[shape]("f", []byte(`
name: "${STRICT_NUMBER}"
owner: ${STRICT_TEXT}
pair: a-${STRICT_NUMBER}-$${STRICT_NUMBER}-$${x}-${STRICT_NONE:-none}-${STRICT_EMPTY:-empty}${STRICT_EMPTY}$NO
sides: ${STRICT_NUMBER}
weight: ${STRICT_NUMBER}Ki
age: ${STRICT_NUMBER}s
solid: ${STRICT_NONE:-true}
tags: ["${STRICT_NUMBER}", b]
places: ${STRICT_NONE:-a, b}
labels: {a: "${STRICT_NUMBER}"}
inner: {x: "${STRICT_NUMBER}"}
`))
	if err := at.Err(); err != nil {
		t.Fatal(err)
	}
	want := &shape{
		Name: "7", Sides: 7, Weight: 7 << 10, Age: 7 * time.Second, Solid: true, Tags: []string{"7", "b"},
		Places: []string{"a", "b"}, Labels: map[string]string{"a": "7"}, Inner: &point{X: 7}, Color: s.Color,
		Point: s.Point, common: common{"x: [1]\n  y: \"2\" # no comment", "a-7-${STRICT_NUMBER}-${x}-none-empty$NO"},
	}
	if diff := cmp.Diff(want, s, cmp.AllowUnexported(shape{}),
		cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "notForFiles" }, cmp.Ignore())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var used []string
	for _, v := range at.Variables() {
		if !v.Set {
			v.Name += " (default)"
		}
		used = append(used, v.Path+" "+v.Name)
	}
	wantUsed := []string{
		"name STRICT_NUMBER", "owner STRICT_TEXT", "pair STRICT_NUMBER", "pair STRICT_NONE (default)",
		"pair STRICT_EMPTY (default)", "pair STRICT_EMPTY", "sides STRICT_NUMBER", "weight STRICT_NUMBER",
		"age STRICT_NUMBER", "solid STRICT_NONE (default)", "tags[0] STRICT_NUMBER", "places STRICT_NONE (default)",
		`labels["a"] STRICT_NUMBER`, "inner.x STRICT_NUMBER",
	}
	if diff := cmp.Diff(wantUsed, used); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
}

func TestVariableMistakes(t *testing.T) {
	t.Setenv("STRICT_TEXT", "a\nb")
	t.Setenv("STRICT_LIST", "[a, b]")
	for text, want := range map[string]string{
		"name: ${STRICT_NONE}": "2:7: name: the environment variable STRICT_NONE is not set " +
			"(set it, or add a default: ${STRICT_NONE:-default})",
		"name: a${1}": "2:7: name: contains ${, but no valid reference to an environment variable " +
			"(write ${NAME} or ${NAME:-default}, or $${ for the characters ${)",
		"name: a${STRICT_TEXT": "2:7: name: contains ${, but no valid reference to an environment variable " +
			"(write ${NAME} or ${NAME:-default}, or $${ for the characters ${)",
		"name: a\nsides: ${STRICT_TEXT}":    `3:8: sides: "a\nb" is not a valid integer (example: sides: 5)`,
		"name: a\nsides: ${STRICT_NONE:-2}": "3:8: sides: 2 is too small (the minimum is 3)",
		"name: a\nsolid: ${STRICT_NONE:-1}": `3:8: solid: "1" is not a valid boolean (example: solid: true)`,
		"name: a\nage: ${STRICT_TEXT}":      `3:6: age: "a\nb" is not a valid duration (example: age: 2m)`,
		"name: a\ntags: ${STRICT_LIST}":     `3:7: tags: "[a, b]" is not a valid list (example: tags: [a, b])`,
		"name: a\ncolor: ${STRICT_TEXT}":    `3:8: color: "a\nb" is not a valid value (write red or green)`,
		"name: a\nlabels: {a: '${STRICT_NO}'}": `3:13: labels["a"]: the environment variable STRICT_NO is not set ` +
			`(set it, or add a default: ${STRICT_NO:-default})`,
		"name: a\npassword: ${STRICT_TEXT}": `3:1: unknown key "password": secrets and certificates are not allowed ` +
			`in this file (write the value to another file, and name that file with passwordFile)`,
		"name: a\n${STRICT_TEXT}: b": `3:1: unknown key "${STRICT_TEXT}" (the keys are ` +
			strings.Join(keyNames(reflect.TypeFor[shape]()), ", ") + ")",
	} {
		if _, got := parse("inner: {}\n" + text); got != "f:"+want {
			t.Errorf("%q:\n got %s\nwant f:%s", text, got, want)
		}
	}
}
