package strictyaml

import (
	"net"
	"reflect"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Section is an object in the file, for the check of its values. Keys are relative to it: `stream.name`, `watch[1].resources`;
// the empty key is the object itself.
type Section struct {
	d    *decoder
	path string
}

// Validator checks the values of a struct.
type Validator interface{ Validate(at *Section) }

// Check returns what is wrong with values that were made without a file. A value that is zero or the default counts as not given,
// and whether files are there is not checked.
func Check(v Validator) error {
	d := newDecoder("", nil)
	d.visit("", reflect.ValueOf(v).Elem(), "")
	d.nodes[""] = &yaml.Node{}
	v.Validate(&Section{d: d})
	return sorted(d.mistakes)
}

// visit checks values against their tags, and notes which there are.
func (d *decoder) visit(path string, v reflect.Value, tag reflect.StructTag) {
	if v.IsZero() {
		return
	}
	if text, ok := tag.Lookup("default"); ok {
		byDefault := reflect.New(v.Type()).Elem()
		if decodeText(text, byDefault, tag) == nil && v.Equal(byDefault) {
			return
		}
	}
	d.nodes[path] = &yaml.Node{Kind: yaml.ScalarNode, Value: "given"}
	switch v.Kind() {
	case reflect.Pointer:
		d.visit(path, v.Elem(), tag)
	case reflect.Struct:
		for _, f := range Fields(v.Type()) {
			d.visit(join(path, f.Name), v.FieldByIndex(f.Index), f.Tag)
		}
	default:
		d.checkTags(path, v, tag)
	}
}

// Err returns *Errors if there are mistakes, in the whole file.
func (s *Section) Err() error { return sorted(s.d.mistakes) }

// Unreadable reports whether the file is not YAML, so that there is nothing to check.
func (s *Section) Unreadable() bool { return s.d.unreadable }

// At returns the object of a key.
func (s *Section) At(key string) *Section { return &Section{s.d, join(s.path, key)} }

// Path returns where the section is in the file, as in sinks[0].nats.
func (s *Section) Path() string { return s.path }

// Has reports whether the file has the key.
func (s *Section) Has(key string) bool { return s.d.nodes[join(s.path, key)] != nil }

// Fine reports whether no mistake was reported of the key's value itself.
func (s *Section) Fine(key string) bool { return !s.d.broken[join(s.path, key)] }

// HasUnknown reports whether the object has keys that do not exist: something that is missing may be meant.
func (s *Section) HasUnknown() bool { return s.d.confused[s.path] }

// Given returns which of the keys the file has, with a value that is not empty, or is wrong.
func (s *Section) Given(keys ...string) (given []string) {
	for _, key := range keys {
		node := s.d.nodes[join(s.path, key)]
		if node != nil && (node.Kind != yaml.ScalarNode || node.Value != "" || !s.Fine(key)) {
			given = append(given, key)
		}
	}
	return given
}

// Report notes what is wrong with the value of a key, unless something was reported of it before.
func (s *Section) Report(key, problem, remedy string) { s.d.report(join(s.path, key), problem, remedy) }

// ReportMissing is Report for what is not there, and may be there with a typing error that was reported.
func (s *Section) ReportMissing(key, problem, remedy string) {
	if path := join(s.path, key); !s.d.confused[path] {
		s.d.report(path, problem, remedy)
	}
}

// ReportIn is Report for a place in a string, which may have several mistakes: offset is in bytes.
func (s *Section) ReportIn(key string, offset int, problem, remedy string) {
	path := join(s.path, key)
	node := s.d.nodes[path]
	if node == nil || node.Line == 0 {
		s.d.report(path, problem, remedy)
		return
	}
	if line, column := s.d.placeIn(node, offset); !s.d.broken[path] {
		s.d.mistakes = append(s.d.mistakes, &Mistake{s.d.file, line, column, path, problem, remedy})
	}
}

// NotEmpty reports an empty string.
func (s *Section) NotEmpty(key, text, remedy string) {
	if text == "" {
		s.Report(key, "is empty", remedy)
	}
}

// AtMostOne reports keys that exclude each other.
func (s *Section) AtMostOne(keys ...string) {
	if given := s.Given(keys...); len(given) > 1 {
		s.Report(given[1], "is given besides "+given[0], "keep one of them")
	}
}

// Together reports a key that is there without the other.
func (s *Section) Together(a, b string) {
	given := s.Given(a, b)
	if len(given) != 1 {
		return
	}
	missing := a
	if given[0] == a {
		missing = b
	}
	s.ReportMissing(missing, "is missing besides "+given[0], "give both of them, or none")
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?$`)

// Address reports what is not host:port. To connect, a host is needed and a port that is not 0.
func (s *Section) Address(key, text string, connect bool, remedy string) {
	host, port, err := net.SplitHostPort(text)
	number, portErr := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil:
		s.Report(key, Quote(text)+" is not an address of the form host:port", remedy)
	case portErr != nil || connect && number == 0:
		s.Report(key, Quote(text)+" has no port from 1 to 65535", remedy)
	case host == "" && connect:
		s.Report(key, Quote(text)+" has no host", remedy)
	case host != "" && net.ParseIP(host) == nil && !hostName.MatchString(host):
		s.Report(key, Quote(text)+" has no valid host", remedy)
	}
}
