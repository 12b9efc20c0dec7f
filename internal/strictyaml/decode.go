package strictyaml

import (
	"fmt"
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
	file string // the file name in messages
	dir  string // the directory for relative file paths
	text string
	root reflect.Type

	nodes      map[string]*yaml.Node // maps each path to the node of its value; "" is the document
	broken     map[string]bool       // the paths that already have a mistake; a second mistake is not reported
	confused   map[string]bool       // the paths whose keys may be misspelled, and the objects with unknown keys
	mistakes   []*Mistake
	unreadable bool // reports whether the text is not valid YAML
}

func newDecoder(file string, data []byte) *decoder {
	return &decoder{
		file: file, dir: filepath.Dir(file), text: normalize(string(data)),
		nodes: map[string]*yaml.Node{}, broken: map[string]bool{}, confused: map[string]bool{},
	}
}

// normalize removes the byte order mark and replaces all YAML line breaks with "\n".
func normalize(text string) string {
	breaks := strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")
	return breaks.Replace(strings.TrimPrefix(text, "\ufeff"))
}

// Decode decodes data, the content of the file with this name, into a struct with defaults. The returned section
// represents the whole file. It contains the mistakes, and later checks add further mistakes to it.
func Decode[T any](name string, data []byte) (*T, *Section) {
	d := newDecoder(name, data)
	target := Default[T]()
	root := reflect.ValueOf(&target).Elem()
	d.root = root.Type()
	documents, err := parseYAML(d.text)
	if err != nil {
		d.unreadable = true
		d.syntaxError(err)
		return &target, &Section{d: d}
	}
	if len(documents) > 1 {
		second := documents[1]
		d.mistake(second.Line, second.Column, "", "there is a second document", "keep one, and remove the lines ---")
	}
	// A file that contains only comments has no document. A file that contains only --- has a document that is null.
	if len(documents) > 0 && documents[0].Content[0].Tag != "!!null" {
		d.value("", documents[0].Content[0], root, "")
	}
	return &target, &Section{d: d}
}

// report adds a mistake at the value of a path. If the file does not contain the path, the mistake is reported at the
// nearest object that contains the path.
func (d *decoder) report(path, problem, remedy string) {
	at := path
	for d.nodes[at] == nil && at != "" {
		at = at[:max(0, strings.LastIndexAny(at, ".["))]
	}
	line, column := 1, 1
	if n := d.nodes[at]; n != nil {
		line, column = n.Line, n.Column
	}
	d.mistake(line, column, path, problem, remedy)
}

// mistake adds a mistake at a position, unless the path already has a mistake.
func (d *decoder) mistake(line, column int, path, problem, remedy string) {
	if path != "" && d.broken[path] {
		return
	}
	d.broken[path] = true
	d.mistakes = append(d.mistakes, &Mistake{d.file, line, column, path, problem, remedy})
}

// keyMistake adds a mistake about a key. An object can have several mistakes of this kind.
func (d *decoder) keyMistake(key *yaml.Node, path, problem, remedy string) {
	d.mistakes = append(d.mistakes, &Mistake{d.file, key.Line, key.Column, path, problem, remedy})
}

func join(path, key string) string {
	if path == "" || key == "" || strings.HasPrefix(key, "[") {
		return path + key
	}
	return path + "." + key
}

// joinAny is like join, but key can be any string.
func joinAny(path, key string) string {
	if key != "" && strings.IndexFunc(key, func(r rune) bool { return !isWordRune(r) }) < 0 {
		return join(path, key)
	}
	return fmt.Sprintf("%s[%q]", path, shorten(key))
}

func isWordRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
}

// value decodes a node into v. The tag contains the rules for v.
func (d *decoder) value(path string, node *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	d.nodes[path] = node
	if !d.isPlain(path, node) {
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
		if node.Style&yaml.FlowStyle != 0 && kind == reflect.String {
			remedy = "write a single value, and quote a string that begins with { or ["
		}
		d.wrongKind(path, node, typeName(v.Type(), tag), remedy)
	default:
		d.scalar(path, node, v, tag)
	}
}

// wrongKind reports a node of the wrong kind, such as a list instead of an object.
func (d *decoder) wrongKind(path string, node *yaml.Node, required, remedy string) {
	article := "a "
	if strings.ContainsRune("aeio", rune(required[0])) {
		article = "an "
	}
	d.report(path, "is "+kindName(node)+" where "+article+required+" is required", remedy)
}

// isPlain reports whether the node uses only allowed YAML features. It reports a mistake otherwise.
func (d *decoder) isPlain(path string, node *yaml.Node) bool {
	switch {
	case node.Kind == yaml.AliasNode:
		d.report(path, "is an alias (*"+node.Value+"), and aliases are not allowed", "write the value itself")
	case node.Anchor != "":
		d.report(
			path,
			"has an anchor (&"+node.Anchor+"), and anchors are not allowed",
			"remove the anchor, and repeat the value where it is used",
		)
	case node.Style&yaml.TaggedStyle != 0:
		d.report(path, "has a tag ("+node.Tag+"), and tags are not allowed", "remove the tag")
	case node.Tag == "!!null":
		d.report(path, "has no value", "add a value or remove the key, and check the indentation of the next line")
	default:
		return true
	}
	return false
}

// object decodes the members of an object into a struct.
func (d *decoder) object(path string, node *yaml.Node, v reflect.Value) {
	if node.Kind != yaml.MappingNode {
		d.wrongKind(path, node, "object", "its keys are "+strings.Join(keyNames(v.Type()), ", "))
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

// eachKey calls do for each valid key and reports a mistake for each invalid key. It returns the valid keys.
func (d *decoder) eachKey(path string, node *yaml.Node, do func(key, value *yaml.Node)) (seen map[string]*yaml.Node) {
	seen = map[string]*yaml.Node{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case key.Tag == "!!merge":
			d.keyMistake(key, path, "has a merge key (<<), and merge keys are not allowed", "write the keys themselves")
		case key.Kind != yaml.ScalarNode || key.Anchor != "" || key.Style&yaml.TaggedStyle != 0:
			d.keyMistake(key, path, "has a key that is not a plain string", "write the key as a word, without brackets, & and !")
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
		d.wrongKind(path, node, "list", remedy)
		return
	}
	// An invalid entry keeps its position, so the indexes of the other entries stay correct.
	v.Set(reflect.MakeSlice(v.Type(), len(node.Content), len(node.Content)))
	for i, entry := range node.Content {
		d.value(fmt.Sprintf("%s[%d]", path, i), entry, v.Index(i), tag)
	}
}

// stringMap decodes an object with arbitrary keys. It converts numbers and booleans to strings.
func (d *decoder) stringMap(path string, node *yaml.Node, v reflect.Value) {
	if node.Kind != yaml.MappingNode {
		d.wrongKind(path, node, "object", "write name: value")
		return
	}
	texts := map[string]string{}
	d.eachKey(path, node, func(key, value *yaml.Node) {
		child := joinAny(path, key.Value)
		d.nodes[child] = value
		switch {
		case !d.isPlain(child, value):
		case value.Kind != yaml.ScalarNode:
			d.wrongKind(child, value, "string", "write a single value")
		default:
			texts[key.Value] = value.Value
		}
	})
	v.Set(reflect.ValueOf(texts))
}

// scalar decodes a single value and checks the value against its tags.
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
			d.report(
				path,
				shorten(node.Value)+" is "+tagName(node.Tag)+" where a string is required",
				"quote it: "+Quote(node.Value),
			)
			return
		}
		d.setText(path, node.Value, v, tag)
	}
	d.checkTags(path, v, tag)
}

// setText sets a string, a path or a comma-separated list.
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
			d.report(path, strconv.Quote(text)+" cannot be used: "+err.Error(), "name a file that the bridge can read")
		}
	}
	v.SetString(text)
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
			d.report(path, formatNumber(v)+" is too small", "the minimum is "+low)
		}
		if bound, err := parseNumber(v.Type(), high); err == nil && v.Int() > bound {
			d.report(path, formatNumber(v)+" is too large", "the maximum is "+high)
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
