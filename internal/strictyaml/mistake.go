package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Mistake describes one mistake in a file.
type Mistake struct {
	File string
	// Line and Column start at 1. Columns are counted in characters. Both are 0 if the mistake concerns the whole file,
	// for example because the file cannot be read.
	Line, Column int
	Path         string // the path of the value, as in sinks[0].nats.subject; empty for the whole file
	Problem      string // describes the mistake
	Remedy       string // describes how to correct the mistake; may be empty
}

// String formats the mistake as a single line: file:line:column: path: problem (remedy).
func (m *Mistake) String() string {
	var b strings.Builder
	if m.File != "" {
		b.WriteString(m.File)
		if m.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", m.Line, m.Column)
		}
		b.WriteString(": ")
	}
	if m.Path != "" {
		b.WriteString(m.Path + ": ")
	}
	b.WriteString(m.Problem)
	if m.Remedy != "" {
		b.WriteString(" (" + m.Remedy + ")")
	}
	return b.String()
}

// Errors contains all mistakes in a file, sorted by position. It always contains at least one mistake.
type Errors struct { //nolint:errname // it has all errors of a file, not one
	Mistakes []*Mistake
}

// Error returns one line per mistake.
func (e *Errors) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = m.String()
	}
	return strings.Join(lines, "\n")
}

// sorted returns the sorted mistakes as an error, or nil if there are none.
func sorted(mistakes []*Mistake) error {
	if len(mistakes) == 0 {
		return nil
	}
	slices.SortStableFunc(mistakes, func(a, b *Mistake) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &Errors{mistakes}
}
