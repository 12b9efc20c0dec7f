package evaluate

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
)

// update writes the events that were sent to the file, in place of the expected ones of some tests. It changes only the
// lines of `expect`.
func (f *File) update(tests map[int][]Failure) error {
	lines := strings.SplitAfter(string(f.text), "\n")
	for n := range slices.Backward(f.Tests) { // from the end, so that the positions of earlier tests stay valid
		for _, failure := range tests[n] {
			updateEvents(f.at.Node(fmt.Sprintf("tests[%d].expect[%q]", n, failure.Sink)), failure.pairs)
		}
		if len(tests[n]) > 0 {
			var err error
			if lines, err = replaceExpect(lines, f.at.Node(fmt.Sprintf("tests[%d]", n))); err != nil {
				return err
			}
		}
	}
	text := []byte(strings.Join(lines, ""))
	if _, at := strictyaml.Decode[File](f.path, text); at.Err() != nil {
		return fmt.Errorf("%s: cannot be updated: write each key of the tests on lines of its own", f.path)
	}
	info, err := os.Stat(f.path)
	if err != nil {
		return err
	}
	return os.WriteFile(f.path, text, info.Mode().Perm())
}

// replaceExpect replaces the lines of a test's key `expect` with its nodes.
func replaceExpect(lines []string, test *yaml.Node) ([]string, error) {
	n := slices.IndexFunc(test.Content, func(node *yaml.Node) bool { return node.Value == "expect" })
	key, value := test.Content[n], test.Content[n+1]
	first, indent := key.Line-1, key.Column-1
	end := first + 1 // of the lines of the value
	for at := end; at < len(lines); at++ {
		content := strings.TrimLeft(lines[at], " ")
		if strings.TrimSpace(content) == "" || content[0] == '#' {
			continue
		}
		if len(lines[at])-len(content) <= indent {
			break
		}
		end = at + 1
	}
	withoutFootComments(value) // what follows the value stays where it is
	value.Style &^= yaml.FlowStyle
	name := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "expect", LineComment: key.LineComment}
	text, err := yaml.Dump(&yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{name, value}},
		yaml.WithIndent(2), yaml.WithCompactSeqIndent(false), yaml.WithLineWidth(-1))
	if err != nil {
		return nil, err
	}
	out := []string{lines[first][:indent]}
	for line := range strings.Lines(string(text)) {
		out = append(out, line, strings.Repeat(" ", indent))
	}
	return slices.Concat(lines[:first], out[:len(out)-1], lines[end:]), nil
}

func withoutFootComments(node *yaml.Node) {
	node.FootComment = ""
	for _, part := range node.Content {
		withoutFootComments(part)
	}
}

// updateEvents makes a list of expected events those that were sent.
func updateEvents(list *yaml.Node, pairs []pair) {
	var events []*yaml.Node
	for n := range pairs {
		switch p := &pairs[n]; {
		case p.got == nil: // it is left out
		case p.fails():
			events = append(events, p.got.node(p.want))
		default:
			events = append(events, list.Content[p.number-1])
		}
	}
	list.Content = events
	if len(events) > 0 {
		list.Style &^= yaml.FlowStyle
	}
}

// node returns a message as an expected event, with the parts that want has. If want is nil, no event was expected.
func (m *Message) node(want *Event) *yaml.Node {
	e := struct {
		Operation  string            `yaml:"operation"`
		ID         string            `yaml:"id,omitempty"`
		Subject    string            `yaml:"subject,omitempty"`
		Topic      string            `yaml:"topic,omitempty"`
		Key        string            `yaml:"key,omitempty"`
		Headers    map[string]string `yaml:"headers,omitempty"`
		Attributes map[string]string `yaml:"attributes,omitempty"`
		Data       any               `yaml:"data,omitempty"`
		Absent     []string          `yaml:"absent,omitempty"`
	}{Operation: m.operation, ID: m.ID, Subject: m.Subject, Topic: m.Topic, Key: m.Key, Data: m.data}
	if want != nil {
		for _, part := range []struct {
			got  *string
			want string
		}{{&e.ID, want.ID}, {&e.Subject, want.Subject}, {&e.Topic, want.Topic}, {&e.Key, want.Key}} {
			if part.want == "" {
				*part.got = ""
			}
		}
		e.Headers, e.Attributes, e.Data = map[string]string{}, map[string]string{}, nil
		for name := range want.Headers {
			e.Headers[name] = m.headers[name]
		}
		for name := range want.Attributes {
			e.Attributes[name] = m.Attributes[name]
		}
		if want.Data != nil {
			e.Data = partOf(m.data, want.data)
		}
		e.Absent = slices.DeleteFunc(slices.Clone(want.Absent), func(path string) bool {
			_, found := lookUp(path, m.data)
			return found
		})
	}
	node := &yaml.Node{}
	_ = node.Dump(e) // JSON can always be represented
	return node
}

// partOf returns the members of a value that want has.
func partOf(got, want any) any {
	wanted, ok := want.(map[string]any)
	members, isObject := got.(map[string]any)
	if !ok || !isObject {
		return got
	}
	part := map[string]any{}
	for key := range wanted {
		if value, found := members[key]; found {
			part[key] = partOf(value, wanted[key])
		}
	}
	return part
}
