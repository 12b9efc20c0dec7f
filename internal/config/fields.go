package config

import (
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// field is a key of a struct.
type field struct {
	name  string
	index []int // for reflect.Value.FieldByIndex
	typ   reflect.Type
	tag   reflect.StructTag
}

// fieldsOf gives the keys of a struct in their order, those of inlined structs among them.
func fieldsOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("yaml")
		if name == ",inline" {
			for _, inner := range fieldsOf(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				fields = append(fields, inner)
			}
			continue
		}
		fields = append(fields, field{name, []int{i}, f.Type, f.Tag})
	}
	return fields
}

// keyNames are the keys that can be given.
func keyNames(t reflect.Type) []string {
	var names []string
	for _, f := range fieldsOf(t) {
		if f.tag.Get("later") != "true" {
			names = append(names, f.name)
		}
	}
	return names
}

// setDefaults sets what the tags of a struct say, in the structs inside it too.
func (d *decoder) setDefaults(v reflect.Value) {
	for _, f := range fieldsOf(v.Type()) {
		if f.typ.Kind() == reflect.Struct && f.tag.Get("later") != "true" {
			d.setDefaults(v.FieldByIndex(f.index))
			continue
		}
		text, ok := f.tag.Lookup("default")
		if !ok {
			continue
		}
		// A default is decoded as if it stood in the file, with a decoder of its own that forgets where.
		if err := decodeText(text, v.FieldByIndex(f.index), f.tag); err != nil {
			panic("config: default of " + f.name + ": " + err.Error()) // a mistake in this package, which a test finds
		}
	}
}

// decodeText decodes one value that is written as YAML.
func decodeText(text string, v reflect.Value, tag reflect.StructTag) error {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		return err
	}
	d := newDecoder("", nil)
	d.value("", document.Content[0], v, tag)
	return sorted(d.mistakes)
}

// defaulted is a T with its defaults.
func defaulted[T any]() T {
	var v T
	newDecoder("", nil).setDefaults(reflect.ValueOf(&v).Elem())
	return v
}

// unknownKey reports a key that does not exist, with what may have been meant.
func (d *decoder) unknownKey(path string, key *yaml.Node, t reflect.Type) {
	d.confused[path] = true
	known := keyNames(t)
	if file := secretFile(key.Value, known); file != "" {
		d.confused[join(path, file)] = true
		d.keyMistake(key, path, "there is no key "+quoteKey(key)+": secrets and certificates do not stand in this file", "write it into a file of its own, and name that with "+file)
		return
	}
	remedy := "there are " + strings.Join(known, ", ")
	if len(known) == 0 {
		remedy = "there is nothing to set: write {}"
	}
	if near := nearest(key.Value, known); near != "" {
		d.confused[join(path, near)] = true
		remedy = "did you mean " + near + "?"
	} else if places := placesOf(key.Value, "", reflect.TypeFor[Config]()); len(places) > 0 && len(places) <= 3 {
		remedy = "it belongs into " + orList(places) + "; is the indentation right?"
	} else if places := placesOf(key.Value+"File", "", reflect.TypeFor[Config]()); len(places) > 0 {
		remedy = "write it into a file of its own, and name that with " + key.Value + "File in " + orList(places)
	}
	d.keyMistake(key, path, "there is no key "+quoteKey(key), remedy)
}

func quoteKey(key *yaml.Node) string { return `"` + strings.Trim(joinAny("", key.Value), `["]`) + `"` }

// secretFile is the key that names a file, for one that would hold the secret itself.
func secretFile(key string, known []string) string {
	lower := strings.ToLower(key)
	for _, synonym := range []string{"pass", "passwd", "pwd", "secret"} {
		if lower == synonym {
			lower = "password"
		}
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
	for _, name := range known {
		a, b := strings.ToLower(key), strings.ToLower(name)
		n := distance(a, b)
		if len(a) >= 3 && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a)) {
			n = min(n, 2)
		}
		if n < least && n <= len(b)/2 {
			best, least = name, n
		}
	}
	return best
}

// distance is the optimal string alignment distance: insertions, deletions, replacements and exchanges of neighbours
// that make b of a. Texts longer than any key are far away.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := range len(a) {
		before, last, row := rows[i%3], rows[(i+1)%3], rows[(i+2)%3]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return rows[(len(a)+1)%3][len(b)]
}

// placesOf gives the paths of all structs that have the key.
func placesOf(key, path string, t reflect.Type) []string {
	var places []string
	if slices.Contains(keyNames(t), key) {
		places = append(places, path)
		if path == "" {
			places[0] = "the top level"
		}
	}
	for _, f := range fieldsOf(t) {
		inner, child := f.typ, join(path, f.name)
		if inner.Kind() == reflect.Slice {
			inner, child = inner.Elem(), child+"[]"
		}
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && f.tag.Get("later") != "true" {
			places = append(places, placesOf(key, child, inner)...)
		}
	}
	return places
}

func orList(texts []string) string {
	if len(texts) < 2 {
		return strings.Join(texts, "")
	}
	return strings.Join(texts[:len(texts)-1], ", ") + " or " + texts[len(texts)-1]
}

// kindName says what stands in the file.
func kindName(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	default:
		return "a single value"
	}
}

// typeName says what is wanted there.
func typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Duration]():
		return "a duration"
	case reflect.TypeFor[Size]():
		return "a size"
	case reflect.TypeFor[File]():
		return "a path"
	}
	switch t.Kind() {
	case reflect.Int:
		return "a whole number"
	case reflect.Bool:
		return "a boolean"
	default:
		return "a text"
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
		return "no text"
	}
}
