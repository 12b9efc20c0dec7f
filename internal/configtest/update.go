package configtest

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// update writes the events that were sent to the file, in place of the expected ones of some tests. It changes only the
// lines of `expect`. Comments stay, except those of events that are removed.
func (f *File) update(tests map[int][]Failure) error {
	lines := strings.SplitAfter(string(f.text), "\n")
	for n := range slices.Backward(f.Tests) { // from the end, so that the positions of earlier tests stay valid
		failures := tests[n]
		if len(failures) == 0 {
			continue
		}
		for _, failure := range failures {
			updateEvents(f.at.Node(fmt.Sprintf("tests[%d].expect[%q]", n, failure.Sink)), failure.pairs)
		}
		var err error
		if lines, err = replaceExpect(lines, f.at.Node(fmt.Sprintf("tests[%d]", n))); err != nil {
			return fmt.Errorf("%s:%d: %w", f.path, f.line(n), err)
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
	if test.Style&yaml.FlowStyle != 0 {
		return nil, fmt.Errorf("cannot be updated: write each key of the test on a line of its own, without braces")
	}
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
	value.Style &^= yaml.FlowStyle
	for last := value; last != nil; { // what follows the value stays where it is
		last.FootComment = ""
		if len(last.Content) == 0 {
			break
		}
		if len(last.Content) > 1 && last.Kind == yaml.MappingNode {
			last.Content[len(last.Content)-2].FootComment = ""
		}
		last = last.Content[len(last.Content)-1]
	}
	name := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "expect", LineComment: key.LineComment}
	text, err := yaml.Dump(&yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{name, value}},
		yaml.WithIndent(2), yaml.WithCompactSeqIndent(false), yaml.WithLineWidth(-1))
	if err != nil {
		return nil, err
	}
	var out []string
	for line := range bytes.Lines(text) {
		if prefix := strings.Repeat(" ", indent); len(out) > 0 && len(line) > 1 {
			out = append(out, prefix+string(line))
		} else if len(out) > 0 {
			out = append(out, string(line))
		} else {
			out = append(out, lines[first][:indent]+string(line))
		}
	}
	return slices.Concat(lines[:first], out, lines[end:]), nil
}

// updateEvents makes a list of expected events those that were sent.
func updateEvents(list *yaml.Node, pairs []pair) {
	var events []*yaml.Node
	for _, p := range pairs {
		switch {
		case p.got == nil: // it is left out
		case p.want == nil:
			events = append(events, newEvent(p.got))
		default:
			node := list.Content[p.number-1]
			if len(p.differences) > 0 {
				updateEvent(node, p.got)
			}
			events = append(events, node)
		}
	}
	list.Content = events
	if len(events) > 0 {
		list.Style &^= yaml.FlowStyle
	}
}

// updateEvent updates what an expected event says about the one that was sent.
func updateEvent(event *yaml.Node, got *sent) {
	texts := map[string]string{
		"operation": got.operation, "id": got.id, "subject": got.Subject, "topic": got.Topic, "key": got.Key,
	}
	parts := map[string]map[string]string{"headers": got.headers, "attributes": got.attributes}
	for n := 0; n < len(event.Content); n += 2 {
		switch key, value := event.Content[n].Value, event.Content[n+1]; key {
		case "data":
			updateData(value, got.data)
		case "headers", "attributes":
			for i := 0; i < len(value.Content); i += 2 {
				setText(value.Content[i+1], parts[key][value.Content[i].Value])
			}
		case "absent":
			value.Content = slices.DeleteFunc(value.Content, func(path *yaml.Node) bool {
				steps, _ := object.ParsePath(path.Value) // validated
				_, found := lookUp(steps, got.data)
				return found
			})
		default:
			setText(value, texts[key])
		}
	}
}

// updateData updates the given parts of the data.
func updateData(node *yaml.Node, got any) {
	want, err := decode[any](node)
	switch got := got.(type) {
	case map[string]any:
		if node.Kind != yaml.MappingNode {
			break
		}
		var members []*yaml.Node
		for n := 0; n < len(node.Content); n += 2 {
			if value, found := got[node.Content[n].Value]; found {
				updateData(node.Content[n+1], value)
				members = append(members, node.Content[n], node.Content[n+1])
			}
		}
		node.Content = members
		return
	case []any:
		if node.Kind != yaml.SequenceNode || len(node.Content) != len(got) {
			break
		}
		for n := range got {
			updateData(node.Content[n], got[n])
		}
		return
	}
	if err != nil || len(contains("", want, got)) > 0 {
		set(node, got)
	}
}

// newEvent returns the node of an event that was not expected.
func newEvent(got *sent) *yaml.Node {
	event := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, part := range []struct {
		key   string
		value any
	}{
		{"operation", got.operation},
		{"id", got.id},
		{"subject", got.Subject},
		{"topic", got.Topic},
		{"key", got.Key},
		{"data", got.data},
	} {
		if part.value == "" {
			continue
		}
		key, value := &yaml.Node{}, &yaml.Node{}
		set(key, part.key)
		set(value, part.value)
		event.Content = append(event.Content, key, value)
	}
	return event
}

// setText replaces the text of a node, if it is another one.
func setText(node *yaml.Node, text string) {
	if node.Value != text {
		set(node, text)
	}
}

// set replaces the value of a node. Its comments stay.
func set(node *yaml.Node, value any) {
	var n yaml.Node
	_ = n.Dump(value) // JSON can always be represented
	n.HeadComment, n.LineComment, n.FootComment = node.HeadComment, node.LineComment, node.FootComment
	if n.Tag == "!!str" {
		n.Style |= node.Style & (yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle)
	}
	*node = n
}
