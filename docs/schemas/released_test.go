package schemas

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "store the schemas as those of the last release")

const released = "testdata/released"

// Each schema of the last release is still there, and has changed only in ways that its consumers can ignore.
func TestCompatibleWithTheLastRelease(t *testing.T) {
	old, err := filepath.Glob(released + "/*/*.json")
	if err != nil || len(old) < 7 {
		t.Fatalf("%d schemas of the last release, %v", len(old), err)
	}
	for _, path := range old {
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(path, released+"/")
		after, err := files.ReadFile(name)
		if err != nil {
			t.Errorf("events of the last release name a schema that is missing: %v", err)
			continue
		}
		for _, change := range incompatible(t, before, after) {
			t.Errorf("%s: %s; a schema of a new version and new values of type are required", name, change)
		}
	}
	if before, err := os.ReadFile(filepath.Join(released, dir, "event.avsc")); err == nil {
		for _, change := range incompatibleAvro(t, string(before), Avro()) {
			t.Errorf("event.avsc: %s; a schema of a new version is required", change)
		}
	} else if !errors.Is(err, fs.ErrNotExist) { // The last release had none.
		t.Error(err)
	}
	if *update && !t.Failed() {
		if err := errors.Join(os.RemoveAll(released), os.CopyFS(released, files)); err != nil {
			t.Fatal(err)
		}
	}
}

// The check finds each kind of incompatible change, and accepts what docs/compatibility.md allows.
func TestIncompatibleChanges(t *testing.T) {
	const before = `{
		"description": "d", "type": "object", "required": ["a", "type"], "dependentRequired": {"a": ["b"]},
		"properties": {
			"a": {"type": "string", "pattern": "^[0-9]*$"},
			"b": {"type": ["array", "null"], "items": {"$ref": "#/$defs/x"}},
			"type": {"enum": ["one", "two"]},
			"op": {"enum": ["c", "u"]},
			"data": {"anyOf": [{"$ref": "#/$defs/x"}]},
			"old": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/x"}]}
		},
		"allOf": [{"if": {"properties": {"type": {"enum": ["one"]}}}, "then": {"properties": {"a": false}}}],
		"$defs": {"x": {
			"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "additionalProperties": false
		}}
	}`
	ifType := func(value string) string {
		return `"allOf": [{"if": {"properties": {"type": {"enum": ["` + value + `"]}}}, "then": {"properties": {"a": false}}}, `
	}
	for _, c := range []struct{ from, to, want string }{
		{`"description": "d"`, `"description": "other", "title": "t"`, ""},
		{`"a": {"type": "string",`, `"later": {"type": "string"}, "a": {"type": "string",`, ""},
		{`["one", "two"]`, `["one", "three", "two"]`, ""},
		{`{"enum": ["one"]}`, `{"enum": ["one", "three"]}`, ""},
		{`[{"$ref": "#/$defs/x"}]}`, `[{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/new"}]}`, ""},
		{`"$defs": {`, `"$defs": {"new": {"type": "object"}, `, ""},
		{`"allOf": [`, ifType("three"), ""},

		{`"a": {"type": "string", "pattern": "^[0-9]*$"},`, ``, "/properties/a: removed"},
		{`"a": {"type": "string"`, `"a": {"type": "integer"`, "/properties/a/type: changed"},
		{`"pattern": "^[0-9]*$"`, `"pattern": "^[0-9]+$"`, "/properties/a/pattern: changed"},
		{`, "pattern": "^[0-9]*$"`, ``, "/properties/a/pattern: removed"},
		{`"pattern": "^[0-9]*$"`, `"pattern": "^[0-9]*$", "minLength": 1`, "/properties/a/minLength: added"},
		{`["a", "type"]`, `["a", "b", "type"]`, "/required: changed"},
		{`["a", "type"]`, `["type"]`, "/required: changed"},
		{`"required": ["a", "type"],`, ``, "/required: removed"},
		{`{"a": ["b"]}`, `{"a": ["b", "op"]}`, "/dependentRequired/a: changed"},
		{`["array", "null"]`, `["array"]`, "/properties/b/type: changed"},
		{`["array", "null"]`, `["array", "null", "string"]`, "/properties/b/type: changed"},
		{`["one", "two"]`, `["one"]`, "/properties/type/enum: changed"},
		{`["c", "u"]`, `["c", "u", "d"]`, "/properties/op/enum: changed"},
		{`{"enum": ["c", "u"]}`, `false`, "/properties/op: changed"},
		{`[{"type": "null"}`, `[{"type": "null"}, {"$ref": "#/$defs/new"}`, "/properties/old/anyOf: changed"},
		{`"#/$defs/x"}]}`, `"#/$defs/x"}, {"type": "null"}]}`, "/properties/data/anyOf: changed"},
		{`{"a": false}`, `{"a": false, "b": false}`, "/allOf/0/then/properties/b: added"},
		{`"allOf": [`, `"allOf": [{"required": ["b"]}, `, "/allOf: changed"},
		{`"allOf": [`, ifType("two"), "/allOf: changed"},
		{`"n": {`, `"m": {"type": "string"}, "n": {`, "/$defs/x/properties/m: added"},
		{`"minimum": 1`, `"minimum": 2`, "/$defs/x/properties/n/minimum: changed"},
		{`"properties": {"n"`, `"oneOf": [], "properties": {"n"`, "/$defs/x/oneOf: added"},
		{`"$defs": {"x"`, `"additionalProperties": false, "$defs": {"x"`, "/additionalProperties: added"},
	} {
		after := strings.Replace(before, c.from, c.to, 1)
		if after == before {
			t.Fatalf("%s does not occur", c.from)
		}
		if got := strings.Join(incompatible(t, []byte(before), []byte(after)), "; "); got != c.want {
			t.Errorf("%s instead of %s: %q, want %q", c.to, c.from, got, c.want)
		}
	}
}

// incompatibleAvro returns the changes from one Avro schema to another after which records cannot be read with both
// schemas.
func incompatibleAvro(t *testing.T, before, after string) (changes []string) {
	t.Helper()
	type record struct {
		Type, Name, Namespace string
		Fields                []map[string]any
	}
	var old, present record
	for text, schema := range map[*string]*record{&before: &old, &after: &present} {
		if err := json.Unmarshal([]byte(*text), schema); err != nil {
			t.Fatal(err)
		}
		for _, f := range schema.Fields {
			delete(f, "doc")
		}
	}
	if old.Type != present.Type || old.Name != present.Name || old.Namespace != present.Namespace {
		changes = append(changes, "the name has changed")
	}
	for n, f := range old.Fields {
		if n >= len(present.Fields) || !reflect.DeepEqual(f, present.Fields[n]) {
			return append(changes, fmt.Sprintf("field %v has changed", f["name"]))
		}
	}
	for _, f := range present.Fields[len(old.Fields):] {
		if _, has := f["default"]; !has {
			changes = append(changes, fmt.Sprintf("field %v has no default", f["name"]))
		}
	}
	return changes
}

// Fields may only be appended, with a default.
func TestIncompatibleAvro(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{`"doc": "The data as JSON.`, `"doc": "JSON.`, ""},
		{`"type": "string", "doc"`, `"type": "bytes", "doc"`, "field data has changed"},
		{`"name": "uid"`, `"name": "u"`, "field uid has changed"},
		{`    {"name": "uid", "type": ["null", "string"], "default": null},` + "\n", "", "field uid has changed"},
		{"\n  ]", `, {"name": "x", "type": ["null", "string"], "default": null}]`, ""},
		{"\n  ]", `, {"name": "x", "type": "string"}]`, "field x has no default"},
		{`"name": "Event"`, `"name": "Change"`, "the name has changed"},
	} {
		after := strings.Replace(Avro(), c.from, c.to, 1)
		if after == Avro() {
			t.Fatalf("%s does not occur", c.from)
		}
		if got := strings.Join(incompatibleAvro(t, Avro(), after), "; "); got != c.want {
			t.Errorf("%s instead of %s: %q, want %q", c.to, c.from, got, c.want)
		}
	}
}

// incompatible returns the changes from one schema to another that consumers cannot ignore.
func incompatible(t *testing.T, before, after []byte) []string {
	t.Helper()
	var old, present map[string]any
	for text, schema := range map[*[]byte]*map[string]any{&before: &old, &after: &present} {
		if err := json.Unmarshal(*text, schema); err != nil {
			t.Fatal(err)
		}
	}
	c := comparison{types: typeValues(old)}
	c.objects(nil, old, present)
	slices.Sort(c.found)
	return c.found
}

// typeValues returns the known values of the attribute type.
func typeValues(schema map[string]any) []any {
	properties, _ := schema["properties"].(map[string]any)
	member, _ := properties["type"].(map[string]any)
	values, _ := member["enum"].([]any)
	return values
}

// comparison collects the incompatible changes of a schema. Two schemas must be equal, except for what may be added.
type comparison struct {
	types []any
	found []string
}

func (c *comparison) report(path []string, what string) {
	c.found = append(c.found, "/"+strings.Join(path, "/")+": "+what)
}

func (c *comparison) objects(path []string, old, present map[string]any) {
	for key, value := range old {
		at := append(slices.Clone(path), key)
		later, ok := present[key]
		switch {
		case isAnnotation(path, key):
		case !ok:
			c.report(at, "removed")
		default:
			c.values(at, value, later)
		}
		if key == "properties" && old["additionalProperties"] == false {
			before, _ := value.(map[string]any)
			after, _ := later.(map[string]any)
			for name := range after {
				if _, ok := before[name]; !ok {
					c.report(append(at, name), "added")
				}
			}
		}
	}
	for key := range present {
		if _, ok := old[key]; !ok && !isAnnotation(path, key) && !mayGrow(path) {
			c.report(append(slices.Clone(path), key), "added")
		}
	}
}

func (c *comparison) values(path []string, old, present any) {
	switch before := old.(type) {
	case map[string]any:
		if after, ok := present.(map[string]any); ok {
			c.objects(path, before, after)
			return
		}
	case []any:
		if after, ok := present.([]any); ok {
			c.lists(path, before, after)
			return
		}
	}
	if !reflect.DeepEqual(old, present) {
		c.report(path, "changed")
	}
}

// lists compares the elements that are not additional ones, in their order.
func (c *comparison) lists(path []string, old, present []any) {
	rest := present
	if len(present) > len(old) {
		rest = slices.DeleteFunc(slices.Clone(present), func(element any) bool {
			known := slices.ContainsFunc(old, func(e any) bool { return reflect.DeepEqual(e, element) })
			return !known && c.mayBeAdded(path, element)
		})
	}
	if len(rest) != len(old) {
		c.report(path, "changed")
		return
	}
	for i := range old {
		if _, isSchema := old[i].(map[string]any); isSchema {
			c.values(append(slices.Clone(path), fmt.Sprint(i)), old[i], rest[i])
		} else if !reflect.DeepEqual(old[i], rest[i]) {
			c.report(path, "changed")
			return
		}
	}
}

// mayBeAdded reports whether a list of a schema may have an element that it did not have: a type, an operation or a
// reason; the data of a further payload; and what is required only of further types.
func (c *comparison) mayBeAdded(path []string, element any) bool {
	keyword, member := path[len(path)-1], ""
	if len(path) > 1 {
		member = path[len(path)-2]
	}
	schema, _ := element.(map[string]any)
	switch keyword {
	case "enum":
		return slices.Contains([]string{"type", "operation", "reason"}, member)
	case "anyOf":
		return member == "data" && len(schema) == 1 && schema["$ref"] != nil
	case "allOf":
		condition, _ := schema["if"].(map[string]any)
		values := typeValues(condition)
		return slices.Equal(slices.Sorted(maps.Keys(schema)), []string{"if", "then"}) && len(values) > 0 &&
			!slices.ContainsFunc(values, func(value any) bool { return slices.Contains(c.types, value) })
	}
	return false
}

// mayGrow reports whether the object at a path contains schemas by name, all of which consumers can ignore: definitions
// and members, except those that a condition restricts.
func mayGrow(path []string) bool {
	if len(path) == 0 || !slices.Contains([]string{"properties", "$defs"}, path[len(path)-1]) {
		return false
	}
	return !slices.ContainsFunc(path, func(key string) bool {
		return slices.Contains([]string{"if", "then", "else", "allOf", "anyOf", "oneOf"}, key)
	})
}

// isAnnotation reports whether a keyword only describes. In an object of names, a key is not a keyword.
func isAnnotation(path []string, key string) bool {
	if len(path) > 0 && slices.Contains([]string{"properties", "$defs"}, path[len(path)-1]) {
		return false
	}
	return key == "title" || key == "description"
}
