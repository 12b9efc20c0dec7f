package strictyaml

import (
	"errors"
	"io"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxSearch bounds how many bytes are parsed again, one beginning of the text after the other, to find the place of a
// syntax error. What is left is bisected.
const maxSearch = 1 << 20

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

// syntaxError reports that the text is not YAML. The line in yaml.v3's messages is that where something began, off by
// one, or missing; so the place is searched for: it is the end of the shortest beginning of the text that has the same
// problem. (For a quote that is never closed that is the quote, since without it the problem is gone.)
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
	_, size := utf8.DecodeLastRuneInString(d.text[:end])
	before := splitLines(d.text[:end-size])
	remedy := "look at the indentation, and put strings with special characters into quotes"
	switch {
	case strings.Contains(problem, "mapping values are not allowed"):
		remedy = "look at the indentation, or put a string with \": \" in it into quotes"
	case strings.Contains(problem, "cannot start any token"):
		remedy = "indent with spaces and not with tabs, and put a string that begins with a special character into quotes"
	case strings.Contains(problem, "unexpected end of stream"):
		remedy = "a quote or bracket is not closed"
	case strings.Contains(problem, "unknown anchor"), strings.Contains(problem, "alphabetic or numeric"):
		remedy = "a string that begins with * or & has to be put into quotes"
	case strings.Contains(problem, "UTF-8"):
		remedy = "save the file as UTF-8"
	}
	d.mistake(len(before), len(before[len(before)-1])+1, "", "this is not YAML: "+problem, remedy)
}

// shortest is the least of the ascending ends from which on all fail. Not by bisection alone: a beginning of the text
// can have the problem for a time, for instance within a quoted string, if the problem is a quote that is not closed.
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

// splitLines returns the characters of each line, with YAML's idea of lines.
func splitLines(text string) (lines [][]rune) {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n").Replace(text)
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, []rune(line))
	}
	return lines
}

// placeIn is the place in the file of the byte at offset of a scalar's value. However a scalar is written (plain,
// quoted, as a block, folded), the characters that are not white space are in the file in the order in which they
// are in the value, so it is enough to count those. An offset behind the last of them is the place behind it. Behind a
// character by its code, as in \u0041, the place is that of the scalar.
func (d *decoder) placeIn(node *yaml.Node, offset int) (line, column int) {
	skip := countText(node.Value[:min(offset, len(node.Value))])
	all := countText(node.Value)
	if all == 0 {
		return node.Line, node.Column
	}
	behind := 0
	if skip == all {
		skip, behind = skip-1, 1
	}
	line, column = node.Line, node.Column
	switch {
	case node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0: // behind the header: | or >, indicators, a comment
		line, column = line+1, 1
	case node.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		column++
	}
	lines := splitLines(d.text)
	for ; line <= len(lines); line, column = line+1, 1 {
		for characters := lines[line-1]; column <= len(characters); column++ {
			r := characters[column-1]
			if unicode.IsSpace(r) {
				continue
			}
			at := column
			switch {
			case r == '\'' && node.Style&yaml.SingleQuotedStyle != 0:
				column++ // it is written twice
			case r == '\\' && node.Style&yaml.DoubleQuotedStyle != 0 && column < len(characters):
				column++
				if escaped := characters[column-1]; strings.ContainsRune("xuU", escaped) {
					return node.Line, node.Column
				} else if strings.ContainsRune("ntrvfN_LP ", escaped) {
					continue // white space
				}
			case r == '\\' && node.Style&yaml.DoubleQuotedStyle != 0:
				continue // the line goes on
			}
			if skip == 0 {
				return line, at + behind
			}
			skip--
		}
	}
	return node.Line, node.Column
}

func countText(s string) (n int) {
	for _, r := range s {
		if !unicode.IsSpace(r) {
			n++
		}
	}
	return n
}
