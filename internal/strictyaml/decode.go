package strictyaml

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// decoder walks a tree of YAML nodes and a struct type in parallel. It continues after a mistake, and records the node
// of each path for later checks.
type decoder struct {
	file       string                // the file name in messages; relative file paths are relative to its directory
	nodes      map[string]*yaml.Node // maps each path to the node of its value; "" is the document
	tags       map[string]reflect.StructTag
	broken     map[string]bool // the paths that already have a mistake; a second mistake is not reported
	mistakes   []*Mistake
	unreadable bool       // reports whether the text is not valid YAML
	offline    bool       // see DecodeOffline
	missing    []*Mistake // the files that do not exist, if offline is set
	variables  []Variable // the references to environment variables
	warnings   []*Mistake // see Section.Warn
}

func newDecoder(file string) *decoder {
	return &decoder{
		file: file, nodes: map[string]*yaml.Node{}, tags: map[string]reflect.StructTag{}, broken: map[string]bool{},
	}
}

// Decode decodes data, the content of the file with this name, into a struct with defaults. The returned section
// represents the whole file. It contains the mistakes, and later checks add further mistakes to it.
func Decode[T any](name string, data []byte) (*T, *Section) { return decode[T](newDecoder(name), data) }

// DecodeOffline is like Decode, but the files that data refers to need not exist. [Section.MissingFiles] returns the
// files that do not exist.
func DecodeOffline[T any](name string, data []byte) (*T, *Section) {
	d := newDecoder(name)
	d.offline = true
	return decode[T](d, data)
}

func decode[T any](d *decoder, data []byte) (*T, *Section) {
	target := Default[T]()
	var documents []yaml.Node
	err := yaml.Load(data, &documents, yaml.WithAllDocuments())
	switch {
	case err != nil:
		d.unreadable = true
		d.syntaxError(data, err)
	case len(documents) > 1:
		d.add(documents[1].Line, documents[1].Column, "", "the file contains a second document",
			"keep one, and remove the --- lines")
	}
	// A file that contains only comments has no document. A file that contains only --- has a document that is null.
	if err == nil && len(documents) > 0 && documents[0].Content[0].Tag != "!!null" {
		d.value("", documents[0].Content[0], reflect.ValueOf(&target).Elem(), "")
	}
	return &target, &Section{d: d}
}

// report adds a mistake at the value of a path, unless the value already has a mistake. If the file does not contain
// the path, the mistake is reported at the nearest object that contains the path. If remedy is empty, the remedy is the
// example of the key.
func (d *decoder) report(path, problem, remedy string) {
	if path != "" && d.broken[path] {
		return
	}
	d.broken[path] = true
	if remedy == "" {
		key, _, _ := strings.Cut(path[strings.LastIndexByte(path, '.')+1:], "[")
		remedy = "example: " + key + ": " + d.tags[path].Get("example")
	}
	d.mistakes = append(d.mistakes, d.mistake(path, problem, remedy))
}

// mistake returns a mistake at the value of a path, or at the nearest object that contains the path.
func (d *decoder) mistake(path, problem, remedy string) *Mistake {
	at := path
	for d.nodes[at] == nil && at != "" {
		at = at[:max(0, strings.LastIndexAny(at, ".["))]
	}
	line, column := 1, 1
	if n := d.nodes[at]; n != nil {
		line, column = n.Line, n.Column
	}
	return &Mistake{d.file, line, column, path, problem, remedy}
}

func (d *decoder) add(line, column int, path, problem, remedy string) {
	d.mistakes = append(d.mistakes, &Mistake{d.file, line, column, path, problem, remedy})
}

func join(path, key string) string {
	if path == "" || key == "" || strings.HasPrefix(key, "[") {
		return path + key
	}
	return path + "." + key
}

// value decodes a node into v. The tag contains the rules for v.
func (d *decoder) value(path string, node *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	d.nodes[path], d.tags[path] = node, tag
	if !d.isPlain(path, node) {
		return
	}
	if v.Type() == reflect.TypeFor[*yaml.Node]() {
		if d.hasPlainParts(path, node) {
			v.Set(reflect.ValueOf(node))
		}
		return
	}
	if node = d.expand(path, node, v.Kind()); node == nil {
		return
	}
	d.nodes[path] = node
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if v.Kind() == reflect.Struct {
		SetDefaults(v)
	}
	switch kind := v.Kind(); {
	case kind == reflect.Struct && node.Kind == yaml.MappingNode:
		d.object(path, node, v)
	case kind == reflect.Map && node.Kind == yaml.MappingNode && v.Type().Elem().Kind() == reflect.String:
		d.stringMap(path, node, v)
	case kind == reflect.Map && node.Kind == yaml.MappingNode:
		d.valueMap(path, node, v, tag)
	case kind == reflect.Slice && node.Kind == yaml.SequenceNode && tag.Get("format") != "commas":
		d.list(path, node, v, tag)
	default:
		if node.Kind != yaml.ScalarNode || !d.scalar(path, node, v, tag) {
			d.wrongType(path, node, v.Type(), tag)
			return
		}
		d.checkTags(path, v, tag)
	}
}

// list decodes a list. An invalid entry keeps its position, so the indexes of the other entries stay correct.
func (d *decoder) list(path string, node *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	if len(node.Content) == 0 && tag.Get("minItems") != "" {
		d.report(path, "is empty", "add an entry, or remove the key")
	}
	v.Set(reflect.MakeSlice(v.Type(), len(node.Content), len(node.Content)))
	for i, entry := range node.Content {
		d.value(fmt.Sprintf("%s[%d]", path, i), entry, v.Index(i), tag)
	}
}

// wrongType reports a value that cannot be decoded into the type.
func (d *decoder) wrongType(path string, node *yaml.Node, t reflect.Type, tag reflect.StructTag) {
	found := shorten(node.Value)
	switch {
	case node.Kind == yaml.MappingNode:
		found = "an object"
	case node.Kind == yaml.SequenceNode:
		found = "a list"
	case node.Tag == "!!str":
		found = Quote(node.Value)
	}
	required, remedy := typeName(t, tag), ""
	switch {
	case t.Kind() == reflect.Struct:
		remedy = "the keys are " + strings.Join(keyNames(t), ", ")
	case required == "list" && tag.Get("example") == "":
		remedy = "begin each entry with \"- \""
	case t.Kind() == reflect.String && node.Kind == yaml.ScalarNode:
		remedy = "quote it: " + Quote(node.Value)
	}
	d.report(path, found+" is not a valid "+required, remedy)
}

// isPlain reports whether the node uses only allowed YAML features. It reports a mistake otherwise.
func (d *decoder) isPlain(path string, node *yaml.Node) bool {
	switch {
	case node.Kind == yaml.AliasNode || node.Anchor != "" || node.Style&yaml.TaggedStyle != 0:
		d.report(path, "has an anchor, an alias or a tag, which are not allowed",
			"write the value itself, without &, * and !")
	case node.Tag == "!!null":
		d.report(path, "has no value", "add a value or remove the key, and check the indentation of the next line")
	default:
		return true
	}
	return false
}

// hasPlainParts is isPlain for a node whose parts have no types. A null that is a part is a value.
func (d *decoder) hasPlainParts(path string, node *yaml.Node) bool {
	if node.Kind == yaml.MappingNode && len(d.eachKey(path, node, func(_, _ *yaml.Node) {})) < len(node.Content)/2 {
		return false
	}
	for _, part := range node.Content {
		if part.Tag != "!!null" && !d.isPlain(path, part) || !d.hasPlainParts(path, part) {
			return false
		}
	}
	return true
}

// object decodes the members of an object into a struct.
func (d *decoder) object(path string, node *yaml.Node, v reflect.Value) {
	fields, meant := Fields(v.Type()), map[string]bool{} // meant has the keys that unknown keys are similar to
	seen := d.eachKey(path, node, func(key, value *yaml.Node) {
		n := slices.IndexFunc(fields, func(f Field) bool { return f.Name == key.Value })
		if n < 0 {
			meant[d.unknownKey(path, key, v.Type())] = true
			return
		}
		d.value(join(path, key.Value), value, v.FieldByIndex(fields[n].Index), fields[n].Tag)
	})
	for _, f := range fields {
		if f.Tag.Get("required") == "true" && d.nodes[join(path, f.Name)] == nil && seen[f.Name] == nil && !meant[f.Name] {
			d.report(join(path, f.Name), "is missing", "add "+f.Name+": "+f.Tag.Get("example"))
		}
	}
}

// eachKey calls do for each valid key and reports a mistake for each invalid key. It returns the valid keys.
func (d *decoder) eachKey(path string, node *yaml.Node, do func(key, value *yaml.Node)) (seen map[string]*yaml.Node) {
	seen = map[string]*yaml.Node{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode || key.Tag == "!!merge" || key.Anchor != "" || key.Style&yaml.TaggedStyle != 0:
			d.add(key.Line, key.Column, path, "has a key that is not a plain string",
				"write a word, without <<, brackets, & and !")
		case seen[key.Value] != nil:
			problem := fmt.Sprintf("key %s is given twice, first in line %d", Quote(key.Value), seen[key.Value].Line)
			d.add(key.Line, key.Column, path, problem, "keep one of them")
		default:
			seen[key.Value] = key
			do(key, value)
		}
	}
	return seen
}

// stringMap decodes an object with arbitrary keys. It converts numbers and booleans to strings.
func (d *decoder) stringMap(path string, node *yaml.Node, v reflect.Value) {
	texts := map[string]string{}
	d.eachKey(path, node, func(key, value *yaml.Node) {
		child := fmt.Sprintf("%s[%q]", path, shorten(key.Value))
		d.nodes[child] = value
		switch {
		case !d.isPlain(child, value):
		case value.Kind != yaml.ScalarNode:
			d.report(child, "is not a single value", "write name: value")
		default:
			if value = d.expand(child, value, reflect.String); value != nil {
				texts[key.Value] = value.Value
			}
		}
	})
	v.Set(reflect.ValueOf(texts))
}

// valueMap decodes an object with arbitrary keys, whose values are decoded like any value.
func (d *decoder) valueMap(path string, node *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	v.Set(reflect.MakeMap(v.Type()))
	d.eachKey(path, node, func(key, value *yaml.Node) {
		entry := reflect.New(v.Type().Elem()).Elem()
		d.value(fmt.Sprintf("%s[%q]", path, key.Value), value, entry, tag)
		v.SetMapIndex(reflect.ValueOf(key.Value), entry)
	})
}

// scalar decodes a single value. It returns false if the value has the wrong type.
func (d *decoder) scalar(path string, node *yaml.Node, v reflect.Value, tag reflect.StructTag) bool {
	text := node.Value
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		n, err := parseNumber(v.Type(), text)
		if err != nil || v.Kind() == reflect.Int && node.Tag != "!!int" {
			return false
		}
		v.SetInt(n)
	case reflect.Bool:
		if node.Tag != "!!bool" || text != "true" && text != "false" {
			return false
		}
		v.SetBool(text == "true")
	case reflect.String:
		if node.Tag != "!!str" {
			return false
		}
		if tag.Get("format") == "file" && text != "" {
			text = d.findFile(path, text)
		}
		v.SetString(text)
	case reflect.Slice:
		if tag.Get("format") != "commas" || node.Tag != "!!str" {
			return false
		}
		for entry := range strings.SplitSeq(text, ",") {
			if text != "" {
				v.Set(reflect.Append(v, reflect.ValueOf(strings.TrimSpace(entry))))
			}
		}
	default:
		return false
	}
	return true
}

// findFile returns the path of a file that the bridge reads, and reports a mistake if the file cannot be read.
func (d *decoder) findFile(path, file string) string {
	if !filepath.IsAbs(file) {
		file = filepath.Join(filepath.Dir(d.file), file)
	}
	err := checkFile(file)
	switch {
	case d.offline && errors.Is(err, fs.ErrNotExist):
		n := d.nodes[path]
		d.missing = append(
			d.missing,
			&Mistake{d.file, n.Line, n.Column, path, err.Error(), "`bridge run` requires this file"},
		)
	case err != nil:
		d.report(path, err.Error(), "set it to a file that the bridge can read")
	}
	return file
}

// checkTags checks a single value against its enum and limits.
func (d *decoder) checkTags(path string, v reflect.Value, tag reflect.StructTag) {
	switch v.Kind() {
	case reflect.String:
		_, hasDefault := tag.Lookup("default") // Without a default, an empty value is equivalent to a missing key.
		known := strings.Fields(tag.Get("enum"))
		if len(known) > 0 && !slices.Contains(known, v.String()) && (hasDefault || v.String() != "") {
			d.report(path, Quote(v.String())+" is not a valid value", "write "+OrList(known))
		}
	case reflect.Int, reflect.Int64:
		low, high := tag.Get("min"), tag.Get("max")
		if bound, err := parseNumber(v.Type(), low); err == nil && v.Int() < bound {
			d.report(path, d.nodes[path].Value+" is too small", "the minimum is "+low)
		}
		if bound, err := parseNumber(v.Type(), high); err == nil && v.Int() > bound {
			d.report(path, d.nodes[path].Value+" is too large", "the maximum is "+high)
		}
	}
}

// Quote quotes text for a message. It escapes control characters and shortens long text.
func Quote(text string) string { return strconv.Quote(shorten(text)) }

func shorten(text string) string {
	if runes := []rune(text); len(runes) > 60 {
		return string(runes[:57]) + "..."
	}
	return text
}
