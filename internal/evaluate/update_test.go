package evaluate

import (
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const updated = `sinks:
- {name: live, payload: metadata, nats: {url: "nats://a:4222", stream: {name: A}, subject: "a.{name}"}}
- {name: lines, stdout: {}}
`

const outdated = `# A file.

tests:
  # The first test.
  - name: a   # its name
    changes:
      - add: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web, labels: {a: "1", b: c}}}
      - patch: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web, labels: {b: d}}}

    # What comes.
    expect:   # of the sinks
      # The lines.
      lines: []
      live:
        # The first event.
        - operation: added
          subject: 'b.web' # where to
          headers: {ce-name: "x", ce-kind: Pod, ce-x: y}
          data:
            # the labels
            metadata: {labels: {a: "2", b: c}, name: web, gone: 1} # in part
          absent: [metadata.labels.b, metadata.annotations]
        # Too much.
        - operation: deleted
          id: pods/shop/web.deleted
      # After the events.

  # The second test, which passes.
  - expect: {live: [{operation: added}]}
    name: b
    changes: [{add: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}}}]
  - expect: {live: [], lines: [{operation: left, id: none}]} # nothing
    name: c
    changes: [{add: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}}}]
  - name: d
    changes: [{add: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}}}]
    expect:
      live:
        - operation: added
          absent:
            - metadata.name
            - metadata.labels
            # After the paths.

# The end.
`

const current = `# A file.

tests:
  # The first test.
  - name: a   # its name
    changes:
      - add: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web, labels: {a: "1", b: c}}}
      - patch: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web, labels: {b: d}}}

    # What comes.
    expect: # of the sinks
      # The lines.
      lines:
        - operation: added
`

// With Update, the file then has the events that were sent. Only the lines of `expect` change, and the tests pass.
func TestUpdate(t *testing.T) {
	file := write(t, outdated)
	if r, out := output(t, TestOptions{Update: true}, file, updated); r.Err != nil || out != "ok  "+file+": updated\n" {
		t.Fatal(out)
	}
	text := read(t, file)
	if !strings.HasPrefix(text, current) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(current, text[:min(len(text), len(current))]))
	}
	for _, part := range []string{
		"\n        - operation: added\n          subject: a.web\n          headers:\n            ce-kind: Pod\n",
		"\n          data:\n            metadata:\n              labels:\n                a: '1'\n                b: c\n              name: web\n",
		"\n          absent:\n            - metadata.annotations\n",
		"\n        - operation: updated\n          id: pods/shop/web.1002\n          subject: a.web\n          data:\n",
		"\n      # After the events.\n\n  # The second test, which passes.\n  - expect: {live: [{operation: added}]}\n    name: b\n",
		"\n  - expect:\n      live:\n        - operation: added\n          id: pods/shop/web.1001\n",
		"\n      lines:\n        - operation: added\n          id: pods/shop/web.1001\n          data:\n",
		"\n          absent:\n            - metadata.labels\n            # After the paths.\n\n# The end.\n",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("the file lacks %q:\n%s", part, text)
		}
	}
	for _, part := range []string{"operation: deleted", "gone: 1", "operation: left"} {
		if strings.Contains(text, part) {
			t.Errorf("the file still has %s:\n%s", part, text)
		}
	}
	if strings.Count(text, "# After the events.") != 1 || strings.Count(text, "# After the paths.") != 1 {
		t.Errorf("what follows has changed:\n%s", text)
	}
	for range 2 {
		if r, out := output(t, TestOptions{Update: true}, file, updated); r.Err != nil || out != "ok  "+file+": 4 passed\n" {
			t.Errorf("the updated file fails:\n%s\n%s", out, read(t, file))
		}
	}
}

// A test in braces cannot be updated, and its file stays as it is.
func TestUpdateInBraces(t *testing.T) {
	text := "tests: [{name: a, changes: [{add: " + pod + "}], expect: {live: []}}]\n"
	file := write(t, text)
	r, _ := output(t, TestOptions{Update: true}, file, updated)
	if r.Err == nil ||
		!strings.Contains(r.Err.Error(), file+": cannot be updated: write each key of the tests on lines") ||
		read(t, file) != text {
		t.Error(r.Err, read(t, file))
	}
}

func TestWriteJUnit(t *testing.T) {
	good, bad := write(t, outdated), write(t, "tests: [")
	reports := make([]*Results, 2)
	reports[0], _ = output(t, TestOptions{}, good, updated)
	reports[1], _ = output(t, TestOptions{}, bad, updated)
	for n := range reports[0].Results {
		reports[0].Results[n].Took = 1500 * time.Microsecond
	}
	var b strings.Builder
	if err := WriteJUnit(&b, reports); err != nil {
		t.Fatal(err)
	}
	var got junit
	if err := xml.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	first := got.Suites[0]
	if !strings.HasPrefix(b.String(), xml.Header+"<testsuites>\n") || first.Name != good || first.Tests != 4 ||
		first.Failures != 3 || first.Errors != 0 || first.Cases[1].Name != "b" || first.Cases[1].Failure != nil ||
		first.Cases[1].Seconds != "0.002" || first.Cases[1].File != good || first.Cases[1].Line != 29 ||
		first.Cases[0].Failure == nil || !strings.Contains(first.Cases[0].Failure.Text, "subject\n          - \"b.web\"\n") {
		t.Errorf("the tests of a file:\n%s", b.String())
	}
	second := got.Suites[1]
	if second.Tests != 1 || second.Errors != 1 || second.Cases[0].Error == nil ||
		!strings.Contains(second.Cases[0].Error.Text, "this is not YAML") {
		t.Errorf("an invalid file:\n%s", b.String())
	}
}
