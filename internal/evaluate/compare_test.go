package evaluate

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

func TestCompareData(t *testing.T) {
	for _, tt := range []struct {
		want, got string
		absent    string
		paths     []string
	}{
		{want: `{"a": {"b": 1}}`, got: `{"a": {"b": 1, "c": 2}, "d": 3}`},
		{want: `{"a": {"b": 1}}`, got: `{"a": {"b": "1"}}`, paths: []string{"data.a.b"}},
		{want: `{"a": {"b": 1}}`, got: `{"a": 1}`, paths: []string{"data.a"}},
		{want: `{"a": null}`, got: `{}`, paths: []string{"data.a"}},
		{want: `{"a": null}`, got: `{"a": null}`},
		{want: `[{"a": 1}, {}]`, got: `[{"a": 1, "b": 2}, {"c": 3}]`},
		{want: `[{"a": 1}]`, got: `[{"a": 1}, {}]`, paths: []string{"data"}},
		{want: `{"x.y": {"a": [1, 2]}}`, got: `{"x.y": {"a": [1, 3]}}`, paths: []string{`data.x.y.a[1]`}},
		{want: `{}`, got: `{"a": [{"b": 1}, {"c": 2}]}`, absent: "a[*].d"},
		{want: `{}`, got: `{"a": [{"b": 1}, {"c": 2}]}`, absent: "a[*].c", paths: []string{"data.a[*].c"}},
		{want: `{}`, got: `{"a": {"b": {"c": 2}}}`, absent: "a[*].c", paths: []string{"data.a[*].c"}},
		{want: `{}`, got: `{"a": 1}`, absent: "a.b"},
	} {
		event, got := &Event{Data: &yaml.Node{}, Absent: strings.Fields(tt.absent)}, &Message{}
		err := utiljson.Unmarshal([]byte(tt.want), &event.data)
		if err := errors.Join(err, utiljson.Unmarshal([]byte(tt.got), &got.data)); err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, d := range event.compare(got) {
			paths = append(paths, d.path)
		}
		if diff := cmp.Diff(tt.paths, paths); diff != "" {
			t.Errorf("%s of %s, without %q (-want +got):\n%s", tt.want, tt.got, tt.absent, diff)
		}
	}
}

// Events that belong together are compared with each other, even if others are missing or superfluous.
func TestAlign(t *testing.T) {
	for name, tt := range map[string]struct{ want, got, pairs string }{
		"the same":             {"added:a updated:b", "added:a updated:b", "1=a 2=b"},
		"another id":           {"added:a updated:b", "added:x updated:b", "1=x 2=b"},
		"the first is missing": {"updated:a updated:b updated:c", "updated:b updated:c", "1=- 2=b 3=c"},
		"one too many":         {"updated:a updated:c", "updated:a updated:b updated:c", "1=a -=b 2=c"},
		"another operation":    {"added:a left:b", "added:a updated:c", "1=a 2=- -=c"},
		"only the operation":   {"added:a left:b", "added:a updated:b", "1=a 2=b"},
		"nothing is expected":  {"", "added:a added:b", "-=a -=b"},
		"nothing is sent":      {"added:a added:b", "", "1=- 2=-"},
	} {
		t.Run(name, func(t *testing.T) {
			var want []Event
			var got []*Message
			for text := range strings.FieldsSeq(tt.want) {
				operation, id, _ := strings.Cut(text, ":")
				want = append(want, Event{Operation: operation, ID: id})
			}
			for text := range strings.FieldsSeq(tt.got) {
				operation, id, _ := strings.Cut(text, ":")
				got = append(got, &Message{operation: operation, ID: id})
			}
			var pairs []string
			for _, p := range align(want, got) {
				number, id := "-", "-"
				if p.want != nil {
					number = strconv.Itoa(p.number)
				}
				if p.got != nil {
					id = p.got.ID
				}
				pairs = append(pairs, number+"="+id)
			}
			if text := strings.Join(pairs, " "); text != tt.pairs {
				t.Errorf("%s, want %s", text, tt.pairs)
			}
		})
	}
}
