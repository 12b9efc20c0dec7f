package strictyaml

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Examples are remedies in messages, so the decoder must accept each of them, and an example is not the default.
func TestExamplesAreValid(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	defaults := reflect.ValueOf(Default[shape]())
	for _, f := range Fields(reflect.TypeFor[shape]()) {
		example := f.Tag.Get("example")
		switch {
		case example == "":
			continue
		case f.Tag.Get("format") == "file":
			example = file
		}
		text := f.Name + ": " + example + "\n"
		if f.Name != "name" {
			text += "name: a\n"
		}
		s, at := Decode[shape]("f", []byte(text))
		got := reflect.ValueOf(s).Elem().FieldByIndex(f.Index).Interface()
		if at.Err() != nil || reflect.DeepEqual(got, defaults.FieldByIndex(f.Index).Interface()) {
			t.Errorf("%s%v, %v", text, got, at.Err())
		}
	}
}

// A key is a plain word, given once. What else YAML allows would give a value no position, or several.
func TestKeys(t *testing.T) {
	type file struct {
		X      int               `yaml:"x"      required:"true" example:"1"`
		Point  point             `yaml:"point"`
		More   []point           `yaml:"more"`
		Labels map[string]string `yaml:"labels"`
		None   struct{}          `yaml:"none"`
	}
	const (
		notPlain = "has a key that is not a plain string (write a word, without <<, brackets, & and !)"
		marked   = "has an anchor, an alias or a tag, which are not allowed (write the value itself, without &, * and !)"
		noValue  = "has no value (add a value or remove the key, and check the indentation of the next line)"
	)
	for text, want := range map[string]string{
		"<<: {x: 2}":                     "f:2:1: " + notPlain,
		"&x point: {}":                   "f:2:1: " + notPlain,
		"!!str point: {}":                "f:2:1: " + notPlain,
		"? [a]\n: b":                     "f:2:3: " + notPlain,
		"point:\n  <<: {x: 1}":           "f:3:3: point: " + notPlain,
		"more:\n- x: 1\n- {? {a: b}: 1}": "f:4:6: more[1]: " + notPlain,
		"labels: {? [a]: b}":             "f:2:12: labels: " + notPlain,
		"labels: {a: 1, a: 2}":           `f:2:16: labels: key "a" is given twice, first in line 2 (keep one of them)`,
		"labels:\n  a: &x 1":             `f:3:6: labels["a"]: ` + marked,
		"labels: {a: !!int 1}":           `f:2:13: labels["a"]: ` + marked,
		"labels: {a: }":                  `f:2:13: labels["a"]: ` + noValue,
		"labels: {" + strings.Repeat("k", 99) + ": []}": `f:2:111: labels["` + strings.Repeat("k", 57) + `..."]: is not a single value (write name: value)`,
		"more: [~]":      "f:2:8: more[0]: " + noValue,
		"none: {a: 1}":   `f:2:8: none: unknown key "a" (this object has no keys: write {})`,
		"Point: {}":      `f:2:1: unknown key "Point" (did you mean point?)`,
		"point: {X: 1}":  `f:2:9: point: unknown key "X" (did you mean x?)`,
		"lables: {a: b}": `f:2:1: unknown key "lables" (did you mean labels?)`,
	} {
		_, at := Decode[file]("f", []byte("x: 1\n"+text))
		if err := at.Err(); err == nil || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
}

// Of a misspelled required key, only the spelling is reported. Other missing keys are reported too.
func TestMisspelledRequiredKey(t *testing.T) {
	type file struct {
		Name    string `yaml:"name"    required:"true" example:"a"`
		Subject string `yaml:"subject" required:"true" example:"b"`
	}
	_, at := Decode[file]("f", []byte("nam: x\n"))
	want := []string{
		`f:1:1: unknown key "nam" (did you mean name?)`,
		"f:1:1: subject: is missing (add subject: b)",
	}
	if diff := cmp.Diff(want, strings.Split(at.Err().Error(), "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A relative file is looked up beside the YAML file, and an empty one nowhere.
func TestRelativeFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "password"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"passwordFile: password":                      filepath.Join(dir, "password"),
		"passwordFile: ./x/../password":               filepath.Join(dir, "password"),
		"passwordFile: " + filepath.Join(dir, "none"): "stat " + filepath.Join(dir, "none"),
		"passwordFile: none":                          "stat " + filepath.Join(dir, "none"),
		"passwordFile: ''":                            "",
	} {
		s, at := Decode[shape](filepath.Join(dir, "bridge.yaml"), []byte("name: a\n"+text))
		got := s.Secret
		if mistake, ok := errors.AsType[*Mistake](at.Err()); ok {
			got = mistake.Problem
			if mistake.Path != "passwordFile" || mistake.Line != 2 || mistake.Column != 15 ||
				mistake.File != filepath.Join(dir, "bridge.yaml") {
				t.Errorf("%s: %+v", text, mistake)
			}
		}
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// Offline, a file that does not exist is no mistake, and its key is checked like any other.
func TestDecodeOffline(t *testing.T) {
	s, at := DecodeOffline[shape]("dir/f", []byte("name: a\npasswordFile: none\n"))
	want := "dir/f:2:15: passwordFile: stat dir/none: no such file or directory (`bridge run` requires this file)"
	if missing := at.MissingFiles(); at.Err() != nil || !at.Fine("passwordFile") || s.Secret != "dir/none" ||
		len(missing) != 1 || missing[0].Error() != want {
		t.Errorf("%v, %+v, %v", at.Err(), s, missing)
	}
	if _, at := DecodeOffline[shape](
		"f",
		[]byte("name: a\npasswordFile: .\n"),
	); at.Err() == nil ||
		at.MissingFiles() != nil {
		t.Errorf("a directory: %v, %v", at.Err(), at.MissingFiles())
	}
	if _, at := Decode[shape]("f", []byte("name: a\npasswordFile: none\n")); at.Err() == nil || at.MissingFiles() != nil {
		t.Errorf("Decode: %v, %v", at.Err(), at.MissingFiles())
	}
}

// Text that is not from a file has no position that a reader could look up.
func TestTextWithoutFile(t *testing.T) {
	_, at := Decode[shape]("", []byte("name: a\nsides: 2\npoint: {z: 1}\n"))
	want := "sides: 2 is too small (the minimum is 3)\npoint: unknown key \"z\" (the keys are x, y)"
	if err := at.Err(); err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}
