package strictyaml

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
// remembers the node of each path for those that check the values later.
type decoder struct {
	file string // as messages name it
	dir  string // where relative paths of files begin
	text string
	root reflect.Type

	nodes      map[string]*yaml.Node // the value, by path; "" is the document
	broken     map[string]bool       // paths with a mistake: a second one would only confuse
	confused   map[string]bool       // paths of structs with unknown keys: what they lack may be a typing error
	mistakes   []*Mistake
	unreadable bool // the text is not YAML, so that nothing is known of its values
}

func newDecoder(file string, data []byte) *decoder {
	return &decoder{
		file: file, dir: filepath.Dir(file), text: strings.TrimPrefix(string(data), "\ufeff"),
		nodes: map[string]*yaml.Node{}, broken: map[string]bool{}, confused: map[string]bool{},
	}
}

// Decode reads data, the content of the file called name, into a struct with its defaults. The mistakes are in the section of the
// whole file, to which checks of the values add theirs.
func Decode[T any](name string, data []byte) (*T, *Section) {
	d := newDecoder(name, data)
	target := Default[T]()
	root := reflect.ValueOf(&target).Elem()
	d.root = root.Type()
	d.document(root)
	return &target, &Section{d: d}
}

// document decodes the whole text.
func (d *decoder) document(root reflect.Value) {
	documents, err := parseYAML(d.text)
	if err != nil {
		d.unreadable = true
		d.syntaxError(err)
		return
	}
	if len(documents) > 1 {
		second := documents[1]
		d.mistake(second.Line, second.Column, "", "there is a second document", "keep one, and remove the lines ---")
	}
	// A file with nothing but comments has no document; one with nothing behind --- has one that is null.
	if len(documents) == 0 || documents[0].Content[0].Tag == "!!null" {
		return
	}
	d.value("", documents[0].Content[0], root, "")
}

// report notes a mistake at the value of path or, if the file does not give it, where it would be.
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
	if path == "" || key == "" || strings.HasPrefix(key, "[") {
		return path + key
	}
	return path + "." + key
}

// joinAny is join for a key that may be any string.
func joinAny(path, key string) string {
	if key != "" && strings.IndexFunc(key, func(r rune) bool { return !isWordRune(r) }) < 0 {
		return join(path, key)
	}
	return fmt.Sprintf("%s[%q]", path, shorten(key))
}

func isWordRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
}

// value decodes node into v, whose rules are in tag.
func (d *decoder) value(path string, node *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	d.nodes[path] = node
	if !d.acceptable(path, node) {
		return
	}
	switch kind := v.Kind(); {
	case kind == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(path, node, v.Elem(), tag)
	case kind == reflect.Struct:
		SetDefaults(v)
		d.object(path, node, v)
	case kind == reflect.Map:
		d.stringMap(path, node, v)
	case kind == reflect.Slice && tag.Get("format") != "commas":
		d.list(path, node, v, tag)
	case node.Kind != yaml.ScalarNode:
		remedy := "write a single value"
		if node.Style&yaml.FlowStyle != 0 && v.Kind() == reflect.String {
			remedy = "write a single value; a string that begins with { or [ has to be put into quotes"
		}
		d.report(path, "is "+kindName(node)+" where "+withArticle(typeName(v.Type(), tag))+" is required", remedy)
	default:
		d.scalar(path, node, v, tag)
	}
}

// acceptable rejects the parts of YAML that the files do without.
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

// object decodes the keys of a struct.
func (d *decoder) object(path string, node *yaml.Node, v reflect.Value) {
	if node.Kind != yaml.MappingNode {
		d.report(path, "is "+kindName(node)+" where an object is required", "its keys are "+strings.Join(keyNames(v.Type()), ", "))
		return
	}
	fields := Fields(v.Type())
	seen := d.eachKey(path, node, func(key, value *yaml.Node) {
		n := slices.IndexFunc(fields, func(f Field) bool { return f.Name == key.Value })
		if n < 0 {
			d.unknownKey(path, key, v.Type())
			return
		}
		d.value(join(path, key.Value), value, v.FieldByIndex(fields[n].Index), fields[n].Tag)
	})
	for _, f := range fields {
		if f.Tag.Get("required") == "true" && seen[f.Name] == nil && !d.confused[join(path, f.Name)] {
			d.report(join(path, f.Name), "is missing", "add "+f.Name+": "+f.Tag.Get("example"))
		}
	}
}

// eachKey calls do for each key that is one and is there for the first time. It returns these.
func (d *decoder) eachKey(path string, node *yaml.Node, do func(key, value *yaml.Node)) (seen map[string]*yaml.Node) {
	seen = map[string]*yaml.Node{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case key.Tag == "!!merge":
			d.keyMistake(key, path, "has a merge key, <<: there are none here", "write the keys out")
		case key.Kind != yaml.ScalarNode || key.Anchor != "" || key.Style&yaml.TaggedStyle != 0:
			d.keyMistake(key, path, "has a key that is not a plain string", "write a key as a word, without brackets, & and !")
		case seen[key.Value] != nil:
			problem := fmt.Sprintf("is given twice, first in line %d", seen[key.Value].Line)
			d.keyMistake(key, joinAny(path, key.Value), problem, "keep one of them")
		default:
			seen[key.Value] = key
			do(key, value)
		}
	}
	return seen
}

func (d *decoder) list(path string, node *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	if node.Kind != yaml.SequenceNode {
		remedy := "begin each entry with \"- \""
		if node.Kind == yaml.ScalarNode {
			remedy = "write it as a list: [" + shorten(node.Value) + "]"
		}
		d.report(path, "is "+kindName(node)+" where a list is required", remedy)
		return
	}
	// An entry that is wrong keeps its place, so that the indices of the others stay right.
	v.Set(reflect.MakeSlice(v.Type(), len(node.Content), len(node.Content)))
	for i, entry := range node.Content {
		d.value(fmt.Sprintf("%s[%d]", path, i), entry, v.Index(i), tag)
	}
}

// stringMap decodes keys that are not ours into strings: numbers and booleans are taken as they are written.
func (d *decoder) stringMap(path string, node *yaml.Node, v reflect.Value) {
	if node.Kind != yaml.MappingNode {
		d.report(path, "is "+kindName(node)+" where an object is required", "write name: value")
		return
	}
	texts := map[string]string{}
	d.eachKey(path, node, func(key, value *yaml.Node) {
		child := joinAny(path, key.Value)
		d.nodes[child] = value
		switch {
		case !d.acceptable(child, value):
		case value.Kind != yaml.ScalarNode:
			d.report(child, "is "+kindName(value)+" where a string is required", "write a single value")
		default:
			texts[key.Value] = value.Value
		}
	})
	v.Set(reflect.ValueOf(texts))
}

// scalar decodes a single value, and checks it against its tags.
func (d *decoder) scalar(path string, node *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	wrong := func(remedy string) {
		d.report(path, Quote(node.Value)+" is not a valid "+typeName(v.Type(), tag), remedy)
	}
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		n, err := parseNumber(v.Type(), node.Value)
		if err == nil && v.Kind() == reflect.Int && node.Tag != "!!int" {
			err = errNoInteger
		}
		if err != nil {
			wrong(err.Error())
			return
		}
		v.SetInt(n)
	case reflect.Bool:
		if node.Tag != "!!bool" || node.Value != "true" && node.Value != "false" {
			wrong("write true or false, without quotes")
			return
		}
		v.SetBool(node.Value == "true")
	default:
		if node.Tag != "!!str" {
			d.report(path, shorten(node.Value)+" is "+tagName(node.Tag)+" where a string is required", "put it into quotes: "+Quote(node.Value))
			return
		}
		d.setText(path, node.Value, v, tag)
	}
	d.checkTags(path, v, tag)
}

// setText sets a string, a path or a list with commas.
func (d *decoder) setText(path, text string, v reflect.Value, tag reflect.StructTag) {
	switch format := tag.Get("format"); {
	case format == "commas":
		if text == "" {
			return
		}
		entries := strings.Split(text, ",")
		for i := range entries {
			entries[i] = strings.TrimSpace(entries[i])
		}
		v.Set(reflect.ValueOf(entries))
		return
	case format == "file" && text != "":
		if !filepath.IsAbs(text) {
			text = filepath.Join(d.dir, text)
		}
		if err := checkFile(text); err != nil {
			d.report(path, strconv.Quote(text)+" can't be used: "+err.Error(), "name a file that the bridge can read")
		}
	}
	v.SetString(text)
}

// checkTags checks a single value against its set of values and its bounds.
func (d *decoder) checkTags(path string, v reflect.Value, tag reflect.StructTag) {
	switch v.Kind() {
	case reflect.String:
		_, needed := tag.Lookup("default") // without a default, empty means not given
		known := strings.Fields(tag.Get("enum"))
		if len(known) == 0 || slices.Contains(known, v.String()) || !needed && v.String() == "" {
			return
		}
		problem, remedy := Quote(v.String())+" is not known", "write "+OrList(known)
		if value, why, _ := strings.Cut(tag.Get("gone"), ": "); value == v.String() {
			what, todo, _ := strings.Cut(why, "; ")
			problem, remedy = strconv.Quote(value)+" is not supported any more: "+what, todo
		}
		d.report(path, problem, remedy)
	case reflect.Int, reflect.Int64:
		low, high := tag.Get("min"), tag.Get("max")
		if bound, err := parseNumber(v.Type(), low); err == nil && v.Int() < bound {
			d.report(path, formatNumber(v)+" is too small", "the least is "+low)
		}
		if bound, err := parseNumber(v.Type(), high); err == nil && v.Int() > bound {
			d.report(path, formatNumber(v)+" is too large", "the most is "+high)
		}
	}
}

// Quote quotes a text of the file in a message, which stays on one line of sensible length.
func Quote(text string) string { return strconv.Quote(shorten(text)) }

func shorten(text string) string {
	if runes := []rune(text); len(runes) > 60 {
		return string(runes[:57]) + "..."
	}
	return text
}
