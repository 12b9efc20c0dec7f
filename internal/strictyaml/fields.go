package strictyaml

import (
	"cmp"
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

// Fields returns the keys of a struct in declaration order, including the keys of inlined structs.
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

// TypeName returns the name of the value's type in the documentation.
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
	d := newDecoder("", nil)
	d.value("", document.Content[0], v, tag)
	return sorted(d.mistakes)
}

// unknownKey reports an unknown key and suggests a similar key.
func (d *decoder) unknownKey(path string, key *yaml.Node, t reflect.Type) {
	d.confused[path] = true
	known := keyNames(t)
	problem := "unknown key " + Quote(key.Value)
	if file := secretFile(key.Value, known); file != "" {
		d.confused[join(path, file)] = true
		d.keyMistake(key, path, problem+": secrets and certificates are not allowed in this file",
			"write the value to another file, and name that file with "+file)
		return
	}
	remedy := "the keys are " + strings.Join(known, ", ")
	if len(known) == 0 {
		remedy = "there are no keys: write {}"
	}
	if near := nearest(key.Value, known); near != "" {
		d.confused[join(path, near)] = true
		remedy = "did you mean " + near + "?"
	} else if places := placesOf(key.Value, "", d.root); len(places) > 0 && len(places) <= 3 {
		remedy = "it is a key of " + OrList(places) + "; check the indentation"
	} else if places := placesOf(key.Value+"File", "", d.root); len(places) > 0 {
		remedy = "write the value to another file, and name that file with " + key.Value + "File in " + OrList(places)
	}
	d.keyMistake(key, path, problem, remedy)
}

// secretFile returns the key that names a secret's file if key would contain the secret itself. It returns "" if there
// is no such key.
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

// nearest returns the known key that is most similar to key, or "" if no known key is similar.
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

// placesOf returns the paths of all structs that have the key.
func placesOf(key, path string, t reflect.Type) []string {
	var places []string
	if slices.Contains(keyNames(t), key) {
		places = append(places, cmp.Or(path, "the top level"))
	}
	for _, f := range Fields(t) {
		if child, inner := f.Section(path); inner != nil {
			places = append(places, placesOf(key, child, inner)...)
		}
	}
	return places
}

// Section returns the path and type of the struct that is the key's value. The argument is the path of the struct that
// contains the key. The returned type is nil if the value is not a struct, a pointer to a struct, or a list of structs.
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

// OrList formats a list of alternatives, as in "a, b or c".
func OrList(texts []string) string {
	if len(texts) < 2 {
		return strings.Join(texts, "")
	}
	return strings.Join(texts[:len(texts)-1], ", ") + " or " + texts[len(texts)-1]
}

// kindName returns the name of a node's kind for messages.
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

// tagName returns the name of a scalar's type for messages. The scalar is not a string.
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
