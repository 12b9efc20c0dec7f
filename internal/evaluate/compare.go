package evaluate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// difference is a value that is not the expected one. An empty want or got means that there is no such value.
type difference struct{ path, want, got string }

// pair is an expected event and the message that was sent in its place. One of them is nil if there is no such event.
type pair struct {
	number      int // of the expected event, from 1
	want        *Event
	got         *Message
	differences []difference
}

// fails reports whether an event was not sent as expected.
func (p *pair) fails() bool { return p.want == nil || p.got == nil || len(p.differences) > 0 }

// cost is what the pair counts when align chooses which events belong together. A pair with the same operation always
// counts less than two events without a pair. A pair with different operations counts as much as these, and more if
// there is another difference.
func (p *pair) cost() int {
	const alone = 2
	switch n := len(p.differences); {
	case p.want == nil || p.got == nil:
		return alone
	case p.want.Operation != p.got.operation:
		return 2*alone - 1 + n
	default:
		return min(2*alone-1, n)
	}
}

// align pairs the expected events of a sink with those that were sent, in their order, with as few differences as
// possible.
func align(want []Event, got []*Message) []pair {
	type match struct {
		pairs []pair
		cost  int
	}
	best := map[[2]int]match{{}: {}} // of the first events of both
	for i := range len(want) + 1 {
		for j := range len(got) + 1 {
			found := match{cost: math.MaxInt}
			try := func(after [2]int, p pair) {
				if before := best[after]; before.cost+p.cost() < found.cost {
					found = match{append(slices.Clip(before.pairs), p), before.cost + p.cost()}
				}
			}
			if i > 0 && j > 0 {
				w := &want[i-1]
				try([2]int{i - 1, j - 1}, pair{i, w, got[j-1], w.compare(got[j-1])})
			}
			if j > 0 {
				try([2]int{i, j - 1}, pair{got: got[j-1]})
			}
			if i > 0 {
				try([2]int{i - 1, j}, pair{number: i, want: &want[i-1]})
			}
			if i > 0 || j > 0 {
				best[[2]int{i, j}] = found
			}
		}
	}
	return best[[2]int{len(want), len(got)}].pairs
}

// compare returns how a message differs from the expected event.
func (e *Event) compare(got *Message) (all []difference) {
	text := func(path, want, got string) {
		if want != got {
			all = append(all, difference{path, quote(want), quote(got)})
		}
	}
	text("operation", e.Operation, got.operation)
	text("id", cmp.Or(e.ID, got.ID), got.ID)
	text("subject", cmp.Or(e.Subject, got.Subject), got.Subject)
	text("topic", cmp.Or(e.Topic, got.Topic), got.Topic)
	text("key", cmp.Or(e.Key, got.Key), got.Key)
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		text("headers."+name, e.Headers[name], got.headers[name])
	}
	for _, name := range slices.Sorted(maps.Keys(e.Attributes)) {
		text("attributes."+name, e.Attributes[name], got.Attributes[name])
	}
	if e.Data != nil {
		all = append(all, contains("data", e.data, got.data)...)
	}
	for _, path := range e.Absent {
		if value, found := lookUp(path, got.data); found {
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
				all = append(all, contains(path+"."+key, w[key], value)...)
			} else {
				all = append(all, difference{path: path + "." + key, want: jsonText(w[key])})
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

// lookUp returns a value at a path.
func lookUp(path string, in any) (value any, found bool) {
	steps, _ := object.ParsePath(path) // validated
	return walk(steps, in)
}

// walk returns a value after some steps. An empty step means any element or member.
func walk(steps []string, in any) (value any, found bool) {
	if len(steps) == 0 {
		return in, true
	}
	members, _ := in.(map[string]any)
	if list, ok := in.([]any); ok && steps[0] == "" {
		members = map[string]any{}
		for n, element := range list {
			members[strconv.Itoa(n)] = element
		}
	}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		if steps[0] == "" || steps[0] == key {
			if value, found = walk(steps[1:], members[key]); found {
				break
			}
		}
	}
	return value, found
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
