package strictyaml

import (
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Section is an object in the configuration file. Validators use it to check the object's values. Keys are relative to
// this object, as in `stream.name` or `watch[1].resources`. The empty key is the object itself.
type Section struct {
	d    *decoder
	path string
}

// Err returns all mistakes in the file, sorted by position and joined, or nil if there are none. Each is a *Mistake.
func (s *Section) Err() error { return joined(s.d.mistakes) }

// MissingFiles returns a mistake for each file that does not exist, in the order of the text. It returns nil unless the
// section comes from DecodeOffline.
func (s *Section) MissingFiles() []*Mistake { return s.d.missing }

// Variables returns the references to environment variables in the values of the file. The references of one value are
// in the order of the text.
func (s *Section) Variables() []Variable { return s.d.variables }

// Warnings returns what Warn has recorded, in the order of the calls.
func (s *Section) Warnings() []*Mistake { return s.d.warnings }

// Unreadable reports whether the file is not valid YAML. In this case its values must not be checked.
func (s *Section) Unreadable() bool { return s.d.unreadable }

// At returns the section for the object at a key.
func (s *Section) At(key string) *Section { return &Section{s.d, join(s.path, key)} }

// Node returns the node of a key's value, or nil if the file does not contain the key.
func (s *Section) Node(key string) *yaml.Node { return s.d.nodes[join(s.path, key)] }

// Has reports whether the file contains the key.
func (s *Section) Has(key string) bool { return s.Node(key) != nil }

// Fine reports whether the value of the key has no mistake so far.
func (s *Section) Fine(key string) bool { return !s.d.broken[join(s.path, key)] }

// Given returns those of the keys that have a non-empty or invalid value in the file.
func (s *Section) Given(keys ...string) (given []string) {
	for _, key := range keys {
		node := s.d.nodes[join(s.path, key)]
		if node != nil && (node.Kind != yaml.ScalarNode || node.Value != "" || !s.Fine(key)) {
			given = append(given, key)
		}
	}
	return given
}

// Report records a mistake in a key's value, unless the key already has a mistake. If remedy is empty, the file must
// contain the key, and the remedy is the example in the tag of the key.
func (s *Section) Report(key, problem, remedy string) { s.d.report(join(s.path, key), problem, remedy) }

// Warn records a warning about a key's value, which is valid.
func (s *Section) Warn(key, problem, remedy string) {
	s.d.warnings = append(s.d.warnings, s.d.mistake(join(s.path, key), problem, remedy))
}

// NotEmpty reports a mistake if text is empty.
func (s *Section) NotEmpty(key, text, remedy string) {
	if text == "" {
		s.Report(key, "is empty", remedy)
	}
}

// AtMostOne reports a mistake if more than one of the keys is given.
func (s *Section) AtMostOne(keys ...string) {
	if given := s.Given(keys...); len(given) > 1 {
		s.Report(given[1], "cannot be used together with "+given[0], "keep one of them")
	}
}

// Together reports the missing keys if only some of the keys are given.
func (s *Section) Together(keys ...string) {
	given := s.Given(keys...)
	for _, key := range keys {
		if len(given) > 0 && !slices.Contains(given, key) {
			s.Report(key, "is missing, but "+given[0]+" is given", "set all of "+strings.Join(keys, ", ")+", or none of them")
		}
	}
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?$`)

// Address reports a mistake if text is not host:port. If connect is set, the address must have a host and a port other
// than 0.
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
