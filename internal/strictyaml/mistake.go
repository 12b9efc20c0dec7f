package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Mistake is one thing that is wrong in a file.
type Mistake struct {
	File string
	// Line and Column count from 1, and columns in characters. Both are 0 if the file as a whole is meant, for
	// instance because it can't be read.
	Line, Column int
	Path         string // of the value, as in sinks[0].nats.subject; empty for the file as a whole
	Problem      string // what is wrong
	Remedy       string // what to do about it; empty where the problem says it
}

// String returns the mistake on one line: file:line:column: path: problem (remedy).
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

// Errors is every mistake of a file, in the order of their places. It is never empty.
type Errors struct { //nolint:errname // it is all errors of a file and not one
	Mistakes []*Mistake
}

// Error has one line for each mistake.
func (e *Errors) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = m.String()
	}
	return strings.Join(lines, "\n")
}

// sorted returns the error of the mistakes, nil if there are none.
func sorted(mistakes []*Mistake) error {
	if len(mistakes) == 0 {
		return nil
	}
	slices.SortStableFunc(mistakes, func(a, b *Mistake) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &Errors{mistakes}
}
