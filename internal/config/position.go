package config

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxSearch bounds how many bytes are parsed again, one beginning of the text after the other, to find the place of a
// syntax error. What is left is bisected.
const maxSearch = 1 << 20

// document decodes the whole text into c.
func (d *decoder) document(c *Config) {
	root := reflect.ValueOf(c).Elem()
	d.setDefaults(root)
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

// parseYAML makes a tree of each document.
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

// syntaxError reports that the text is no YAML. The line in yaml.v3's messages is that where something began, off by
// one, or not there at all; so the place is searched for: it is the end of the shortest beginning of the text that
// has the same problem. (For a quote that is never closed that is the quote, since without it the problem is gone.)
func (d *decoder) syntaxError(err error) {
	problem := syntaxProblem(err)
	fails := func(n int) bool {
		_, err := parseYAML(d.text[:n])
		return err != nil && syntaxProblem(err) == problem
	}
	var lines, characters []int // where they end
	for i, r := range d.text {
		if r == '\n' {
			lines = append(lines, i+1)
		}
	}
	end := shortest(append(lines, len(d.text)), fails)
	start := strings.LastIndexByte(d.text[:max(end-1, 0)], '\n') + 1
	for i := range d.text[start:end] {
		characters = append(characters, start+i)
	}
	end = shortest(append(characters, end), fails)
	line, column := 1, 0
	for r := range newRunes(d.text[:end]).all {
		line, column = r.line, r.column
	}
	remedy := "look at the indentation, and put texts with special characters into quotes"
	switch {
	case strings.Contains(problem, "mapping values are not allowed"):
		remedy = "look at the indentation, or put a text with \": \" in it into quotes"
	case strings.Contains(problem, "cannot start any token"):
		remedy = "indent with spaces and not with tabs, and put a text that begins with a special character into quotes"
	case strings.Contains(problem, "unexpected end of stream"):
		remedy = "a quote or bracket is not closed"
	case strings.Contains(problem, "unknown anchor"), strings.Contains(problem, "alphabetic or numeric"):
		remedy = "a text that begins with * or & has to be put into quotes"
	case strings.Contains(problem, "UTF-8"):
		remedy = "save the file as UTF-8"
	}
	d.mistake(line, max(column, 1), "", "this is no YAML: "+problem, remedy)
}

// shortest is the least of the ascending ends from which on all fail. Not by bisection alone: a beginning of the text
// can have the problem for a time, for instance within a quoted text, if the problem is a quote that is not closed.
func shortest(ends []int, fails func(n int) bool) int {
	i := len(ends) - 1
	for budget := maxSearch; i > 0 && budget > 0; i-- {
		if !fails(ends[i-1]) {
			return ends[i]
		}
		budget -= ends[i-1]
	}
	return ends[sort.Search(i, func(k int) bool { return fails(ends[k]) })]
}

// syntaxProblem is the message without its unreliable line.
func syntaxProblem(err error) string {
	problem := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.HasPrefix(problem, "line ") {
		_, problem, _ = strings.Cut(problem, ": ")
	}
	return problem
}

// textRune is a character of the file with its place.
type textRune struct {
	r            rune
	line, column int
}

// runes reads a text with YAML's idea of lines.
type runes struct {
	text         string
	line, column int // of the next one
}

func newRunes(text string) *runes { return &runes{text, 1, 1} }

func (t *runes) next() (textRune, bool) {
	r, size := utf8.DecodeRuneInString(t.text)
	if size == 0 {
		return textRune{}, false
	}
	at := textRune{r, t.line, t.column}
	t.text = t.text[size:]
	t.column++
	crlf := r == '\r' && strings.HasPrefix(t.text, "\n")
	if strings.ContainsRune("\n\r\u0085\u2028\u2029", r) && !crlf {
		t.line, t.column = t.line+1, 1
	}
	return at, true
}

func (t *runes) all(yield func(textRune) bool) {
	for r, ok := t.next(); ok && yield(r); r, ok = t.next() {
	}
}

// placeIn is the place in the file of the byte at offset of a scalar's value. However a scalar is written (plain,
// quoted, as a block, folded), the characters that are no white space stand in the file in the order in which they
// stand in the value, so it is enough to count those. An offset behind the last of them is the place behind it.
func (d *decoder) placeIn(node *yaml.Node, offset int) (line, column int) {
	offset = min(offset, len(node.Value))
	skip := countText(node.Value[:offset])
	if skip == 0 || countText(node.Value[offset:]) > 0 {
		return d.placeOf(node, skip)
	}
	line, column = d.placeOf(node, skip-1)
	return line, column + 1
}

func countText(s string) (n int) {
	for _, r := range s {
		if !unicode.IsSpace(r) {
			n++
		}
	}
	return n
}

// placeOf is the place of the character of a scalar that has skip others in front of it, without white space.
func (d *decoder) placeOf(node *yaml.Node, skip int) (line, column int) {
	line, column = node.Line, node.Column
	if node.Value == "" {
		return line, column
	}
	text := newRunes(d.text)
	for text.line < node.Line || text.line == node.Line && text.column < node.Column {
		if _, ok := text.next(); !ok {
			return line, column
		}
	}
	switch {
	case node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		for text.line == node.Line { // the header: | or >, indicators, a comment
			if _, ok := text.next(); !ok {
				return line, column
			}
		}
	case node.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		text.next()
	}
	for {
		r, ok := text.next()
		if !ok {
			return line, column
		}
		if r.r = unescape(text, r.r, node.Style); unicode.IsSpace(r.r) {
			continue
		}
		line, column = r.line, r.column
		if skip == 0 {
			return line, column
		}
		skip--
	}
}

// unescape reads the rest of an escape sequence that begins with r, and returns what it stands for: a space, if it
// is white space, and else any other character.
func unescape(text *runes, r rune, style yaml.Style) rune {
	if style&yaml.SingleQuotedStyle != 0 && r == '\'' {
		text.next() // a quote is written twice
	}
	if style&yaml.DoubleQuotedStyle == 0 || r != '\\' {
		return r
	}
	escaped, _ := text.next()
	var digits int
	switch escaped.r {
	case 'n', 't', 'r', 'v', 'f', 'N', '_', 'L', 'P':
		return ' '
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	default:
		return escaped.r
	}
	var code rune
	for range digits {
		digit, _ := text.next()
		code = code<<4 | rune(max(0, bytes.IndexRune([]byte("0123456789abcdef"), unicode.ToLower(digit.r))))
	}
	return code
}
