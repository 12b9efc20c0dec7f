package configtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// difference is a value that is not the expected one. An empty want or got means that there is no such value.
type difference struct{ path, want, got string }

// pair is an expected event and the one that was sent in its place. One of them is nil if there is no such event.
type pair struct {
	number      int // of the expected event, from 1
	want        *Event
	got         *sent
	differences []difference
}

// absentCost is what a missing or superfluous event counts, compared with a difference within an event, when align
// chooses which events belong together. A pair with the same operation always counts less than two such events. A pair
// with different operations counts as much as these, and more if there is another difference.
const absentCost = 2

// cost returns what a pair of an expected event and one that was sent counts.
func cost(want *Event, got *sent) int {
	differences := len(want.compare(got))
	if want.Operation != got.operation {
		return 2*absentCost - 1 + differences
	}
	return min(2*absentCost-1, differences)
}

// align pairs the expected events of a sink with those that were sent, in their order, with as few differences as
// possible.
func align(want []Event, got []*sent) (pairs []pair) {
	// least[i][j] is the least cost of want[i:] and got[j:].
	least := make([][]int, len(want)+1)
	for i := range least {
		least[i] = make([]int, len(got)+1)
	}
	for i := len(want); i >= 0; i-- {
		for j := len(got); j >= 0; j-- {
			switch {
			case i == len(want):
				least[i][j] = absentCost * (len(got) - j)
			case j == len(got):
				least[i][j] = absentCost * (len(want) - i)
			default:
				least[i][j] = min(cost(&want[i], got[j])+least[i+1][j+1], absentCost+min(least[i+1][j], least[i][j+1]))
			}
		}
	}
	for i, j := 0, 0; i < len(want) || j < len(got); {
		switch {
		case i < len(want) && j < len(got) && least[i][j] == cost(&want[i], got[j])+least[i+1][j+1]:
			pairs = append(pairs, pair{i + 1, &want[i], got[j], want[i].compare(got[j])})
			i, j = i+1, j+1
		case j == len(got) || i < len(want) && least[i][j] == absentCost+least[i+1][j]:
			pairs = append(pairs, pair{number: i + 1, want: &want[i]})
			i++
		default:
			pairs = append(pairs, pair{got: got[j]})
			j++
		}
	}
	return pairs
}

// compare returns how an event differs from the expected one.
func (e *Event) compare(got *sent) (all []difference) {
	text := func(path, want, got string) {
		if want != "" && want != got {
			all = append(all, difference{path, quote(want), quote(got)})
		}
	}
	text("operation", e.Operation, got.operation)
	text("id", e.ID, got.id)
	text("subject", e.Subject, got.Subject)
	text("topic", e.Topic, got.Topic)
	text("key", e.Key, got.Key)
	for _, part := range []struct {
		name      string
		want, got map[string]string
	}{{"headers", e.Headers, got.headers}, {"attributes", e.Attributes, got.attributes}} {
		for _, name := range slices.Sorted(maps.Keys(part.want)) {
			if want, got := part.want[name], part.got[name]; want != got {
				all = append(all, difference{step(part.name, name), quote(want), quote(got)})
			}
		}
	}
	if e.Data != nil {
		all = append(all, contains("data", e.data, got.data)...)
	}
	for _, path := range e.Absent {
		steps, _ := object.ParsePath(path) // validated
		if value, found := lookUp(steps, got.data); found {
			all = append(all, difference{"data." + path, "", jsonText(value)})
		}
	}
	if got.rejected != "" {
		all = append(all, difference{"the destination rejects the message", "", got.rejected})
	}
	return all
}

// contains returns the parts of want that got does not have.
func contains(path string, want, got any) (all []difference) {
	switch w := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok {
			break
		}
		for _, key := range slices.Sorted(maps.Keys(w)) {
			if value, found := object[key]; found {
				all = append(all, contains(step(path, key), w[key], value)...)
			} else {
				all = append(all, difference{path: step(path, key), want: jsonText(w[key])})
			}
		}
		return all
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(w) {
			break
		}
		for n := range w {
			all = append(all, contains(path+"["+strconv.Itoa(n)+"]", w[n], list[n])...)
		}
		return all
	}
	if reflect.DeepEqual(want, got) {
		return nil
	}
	return []difference{{path, jsonText(want), jsonText(got)}}
}

// lookUp returns a value at a path. An empty step means any element or member.
func lookUp(path []string, in any) (value any, found bool) {
	if len(path) == 0 {
		return in, true
	}
	switch in := in.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(in)) {
			if path[0] == "" || path[0] == key {
				if value, found = lookUp(path[1:], in[key]); found {
					return value, true
				}
			}
		}
	case []any:
		for n := range in {
			if path[0] == "" {
				if value, found = lookUp(path[1:], in[n]); found {
					return value, true
				}
			}
		}
	}
	return nil, false
}

var plainKey = regexp.MustCompile(`^[^\s.\[\]"'$@?*/]+$`)

// step adds a key to a path, in the notation of object.ParsePath.
func step(path, key string) string {
	if plainKey.MatchString(key) {
		return path + "." + key
	}
	return fmt.Sprintf(`%s["%s"]`, path, key)
}

func jsonText(value any) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // it comes from JSON
	return strings.TrimSuffix(text.String(), "\n")
}

// quote quotes a text. The result is empty for an empty text, which means that there is none.
func quote(text string) string {
	if text == "" {
		return ""
	}
	return strconv.Quote(text)
}
