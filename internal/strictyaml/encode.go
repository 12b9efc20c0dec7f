package strictyaml

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Encode returns YAML that Decode decodes to a struct with the same values as v, a struct. It contains the defaults,
// except those for which omit returns true; path is that of the value, as in sinks[0].nats.url. It does not contain
// keys without a value: nil pointers, empty lists, and empty strings without a default. Relative paths of files become
// absolute.
func Encode(v any, omit func(path string) bool) ([]byte, error) {
	e := encoder{omit}
	return yaml.Dump(e.object("", reflect.ValueOf(v)), yaml.WithIndent(2))
}

type encoder struct {
	omit func(path string) bool
}

// object encodes a struct.
func (e *encoder) object(path string, v reflect.Value) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	defaults := reflect.New(v.Type()).Elem()
	SetDefaults(defaults)
	for _, f := range Fields(v.Type()) {
		field, at := v.FieldByIndex(f.Index), join(path, f.Name)
		_, hasDefault := f.Tag.Lookup("default")
		isDefault := reflect.DeepEqual(field.Interface(), defaults.FieldByIndex(f.Index).Interface())
		if isDefault && e.omit(at) || !hasDefault && isEmpty(field) {
			continue
		}
		value := e.value(at, field, f.Tag)
		if field.Kind() != reflect.Struct || len(value.Content) > 0 {
			node.Content = append(node.Content, text(f.Name), value)
		}
	}
	return node
}

func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String, reflect.Slice, reflect.Map:
		return v.Len() == 0
	default:
		return v.Kind() == reflect.Pointer && v.IsNil()
	}
}

// value encodes the value of a key whose tag is given.
func (e *encoder) value(path string, v reflect.Value, tag reflect.StructTag) *yaml.Node {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch typeName(v.Type(), tag) {
	case "duration":
		return text(formatDuration(time.Duration(v.Int())))
	case "size":
		return scalar("", resource.NewQuantity(v.Int(), resource.BinarySI).String())
	case "integer":
		return scalar("!!int", strconv.FormatInt(v.Int(), 10))
	case "boolean":
		return scalar("!!bool", strconv.FormatBool(v.Bool()))
	case "path":
		return text(escape(absolute(v.String())))
	}
	switch v.Kind() {
	case reflect.Struct:
		return e.object(path, v)
	case reflect.Map:
		return stringMapNode(v.Interface().(map[string]string))
	case reflect.Slice:
		if tag.Get("format") == "commas" {
			return text(escape(strings.Join(v.Interface().([]string), ", ")))
		}
		node := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for i := range v.Len() {
			node.Content = append(node.Content, e.value(fmt.Sprintf("%s[%d]", path, i), v.Index(i), tag))
		}
		return node
	default:
		return text(escape(v.String()))
	}
}

func stringMapNode(values map[string]string) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		node.Content = append(node.Content, text(key), text(escape(values[key])))
	}
	return node
}

func scalar(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

func text(value string) *yaml.Node {
	node := &yaml.Node{}
	node.SetString(value)
	return node
}

// absolute returns the absolute path of a file. It returns path if it is empty or the working directory is unknown.
func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil && path != "" {
		return full
	}
	return path
}

// formatDuration formats a duration without units that are 0, as in 1h30m.
func formatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
