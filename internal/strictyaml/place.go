package strictyaml

import (
	"bytes"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// syntaxError reports that the text is not valid YAML.
func (d *decoder) syntaxError(data []byte, err error) {
	problem, line, column := err.Error(), 0, 0
	if load, ok := errors.AsType[*yaml.LoadError](err); ok {
		problem, line, column = load.Message, load.Mark.Line, load.Mark.Column
		if strings.Contains(problem, "unexpected end of stream") { // The context is the unclosed quote.
			line, column = load.ContextMark.Line, load.ContextMark.Column
		}
	}
	if line == 0 { // The parser does not report the position of a character that YAML does not allow.
		before := data[:max(0, bytes.IndexFunc(data, isInvalid))]
		start := bytes.LastIndexByte(before, '\n') + 1
		line, column = bytes.Count(before, []byte("\n"))+1, utf8.RuneCount(before[start:])+1
	}
	if lines := bytes.Count(data, []byte("\n")) + 1; line > lines { // The parser counts the end of the text as a line.
		line, column = lines, 1
	}
	d.add(line, column, "", "this is not YAML: "+problem,
		"check the indentation, indent with spaces, close quotes, and quote strings with special characters")
}

func isInvalid(r rune) bool {
	return r == utf8.RuneError || unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r'
}
