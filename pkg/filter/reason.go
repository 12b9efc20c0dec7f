package filter

import (
	"errors"
	"slices"
	"strings"
)

// reason says why an evaluation failed, for the log and for Explain. CEL's own words quote what the expression worked on (a
// string that is not a number, a time or a pattern), and that may be a secret: only words that are known to have nothing of the
// object in them are passed on.
func (e *expression) reason(err error) string {
	if errors.Is(err, errBytes) || errors.Is(err, errNotBool) {
		return oneLine(err) // our own
	}
	message := oneLine(err)
	if key, ok := strings.CutPrefix(message, "no such key: "); ok {
		if strings.Contains(e.text, key) {
			return message
		}
		return "no such key"
	}
	known := []string{
		"no such overload", "division by zero", "modulus by zero", "integer overflow", "unsigned integer overflow", "type conversion error", "index out of bounds", "cost limit exceeded",
		"operation cancelled: actual cost limit exceeded", errMalformed.Error(),
	}
	if n := slices.IndexFunc(known, func(words string) bool { return strings.HasPrefix(message, words) }); n >= 0 {
		return known[n]
	}
	return "a function does not take its argument (its value is not shown, for it may be a secret)"
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", " ") }
