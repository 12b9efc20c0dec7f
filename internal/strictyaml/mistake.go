package strictyaml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Mistake describes one mistake in a file.
type Mistake struct { //nolint:errname // the documents speak of mistakes in a file
	File    string `json:"file,omitempty"` // empty if the text does not come from a file
	Line    int    `json:"line"`           // starts at 1
	Column  int    `json:"column"`         // starts at 1; counted in characters
	Path    string `json:"path,omitempty"` // the path of the value, as in sinks[0].nats.subject; empty for the whole file
	Problem string `json:"problem"`        // describes the mistake
	Remedy  string `json:"remedy"`         // describes how to correct the mistake
}

// Error formats the mistake as a single line: file:line:column: path: problem (remedy).
func (m *Mistake) Error() string {
	text := fmt.Sprintf("%s (%s)", m.Problem, m.Remedy)
	if m.Path != "" {
		text = m.Path + ": " + text
	}
	if m.File != "" {
		text = fmt.Sprintf("%s:%d:%d: %s", m.File, m.Line, m.Column, text)
	}
	return text
}

// joined sorts the mistakes and joins them. It returns nil if there are none.
func joined(mistakes []*Mistake) error {
	slices.SortStableFunc(mistakes, func(a, b *Mistake) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	var errs []error
	for _, m := range mistakes {
		errs = append(errs, m)
	}
	return errors.Join(errs...)
}

// Mistakes returns the mistakes that an error of this package joins. It returns nil for another error.
func Mistakes(err error) []*Mistake {
	joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err)
	if !ok {
		return nil
	}
	var mistakes []*Mistake
	for _, err := range joined.Unwrap() {
		if m, ok := errors.AsType[*Mistake](err); ok {
			mistakes = append(mistakes, m)
		}
	}
	return mistakes
}
