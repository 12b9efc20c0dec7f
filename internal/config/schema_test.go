package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
)

// schemaNode is a schema, with the keywords that are used here.
type schemaNode struct {
	Schema               string         `json:"$schema,omitempty"`
	Title                string         `json:"title,omitempty"`
	Description          string         `json:"description,omitempty"`
	Type                 any            `json:"type,omitempty"`
	Enum                 []string       `json:"enum,omitempty"`
	Pattern              string         `json:"pattern,omitempty"`
	Minimum              *int64         `json:"minimum,omitempty"`
	Maximum              *int64         `json:"maximum,omitempty"`
	MinItems             int            `json:"minItems,omitempty"`
	Items                *schemaNode    `json:"items,omitempty"`
	Default              any            `json:"default,omitempty"`
	Examples             []any          `json:"examples,omitempty"`
	Required             []string       `json:"required,omitempty"`
	OneOf                []*schemaNode  `json:"oneOf,omitempty"`
	AnyOf                []*schemaNode  `json:"anyOf,omitempty"`
	Properties           propertySchema `json:"properties,omitempty"`
	AdditionalProperties any            `json:"additionalProperties,omitempty"`
}

// propertySchema is the schemas of keys, in the order of the struct.
type propertySchema []namedSchema

type namedSchema struct {
	name string
	node *schemaNode
}

func (p propertySchema) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("{")
	for i, property := range p {
		if i > 0 {
			out.WriteString(",")
		}
		data, err := json.Marshal(property.node)
		if err != nil {
			return nil, err
		}
		out.WriteString(strconv.Quote(property.name) + ":")
		out.Write(data)
	}
	out.WriteString("}")
	return out.Bytes(), nil
}

// schema.json says of each key what its struct field says.
func TestSchemaFile(t *testing.T) {
	g := &schemaGenerator{t, readComments(t)}
	root := g.object(reflect.TypeFor[Config]())
	root.Schema, root.Title = "http://json-schema.org/draft-07/schema#", "The configuration of Deltabridge"
	data, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	// Readable in an editor and in a diff.
	data = append(unescapeHTML(data), '\n')
	if *update {
		if err := os.WriteFile("schema.json", data, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(data), Schema()); diff != "" {
		t.Errorf("schema.json is not up to date: run go test ./internal/config -update (-want +got):\n%s", diff)
	}
}

func unescapeHTML(data []byte) []byte {
	return []byte(strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(data)))
}

// schemaGenerator makes schemas of types and their tags.
type schemaGenerator struct {
	t        *testing.T
	comments map[string]string
}

func (g *schemaGenerator) object(typ reflect.Type) *schemaNode {
	node := &schemaNode{Type: "object", AdditionalProperties: false}
	for _, f := range strictyaml.Fields(typ) {
		child := g.field(f)
		child.Description = keyComment(g.comments, typ, f)
		node.Properties = append(node.Properties, namedSchema{f.Name, child})
		if f.Tag.Get("required") == "true" {
			node.Required = append(node.Required, f.Name)
		}
		if f.Tag.Get("oneOf") == "true" {
			node.OneOf = append(node.OneOf, &schemaNode{Required: []string{f.Name}})
		}
	}
	return node
}

func (g *schemaGenerator) field(f strictyaml.Field) *schemaNode {
	node := g.value(f.Type, f.Tag)
	if text, ok := f.Tag.Lookup("default"); ok {
		node.Default = g.yaml(text)
	}
	if text, ok := f.Tag.Lookup("example"); ok {
		node.Examples = []any{g.yaml(text)}
	}
	return node
}

// yaml is what text means as YAML.
func (g *schemaGenerator) yaml(text string) any {
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		g.t.Fatal(err)
	}
	return v
}

const (
	durationPattern = `^\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	sizePattern     = `^\+?[0-9]{1,20}(\.[0-9]{1,20})?([KMGTPE]i|[kMGTPE]|[eE][0-9]{1,2})?$`
	// A string that contains an environment variable can have any value.
	variablePattern = `\$\{`
)

func (g *schemaGenerator) value(typ reflect.Type, tag reflect.StructTag) *schemaNode {
	if typ == reflect.TypeFor[time.Duration]() {
		// A number needs its unit, but for 0. None of the durations can be negative.
		return &schemaNode{
			Type:    []string{"string", "integer"},
			Pattern: durationPattern + "|" + variablePattern,
			Minimum: new(int64(0)),
			Maximum: new(int64(0)),
		}
	}
	switch typ.Kind() {
	case reflect.Pointer:
		return g.value(typ.Elem(), tag)
	case reflect.Struct:
		return g.object(typ)
	case reflect.Int64:
		return &schemaNode{
			Type:    []string{"string", "integer"},
			Pattern: sizePattern + "|" + variablePattern,
			Minimum: bound(g, tag, "min"),
			Maximum: bound(g, tag, "max"),
		}
	case reflect.Slice:
		if tag.Get("format") == "commas" {
			return &schemaNode{Type: "string"}
		}
		node := &schemaNode{Type: "array", Items: g.value(typ.Elem(), tag)}
		setEnum(node.Items, strings.Fields(tag.Get("entries")))
		node.MinItems, _ = strconv.Atoi(tag.Get("minItems")) // not given: 0
		return node
	case reflect.Map: // values are taken as they are written
		return &schemaNode{Type: "object", AdditionalProperties: &schemaNode{Type: []string{"string", "number", "boolean"}}}
	case reflect.Int:
		return &schemaNode{
			Type: []string{"integer", "string"}, Pattern: variablePattern,
			Minimum: bound(g, tag, "min"), Maximum: bound(g, tag, "max"),
		}
	case reflect.Bool:
		return &schemaNode{Type: []string{"boolean", "string"}, Pattern: variablePattern}
	}
	node := &schemaNode{Type: "string", Pattern: tag.Get("pattern")}
	if node.Pattern != "" {
		node.Pattern += "|" + variablePattern
	}
	words := strings.Fields(tag.Get("enum"))
	if _, hasDefault := tag.Lookup("default"); len(words) > 0 && !hasDefault {
		words = append(words, "") // not given
	}
	setEnum(node, words)
	return node
}

// setEnum makes a schema accept only some words, if there are any.
func setEnum(node *schemaNode, words []string) {
	if len(words) > 0 {
		node.AnyOf = []*schemaNode{{Enum: words}, {Pattern: variablePattern}}
	}
}

func bound(g *schemaGenerator, tag reflect.StructTag, name string) *int64 {
	text, ok := tag.Lookup(name)
	if !ok {
		return nil
	}
	n, err := strictyaml.ParseSize(text)
	if err != nil {
		g.t.Fatal(err)
	}
	return &n
}

// compiledSchema is what `bridge schema` prints, ready to validate.
func compiledSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// validate gives the paths, as Parse names them, of what the schema refuses in a file. Helm and editors read YAML into
// the same values.
func validate(t testing.TB, schema *jsonschema.Schema, data []byte) map[string]string {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	refused := map[string]string{}
	if err, ok := errors.AsType[*jsonschema.ValidationError](schema.Validate(document)); ok {
		collectRefused(err, refused)
	}
	return refused
}

func collectRefused(err *jsonschema.ValidationError, refused map[string]string) {
	if len(err.Causes) == 0 {
		path := ""
		for _, step := range err.InstanceLocation {
			if _, notIndex := strconv.Atoi(step); notIndex == nil {
				path += "[" + step + "]"
				continue
			}
			path = strings.TrimPrefix(path+"."+step, ".")
		}
		refused[path] = err.Error()
	}
	for _, cause := range err.Causes {
		collectRefused(cause, refused)
	}
}

func TestSchemaTakesWhatHolds(t *testing.T) {
	schema := compiledSchema(t)
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("examples %v: %v", files, err)
	}
	for _, file := range append(files, "testdata/full.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if refused := validate(t, schema, data); len(refused) > 0 {
			t.Errorf("%s: %v", file, refused)
		}
	}
	for _, text := range []string{
		"{}", "shutdownTimeout: 0", "shutdownTimeout: 1h30m", "shutdownTimeout: .5s", "cluster: a_b.C-d",
		"sinks: [{name: a, stdout: {}, buffer: {bytes: 65536}}]", "sinks: [{name: a, stdout: {}, buffer: {bytes: 0.5Gi}}]",
		"sinks: [{name: a, stdout: {}, buffer: {bytes: 1e6}}]", "sinks: [{name: a, kafka: {brokers: ['[::1]:9092'], sasl: {mechanism: ''}}}]",
		"watch: [{resources: ['*'], namespaces: ['']}]", "watch: [{resources: [pods.v1, '*.v1', 'p[a-z]*.*.example.com']}]",
		"sinks: [{name: a, nats: {url: '', embedded: {}, stream: {create: true}}}]",
		`{cluster: "${X:-a}", shutdownTimeout: "${X:-1s}", log: {level: "${X:-info}"}, http: {listen: "${X:-:1}"},
		sinks: [{name: "${X:-a}", nats: {url: "${X:-nats://a}", maxInFlight: "${X:-1}", stream: {create: "${X:-true}"}},
		filters: [{operations: ["${X:-added}"]}], buffer: {bytes: "${X:-1}Gi"}}]}`,
	} {
		if _, err := Parse("f", []byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if refused := validate(t, schema, []byte(text)); len(refused) > 0 {
			t.Errorf("%s: %v", text, refused)
		}
	}
}

// Each mistake of a type, a range, a set of values, an unknown or a missing key is one for the schema too.
func TestSchemaRefusesMistakes(t *testing.T) {
	schema := compiledSchema(t)
	// What only the validation of Parse can tell, by a word of the message.
	beyond := []string{
		"1e3 is not a valid integer",
		"1Ki is too small",
		"1ms is too small", // a number is one however it is written, a text is none
		"no such file", "is not a regular file",
		"has no server",
		"starts without a stream",
		"is also the name of",
	}
	for _, name := range []string{"wrong-types", "unknown-keys", "ranges", "missing", "names", "empty-lists", "secrets", "list", "text"} {
		data, err := os.ReadFile("testdata/" + name + ".bad.yaml")
		if err != nil {
			t.Fatal(err)
		}
		_, err = Parse("f", data)
		mistakes := mistakesOf(t, err)
		for _, m := range mistakes { // the keys of maps, as the schema's paths have them
			m.Path = strings.NewReplacer(`["`, ".", `"]`, "").Replace(m.Path)
		}
		refused := validate(t, schema, data)
		for _, m := range mistakes {
			if slices.ContainsFunc(beyond, func(word string) bool { return strings.Contains(m.Problem, word) }) {
				continue
			}
			if !refuses(refused, m.Path) {
				t.Errorf("%s: the schema takes %v", name, m)
			}
		}
		// And what the schema refuses is a mistake to Parse.
		for path, why := range refused {
			if !slices.ContainsFunc(
				mistakes,
				func(m *strictyaml.Mistake) bool { return m.Path == path || parent(m.Path) == path },
			) {
				t.Errorf("%s: only the schema refuses %q: %s", name, path, why)
			}
		}
		if t.Failed() {
			t.Logf("%s: the schema refuses %v", name, slices.Sorted(maps.Keys(refused)))
		}
	}
}

// refuses reports whether the value of a path is refused, or the struct that has or lacks it.
func refuses(refused map[string]string, path string) bool {
	return refused[path] != "" || refused[parent(path)] != ""
}

func parent(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }
