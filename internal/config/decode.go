package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// decoder walks a tree of YAML nodes and a struct type side by side. It collects mistakes and goes on, and it
// remembers the node of each path for those who validate the values later.
type decoder struct {
	file string // as messages name it
	dir  string // where relative File paths begin
	text string

	nodes      map[string]*yaml.Node // the value, by path; "" is the document
	broken     map[string]bool       // paths with a mistake: a second one would only confuse
	confused   map[string]bool       // paths of structs with unknown keys: what they lack may be a typing error
	mistakes   []*Mistake
	unreadable bool // the text is no YAML, so that nothing is known of its values
}

func newDecoder(file string, data []byte) *decoder {
	return &decoder{
		file: file, dir: filepath.Dir(file), text: strings.TrimPrefix(string(data), "\ufeff"),
		nodes: map[string]*yaml.Node{}, broken: map[string]bool{}, confused: map[string]bool{},
	}
}

// has reports whether the file gives a value for path.
func (d *decoder) has(path string) bool { return d.nodes[path] != nil }

// report notes a mistake at the value of path or, if the file does not give it, where it would stand.
func (d *decoder) report(path, problem, remedy string) {
	line, column := 1, 1
	for at := path; ; at = parent(at) {
		if n := d.nodes[at]; n != nil {
			line, column = n.Line, n.Column
			break
		}
		if at == "" {
			break
		}
	}
	d.mistake(line, column, path, problem, remedy)
}

// mistake notes a mistake at a place, unless there is one about the same value.
func (d *decoder) mistake(line, column int, path, problem, remedy string) {
	if path != "" && d.broken[path] {
		return
	}
	d.broken[path] = true
	d.mistakes = append(d.mistakes, &Mistake{d.file, line, column, path, problem, remedy})
}

// keyMistake is one about a key and not about a value: there may be several in one struct.
func (d *decoder) keyMistake(key *yaml.Node, path, problem, remedy string) {
	d.mistakes = append(d.mistakes, &Mistake{d.file, key.Line, key.Column, path, problem, remedy})
}

// parent is the path without its last key or index.
func parent(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// value decodes node into v, whose rules are in tag.
func (d *decoder) value(path string, node *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	d.nodes[path] = node
	if !d.acceptable(path, node) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(path, node, v.Elem(), tag)
	case reflect.Struct:
		d.setDefaults(v)
		d.mapping(path, node, v)
	case reflect.Slice:
		d.sequence(path, node, v, tag)
	case reflect.Map:
		d.stringMap(path, node, v)
	default:
		if node.Kind != yaml.ScalarNode {
			remedy := "write a single value"
			if node.Style&yaml.FlowStyle != 0 && v.Kind() == reflect.String {
				remedy = "write a single value; a text that begins with { or [ has to be put into quotes"
			}
			d.report(path, "is "+kindName(node)+" where "+typeName(v.Type())+" is wanted", remedy)
			return
		}
		d.scalar(path, node, v, tag)
	}
}

// acceptable refuses the parts of YAML that the configuration does without.
func (d *decoder) acceptable(path string, node *yaml.Node) bool {
	switch {
	case node.Kind == yaml.AliasNode:
		d.report(path, "is an alias, *"+node.Value+": there are none here", "write the value out")
	case node.Anchor != "":
		d.report(path, "has an anchor, &"+node.Anchor+": there are none here", "remove the anchor, and write the value out where it is used")
	case node.Style&yaml.TaggedStyle != 0:
		d.report(path, "has a tag, "+node.Tag+": there are none here", "remove the tag")
	case node.Tag == "!!null":
		d.report(path, "has no value", "give it one, or remove the key; was the next line meant to be indented?")
	default:
		return true
	}
	return false
}

func (d *decoder) mapping(path string, node *yaml.Node, v reflect.Value) {
	if node.Kind != yaml.MappingNode {
		problem := "is " + kindName(node) + " where keys and values are wanted"
		d.report(path, problem, "its keys are "+strings.Join(keyNames(v.Type()), ", "))
		return
	}
	fields := fieldsOf(v.Type())
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if !d.key(path, key, seen) {
			continue
		}
		n := slices.IndexFunc(fields, func(f field) bool { return f.name == key.Value })
		switch {
		case n < 0:
			d.unknownKey(path, key, v.Type())
		case fields[n].tag.Get("later") == "true":
			d.keyMistake(key, join(path, key.Value), "is not in this version", "remove the key")
		default:
			d.value(join(path, key.Value), value, v.FieldByIndex(fields[n].index), fields[n].tag)
		}
	}
	for _, f := range fields {
		if f.tag.Get("required") == "true" && seen[f.name] == nil && !d.confused[join(path, f.name)] {
			d.report(join(path, f.name), "is missing", "add "+f.name+": "+f.tag.Get("example"))
		}
	}
}

// key checks a key of a mapping, and that it is there for the first time.
func (d *decoder) key(path string, key *yaml.Node, seen map[string]*yaml.Node) bool {
	switch {
	case key.Tag == "!!merge":
		d.keyMistake(key, path, "has a merge key, <<: there are none here", "write the keys out")
	case key.Kind != yaml.ScalarNode || key.Anchor != "" || key.Style&yaml.TaggedStyle != 0:
		d.keyMistake(key, path, "has a key that is no plain text", "write a key as a word, without brackets, & and !")
	case seen[key.Value] != nil:
		problem := fmt.Sprintf("is given twice, first in line %d", seen[key.Value].Line)
		d.keyMistake(key, joinAny(path, key.Value), problem, "keep one of them")
	default:
		seen[key.Value] = key
		return true
	}
	return false
}

func (d *decoder) sequence(path string, node *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	if node.Kind != yaml.SequenceNode {
		remedy := "begin each entry with \"- \""
		if node.Kind == yaml.ScalarNode {
			remedy = "write it as a list: [" + shorten(node.Value) + "]"
		}
		d.report(path, "is "+kindName(node)+" where a list is wanted", remedy)
		return
	}
	// An entry that is wrong keeps its place, so that the indices of the others stay right.
	v.Set(reflect.MakeSlice(v.Type(), len(node.Content), len(node.Content)))
	for i, entry := range node.Content {
		d.value(fmt.Sprintf("%s[%d]", path, i), entry, v.Index(i), tag)
	}
}

// stringMap decodes keys that are not ours into texts: numbers and booleans are taken as they are written.
func (d *decoder) stringMap(path string, node *yaml.Node, v reflect.Value) {
	if node.Kind != yaml.MappingNode {
		d.report(path, "is "+kindName(node)+" where keys and values are wanted", "write name: value")
		return
	}
	texts := map[string]string{}
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if !d.key(path, key, seen) {
			continue
		}
		child := joinAny(path, key.Value)
		d.nodes[child] = value
		if !d.acceptable(child, value) {
			continue
		}
		if value.Kind != yaml.ScalarNode {
			d.report(child, "is "+kindName(value)+" where a text is wanted", "write a single value")
			continue
		}
		texts[key.Value] = value.Value
	}
	v.Set(reflect.ValueOf(texts))
}

// joinAny is join for a key that may be any text.
func joinAny(path, key string) string {
	if key != "" && strings.IndexFunc(key, func(r rune) bool { return !isWordRune(r) }) < 0 {
		return join(path, key)
	}
	return fmt.Sprintf("%s[%q]", path, shorten(key))
}

func isWordRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
}

// scalar decodes a single value.
func (d *decoder) scalar(path string, node *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	wrong := func(remedy string) {
		d.report(path, strconv.Quote(shorten(node.Value))+" is no "+strings.TrimPrefix(typeName(v.Type()), "a "), remedy)
	}
	switch target := v.Addr().Interface().(type) {
	case *Duration:
		parsed, err := parseDuration(node.Value)
		if err != nil {
			wrong(err.Error())
			return
		}
		*target = parsed
		checkRange(d, path, parsed, tag, parseDuration)
	case *Size:
		parsed, err := parseSize(node.Value)
		if err != nil {
			wrong(err.Error())
			return
		}
		*target = parsed
		checkRange(d, path, parsed, tag, parseSize)
	case *int:
		parsed, err := strconv.Atoi(node.Value)
		if err != nil || node.Tag != "!!int" {
			wrong("write it in decimal digits, without quotes")
			return
		}
		*target = parsed
		checkRange(d, path, parsed, tag, strconv.Atoi)
	case *bool:
		if node.Tag != "!!bool" || node.Value != "true" && node.Value != "false" {
			wrong("write true or false, without quotes")
			return
		}
		*target = node.Value == "true"
	default: // string and File
		if node.Tag != "!!str" {
			d.report(path, shorten(node.Value)+" is "+tagName(node.Tag)+" where a text is wanted", "put it into quotes: "+strconv.Quote(shorten(node.Value)))
			return
		}
		v.SetString(node.Value)
		d.checkText(path, v, tag)
	}
}

// checkText checks a text against its set of values, and a file for being there.
func (d *decoder) checkText(path string, v reflect.Value, tag reflect.StructTag) {
	_, needed := tag.Lookup("default") // without a default, empty means not given
	known := strings.Fields(tag.Get("enum"))
	if len(known) > 0 && !slices.Contains(known, v.String()) && (needed || v.String() != "") {
		problem, remedy := strconv.Quote(shorten(v.String()))+" is not known", "write "+orList(known)
		if value, why, _ := strings.Cut(tag.Get("gone"), ": "); value != "" && value == v.String() {
			what, todo, _ := strings.Cut(why, "; ")
			problem, remedy = strconv.Quote(value)+" is not supported any more: "+what, todo
		}
		if slices.Contains(strings.Fields(tag.Get("later")), v.String()) {
			problem = strconv.Quote(v.String()) + " is not in this version"
		}
		d.report(path, problem, remedy)
	}
	if f, ok := reflect.TypeAssert[File](v); ok && f != "" {
		if !filepath.IsAbs(string(f)) {
			f = File(filepath.Join(d.dir, string(f)))
			v.SetString(string(f))
		}
		if err := f.check(); err != nil {
			d.report(path, strconv.Quote(string(f))+" can't be used: "+err.Error(), "name a file that the bridge can read")
		}
	}
}

// checkRange checks a number against the tags min and max.
func checkRange[T int | Size | Duration](d *decoder, path string, n T, tag reflect.StructTag, parse func(string) (T, error)) {
	if text := tag.Get("min"); text != "" {
		if bound, err := parse(text); err != nil || n < bound {
			d.report(path, fmt.Sprintf("%v is too small", n), "the least is "+text)
		}
	}
	if text := tag.Get("max"); text != "" {
		if bound, err := parse(text); err != nil || n > bound {
			d.report(path, fmt.Sprintf("%v is too large", n), "the most is "+text)
		}
	}
}

// shorten keeps messages on one line of sensible length.
func shorten(text string) string {
	if runes := []rune(text); len(runes) > 60 {
		return string(runes[:57]) + "..."
	}
	return text
}
