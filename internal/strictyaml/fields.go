package strictyaml

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Field describes a key of a struct.
type Field struct {
	Name  string
	Index []int // the argument for reflect.Value.FieldByIndex
	Type  reflect.Type
	Tag   reflect.StructTag
}

// Fields returns the keys of a struct in declaration order, including the keys of inlined structs, which are embedded.
func Fields(t reflect.Type) []Field {
	var fields []Field
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("yaml"); name != "" && name != ",inline" {
			fields = append(fields, Field{name, f.Index, f.Type, f.Tag})
		}
	}
	return fields
}

// TypeName returns the name of the value's type in the documentation.
func (f *Field) TypeName() string { return typeName(f.Type, f.Tag) }

func typeName(t reflect.Type, tag reflect.StructTag) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case tag.Get("format") == "file":
		return "path"
	case tag.Get("format") == "commas":
		return "string"
	}
	switch t.Kind() {
	case reflect.Int64:
		return "size"
	case reflect.Int:
		return "integer"
	case reflect.Bool:
		return "boolean"
	case reflect.Slice:
		return "list"
	case reflect.Struct, reflect.Map:
		return "object"
	default:
		return "string"
	}
}

func keyNames(t reflect.Type) []string {
	var names []string
	for _, f := range Fields(t) {
		names = append(names, f.Name)
	}
	return names
}

// Default returns a struct with all defaults set.
func Default[T any]() T {
	var v T
	SetDefaults(reflect.ValueOf(&v).Elem())
	return v
}

// SetDefaults sets the defaults of the struct v and of all nested structs. Pointers stay nil.
func SetDefaults(v reflect.Value) {
	for _, f := range Fields(v.Type()) {
		if f.Type.Kind() == reflect.Struct {
			SetDefaults(v.FieldByIndex(f.Index))
			continue
		}
		if text, ok := f.Tag.Lookup("default"); ok {
			if err := decodeText(text, v.FieldByIndex(f.Index), f.Tag); err != nil {
				panic("default of " + f.Name + ": " + err.Error()) // The tag is invalid, which tests detect.
			}
		}
	}
}

// decodeText decodes a single value from YAML.
func decodeText(text string, v reflect.Value, tag reflect.StructTag) error {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		return err
	}
	d := newDecoder("")
	d.value("", document.Content[0], v, tag)
	return joined(d.mistakes)
}

// unknownKey reports an unknown key and suggests a similar key, which it returns. It returns "" if no key is similar.
func (d *decoder) unknownKey(path string, key *yaml.Node, t reflect.Type) (near string) {
	known := keyNames(t)
	problem, remedy := "unknown key "+Quote(key.Value), "the keys are "+strings.Join(known, ", ")
	near = nearest(key.Value, known)
	switch {
	case slices.Contains(known, key.Value+"File"):
		problem += ": secrets and certificates are not allowed in this file"
		remedy = "write the value to another file, and name that file with " + key.Value + "File"
	case near != "":
		remedy = "did you mean " + near + "?"
	case len(known) == 0:
		remedy = "this object has no keys: write {}"
	}
	d.add(key.Line, key.Column, path, problem, remedy)
	return near
}

// nearest returns the known key that is most similar to key, or "" if no known key is similar.
func nearest(key string, known []string) string {
	best, least := "", min(3, len(key))
	for _, name := range known {
		if n := distance(strings.ToLower(key), strings.ToLower(name)); n < least {
			best, least = name, n
		}
	}
	return best
}

// distance returns the Levenshtein distance between two strings.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			n := diagonal
			if a[i] != b[j] {
				n = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], n
		}
	}
	return row[len(b)]
}

// OrList formats a list of alternatives, as in "a, b or c".
func OrList(texts []string) string {
	if len(texts) < 2 {
		return strings.Join(texts, "")
	}
	return strings.Join(texts[:len(texts)-1], ", ") + " or " + texts[len(texts)-1]
}
