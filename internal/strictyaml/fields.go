package strictyaml

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Field is a key of a struct.
type Field struct {
	Name  string
	Index []int // for reflect.Value.FieldByIndex
	Type  reflect.Type
	Tag   reflect.StructTag
}

// Fields returns the keys of a struct in their order, those of inlined structs among them.
func Fields(t reflect.Type) []Field {
	var fields []Field
	for i := range t.NumField() {
		f := t.Field(i)
		switch name := f.Tag.Get("yaml"); name {
		case "":
		case ",inline":
			for _, inner := range Fields(f.Type) {
				inner.Index = append([]int{i}, inner.Index...)
				fields = append(fields, inner)
			}
		default:
			fields = append(fields, Field{name, []int{i}, f.Type, f.Tag})
		}
	}
	return fields
}

// TypeName returns what kind of value the key takes, for people.
func (f *Field) TypeName() string { return typeName(f.Type, f.Tag) }

func typeName(t reflect.Type, tag reflect.StructTag) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case tag.Get("format") == "file":
		return "path"
	}
	switch t.Kind() {
	case reflect.Int64:
		return "size"
	case reflect.Int:
		return "integer"
	case reflect.Bool:
		return "boolean"
	default:
		return "string"
	}
}

// withArticle is for names of types and of what is in the file.
func withArticle(name string) string {
	if strings.ContainsRune("aeio", rune(name[0])) {
		return "an " + name
	}
	return "a " + name
}

func keyNames(t reflect.Type) []string {
	var names []string
	for _, f := range Fields(t) {
		names = append(names, f.Name)
	}
	return names
}

// Default returns a T, which is a struct, with its defaults.
func Default[T any]() T {
	var v T
	SetDefaults(reflect.ValueOf(&v).Elem())
	return v
}

// SetDefaults sets what the tags of a struct, v, say, in the structs inside it too.
func SetDefaults(v reflect.Value) {
	for _, f := range Fields(v.Type()) {
		if f.Type.Kind() == reflect.Struct {
			SetDefaults(v.FieldByIndex(f.Index))
			continue
		}
		if text, ok := f.Tag.Lookup("default"); ok {
			if err := decodeText(text, v.FieldByIndex(f.Index), f.Tag); err != nil {
				panic("default of " + f.Name + ": " + err.Error()) // a mistake in a tag, which a test finds
			}
		}
	}
}

// CheckTags returns what is wrong with the default and the example of the key. It is for tests.
func (f *Field) CheckTags() error {
	for _, name := range []string{"default", "example"} {
		v, tag := reflect.New(f.Type).Elem(), f.Tag
		if tag.Get("format") == "file" {
			tag = "" // examples of files are not there
		}
		if text, ok := f.Tag.Lookup(name); ok {
			if err := decodeText(text, v, tag); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// decodeText decodes one value that is written as YAML, as if it were in a file.
func decodeText(text string, v reflect.Value, tag reflect.StructTag) error {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		return err
	}
	d := newDecoder("", nil)
	d.value("", document.Content[0], v, tag)
	return sorted(d.mistakes)
}

// unknownKey reports a key that does not exist, with what may have been meant.
func (d *decoder) unknownKey(path string, key *yaml.Node, t reflect.Type) {
	d.confused[path] = true
	known := keyNames(t)
	if file := secretFile(key.Value, known); file != "" {
		d.confused[join(path, file)] = true
		d.keyMistake(key, path, "there is no key "+quoteKey(key)+": secrets and certificates are not in this file",
			"write it into a file of its own, and name that with "+file)
		return
	}
	remedy := "there are " + strings.Join(known, ", ")
	if len(known) == 0 {
		remedy = "there is nothing to set: write {}"
	}
	if near := nearest(key.Value, known); near != "" {
		d.confused[join(path, near)] = true
		remedy = "did you mean " + near + "?"
	} else if places := placesOf(key.Value, "", d.root); len(places) > 0 && len(places) <= 3 {
		remedy = "it belongs into " + OrList(places) + "; is the indentation right?"
	} else if places := placesOf(key.Value+"File", "", d.root); len(places) > 0 {
		remedy = "write it into a file of its own, and name that with " + key.Value + "File in " + OrList(places)
	}
	d.keyMistake(key, path, "there is no key "+quoteKey(key), remedy)
}

func quoteKey(key *yaml.Node) string { return `"` + strings.Trim(joinAny("", key.Value), `["]`) + `"` }

// secretFile is the key that names a file, for one that would hold the secret itself.
func secretFile(key string, known []string) string {
	lower := strings.ToLower(key)
	if slices.Contains([]string{"pass", "passwd", "pwd", "secret"}, lower) {
		lower = "password"
	}
	for _, name := range known {
		if strings.HasSuffix(name, "File") && strings.ToLower(name) == lower+"file" {
			return name
		}
	}
	return ""
}

// nearest is the known key that looks most like key; empty if none does.
func nearest(key string, known []string) string {
	best, least := "", 3
	if len(key) > 64 {
		return ""
	}
	for _, name := range known {
		a, b := strings.ToLower(key), strings.ToLower(name)
		n := distance(a, b)
		if slices.Equal(slices.Sorted(slices.Values([]byte(a))), slices.Sorted(slices.Values([]byte(b)))) { // as in ulr
			n = min(n, 1)
		}
		if len(a) >= 3 && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a)) {
			n = min(n, 2)
		}
		if n < least && n <= len(b)/2 {
			best, least = name, n
		}
	}
	return best
}

// distance is Levenshtein's: how many insertions, deletions and replacements make b of a.
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

// placesOf returns the paths of all structs that have the key.
func placesOf(key, path string, t reflect.Type) []string {
	var places []string
	if slices.Contains(keyNames(t), key) {
		places = append(places, path)
		if path == "" {
			places[0] = "the top level"
		}
	}
	for _, f := range Fields(t) {
		if child, inner := f.Section(path); inner != nil {
			places = append(places, placesOf(key, child, inner)...)
		}
	}
	return places
}

// Section returns the struct that the key of a struct at path holds, and its path; nil if it holds none.
func (f *Field) Section(path string) (string, reflect.Type) {
	child, typ := join(path, f.Name), f.Type
	if typ.Kind() == reflect.Slice {
		child, typ = child+"[]", typ.Elem()
	}
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct {
		return "", nil
	}
	return child, typ
}

// OrList writes alternatives for people: a, b or c.
func OrList(texts []string) string {
	if len(texts) < 2 {
		return strings.Join(texts, "")
	}
	return strings.Join(texts[:len(texts)-1], ", ") + " or " + texts[len(texts)-1]
}

// kindName says what is in the file.
func kindName(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	default:
		return "a single value"
	}
}

// tagName says what YAML makes of a plain value.
func tagName(tag string) string {
	switch tag {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a boolean"
	case "!!timestamp":
		return "a date"
	default:
		return "not a string"
	}
}
