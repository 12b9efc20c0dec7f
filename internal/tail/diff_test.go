package tail

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/deltabridge/deltabridge/pkg/pattern"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// printed prints records and returns the lines without their times, with single spaces.
func printed(t *testing.T, o Options, records ...*diagnose.Record) (lines []string) {
	t.Helper()
	var out bytes.Buffer
	o.Out, o.Notes = &out, &out
	p := New(o)
	for _, r := range records {
		if err := p.Print(r); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(out.String()) {
		words := strings.Fields(line)
		if strings.Count(words[0], ":") == 2 {
			words = words[1:]
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return lines
}

// thing is an event about one object, whose data has these fields.
func thing(kind, fields string, attributes ...string) *diagnose.Record {
	return record("object."+kind, `{"kind":"Pod",`+fields+`}`, append(of("pods", "a", "b", "1"), attributes...)...)
}

// What an update is compared with: the last complete state of the object that was printed, or the one in the event.
func TestPreviousStates(t *testing.T) {
	const unknown, line = "(previous state unknown)", "updated pods a/b 1"
	for _, tt := range []struct {
		name    string
		records []*diagnose.Record
		want    []string // after the first record
	}{
		{"an addition", []*diagnose.Record{thing("added", `"x":1`), thing("updated", `"x":2`)}, []string{line, "- /x: 1", "+ /x: 2"}},
		{"a restated object", []*diagnose.Record{thing("restated", `"x":1`), thing("updated", `"x":2`)}, []string{line, "- /x: 1", "+ /x: 2"}},
		{"an update", []*diagnose.Record{thing("updated", `"x":1`), thing("updated", `"y":2`)}, []string{unknown, line, "- /x: 1", "+ /y: 2"}},
		{"a deletion", []*diagnose.Record{thing("added", `"x":1`), thing("deleted", `"x":1`), thing("updated", `"x":2`)}, []string{"deleted pods a/b 1", line, unknown}},
		{
			"an incomplete state",
			[]*diagnose.Record{thing("added", `"x":1`), thing("updated", `"y":1`, "dataomitted=oversize"), thing("updated", `"x":2`)},
			[]string{line + " (data omitted: oversize)", line, unknown},
		},
		{"only the version", []*diagnose.Record{
			thing("added", `"metadata":{"resourceVersion":"1"}`), thing("updated", `"metadata":{"resourceVersion":"2"}`),
		}, []string{line}},
		{"another object", []*diagnose.Record{thing("added", `"x":1`, "uid=other"), thing("updated", `"x":2`)}, []string{line, unknown}},
		{"a control event", []*diagnose.Record{
			thing("added", `"x":1`), record("synced", `{"resource":"pods"}`, "subject=pods"), thing("updated", `"x":2`),
		}, []string{"SYNCED pods 0 objects at", line, "- /x: 1", "+ /x: 2"}},
		{"a Debezium update", []*diagnose.Record{
			thing("added", `"x":1`),
			record("object.updated", `{"before":{"kind":"Pod","x":2},"after":{"kind":"Pod","x":3}}`, of("pods", "a", "b", "1")...),
		}, []string{line, "- /x: 2", "+ /x: 3"}},
		{"multi-line text", []*diagnose.Record{
			thing("added", `"x":"a\nb\nc\nd\n"`), thing("updated", `"x":"a\nB\nd\n"`),
		}, []string{line, "@ /x", "- b", "- c", "+ B"}},
		{"text that was a number", []*diagnose.Record{
			thing("added", `"x":1`), thing("updated", `"x":"a\nb\n"`),
		}, []string{line, "- /x: 1", `+ /x: "a\nb\n"`}},
	} {
		got := printed(t, Options{Diff: true}, tt.records...)
		if diff := cmp.Diff(tt.want, got[1:]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Events are selected by what they are about, whatever their payload. Control events have no namespace and no labels.
func TestSelection(t *testing.T) {
	labeled := `"metadata":{"labels":{"app":"web"}}`
	object := thing("added", labeled)
	change := record(
		"object.updated",
		`{"operation":"updated","object":{"kind":"Pod",`+labeled+`},"old":null}`,
		of("pods", "a", "b", "1")...)
	deployment := record(
		"object.added",
		`{"kind":"Deployment"}`,
		append(of("deployments.apps", "a", "d", "1"), "apiversion=apps/v1")...)
	debezium := record(
		"object.deleted",
		`{"before":{"kind":"Pod",`+labeled+`},"after":null}`,
		of("pods", "a", "b", "1")...)
	gap := record("gap", `{"resource":"pods","reason":"overflow"}`, "subject=pods")
	namespaces, err := pattern.ParseNamespaces([]string{"!a"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		options Options
		want    string
	}{
		{"labels", Options{Selector: labels.SelectorFromSet(labels.Set{"app": "web"})}, "added updated deleted GAP"},
		{"other labels", Options{Selector: labels.SelectorFromSet(labels.Set{"app": "db"})}, "GAP"},
		{"no labels", Options{Selector: labels.Everything()}, "added updated added deleted GAP"},
		{"namespaces", Options{Namespaces: namespaces}, "GAP"},
		{"a version", Options{Resources: pattern.ParseResources([]string{"deployments.v1.apps"})}, "added"},
		{"another version", Options{Resources: pattern.ParseResources([]string{"deployments.v2.apps"})}, ""},
		{"a group", Options{Resources: pattern.ParseResources([]string{"*.apps"})}, "added"},
		{"a resource", Options{Resources: pattern.ParseResources([]string{"pods"})}, "added updated deleted GAP"},
		{"as JSON", Options{Resources: pattern.ParseResources([]string{"*.apps"}), JSON: true}, "{"},
	} {
		var words []string
		for _, line := range printed(t, tt.options, object, change, deployment, debezium, gap) {
			word, _, _ := strings.Cut(line, " ")
			if tt.options.JSON {
				word = word[:1]
			}
			words = append(words, word)
		}
		if got := strings.Join(words, " "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// A message that is not an event is noted, with the reason; one of an unknown type too. The time is that of the event or,
// if it has none, of its storage.
func TestForeignMessages(t *testing.T) {
	unknown := record("object.exploded", `{}`)
	foreign := &diagnose.Record{Place: "K8S #4\x1b[2J", Foreign: errors.New("it has no header ce-id")}
	want := []string{
		"? K8S #1: not an event of Deltabridge (its type is dev.deltabridge.object.exploded)",
		`? K8S #4\x1b[2J: not an event of Deltabridge (it has no header ce-id)`,
	}
	if diff := cmp.Diff(want, printed(t, Options{}, unknown, foreign)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	timeless := thing("added", `"x":1`)
	delete(timeless.Attributes, "time")
	var out bytes.Buffer
	if err := New(
		Options{Out: &out, Notes: &out},
	).Print(timeless); err != nil ||
		!strings.HasPrefix(out.String(), "12:00:00.000  ") {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// broken is a terminal that was closed.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("closed") }

// If the output cannot be written, Print says so, so that tail ends.
func TestWriteErrors(t *testing.T) {
	far := thing("added", `"x":1`)
	far.Behind = farBehind
	var out bytes.Buffer
	for name, tt := range map[string]struct {
		options Options
		record  *diagnose.Record
	}{
		"line":    {Options{Out: broken{}, Notes: &out}, thing("added", `"x":1`)},
		"JSON":    {Options{Out: broken{}, Notes: &out, JSON: true}, thing("added", `"x":1`)},
		"foreign": {Options{Out: broken{}, Notes: &out}, record("object.exploded", `{}`)},
		"lag":     {Options{Out: &out, Notes: broken{}}, far},
	} {
		if err := New(tt.options).Print(tt.record); err == nil || err.Error() != "closed" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
