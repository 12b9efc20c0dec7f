package strictyaml

import (
	"errors"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// parseYAML returns the node tree of every document.
func parseYAML(text string) ([]*yaml.Node, error) {
	var documents []*yaml.Node
	yamlDecoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		var n yaml.Node
		err := yamlDecoder.Decode(&n)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, err
		}
		documents = append(documents, &n)
	}
}

// syntaxError reports that the text is not valid YAML.
func (d *decoder) syntaxError(err error) {
	problem, line, column := err.Error(), 1, 1
	if load, ok := errors.AsType[*yaml.LoadError](err); ok {
		problem, line, column = load.Message, load.Mark.Line, load.Mark.Column
		if strings.Contains(problem, "unexpected end of stream") { // The context is the unclosed quote.
			line, column = load.ContextMark.Line, load.ContextMark.Column
		}
	}
	offset := Offset(d.text, line, column)
	if line == 0 { // The parser does not report the position of the invalid character.
		offset = max(0, strings.IndexFunc(d.text, isInvalid))
	}
	line, column = d.place(offset)
	remedy := "check the indentation, and quote strings with special characters"
	switch {
	case strings.Contains(problem, "mapping values are not allowed"):
		remedy = "check the indentation, or quote a string that contains \": \""
	case strings.Contains(problem, "cannot start any token"):
		remedy = "indent with spaces, not tabs, and quote a string that begins with a special character"
	case strings.Contains(problem, "unexpected end of stream"):
		remedy = "close the quote"
	case strings.Contains(problem, "unknown anchor"), strings.Contains(problem, "alphabetic or numeric"):
		remedy = "quote a string that begins with * or &"
	case strings.Contains(problem, "UTF-8"):
		remedy = "save the file as UTF-8"
	}
	d.mistake(line, column, "", "this is not YAML: "+problem, remedy)
}

func isInvalid(r rune) bool {
	return r == utf8.RuneError || unicode.IsControl(r) && r != '\t' && r != '\n'
}

// place returns the line and column of a byte offset in the text.
func (d *decoder) place(offset int) (line, column int) {
	before := d.text[:offset]
	start := strings.LastIndexByte(before, '\n') + 1
	return strings.Count(before, "\n") + 1, utf8.RuneCountInString(before[start:]) + 1
}

// Offset returns the byte offset of a line and column, which start at 1. Columns are counted in characters. If the
// position is after the end of the text, Offset returns the length of the text.
func Offset(text string, line, column int) int {
	start := 0
	for range line - 1 {
		n := strings.IndexByte(text[start:], '\n')
		if n < 0 {
			return len(text)
		}
		start += n + 1
	}
	for i := range text[start:] {
		if column--; column == 0 {
			return start + i
		}
	}
	return len(text)
}

// placeIn converts a byte offset in a scalar's value to a line and column in the file. In all scalar styles, the file
// contains the characters of the value in the same order, but can have quotes, backslashes and white space between
// them. For an offset after the last non-space character, placeIn returns the position after that character. If the
// scalar contains an escape such as \u0041 before the position, placeIn returns the position of the scalar.
func (d *decoder) placeIn(node *yaml.Node, offset int) (line, column int) {
	at := Offset(d.text, node.Line, node.Column)
	switch {
	case node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0: // Skip the header line.
		at += strings.IndexByte(d.text[at:]+"\n", '\n')
	case node.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		at++
	}
	found := false
	for i, r := range node.Value {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			continue
		}
		skipped := strings.IndexRune(d.text[at:], r)
		if skipped < 0 || node.Style&yaml.DoubleQuotedStyle != 0 && strings.ContainsAny(d.text[at:at+skipped], "xuU") {
			return node.Line, node.Column
		}
		at += skipped
		if i >= offset {
			return d.place(at)
		}
		at, found = at+utf8.RuneLen(r), true
	}
	if !found {
		return node.Line, node.Column
	}
	return d.place(at)
}
