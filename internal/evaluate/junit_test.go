package evaluate

import (
	"encoding/xml"
	"strings"
	"testing"
	"time"
)

func TestWriteJUnit(t *testing.T) {
	good := write(t, `tests:
- {name: a, changes: [{add: `+pod+`}], expect: {live: [{operation: added, id: x}]}}
- {name: b, changes: [{add: `+pod+`}], expect: {live: [{operation: added}]}}
`)
	bad := write(t, "tests: [")
	reports := make([]*Results, 2)
	reports[0], _ = output(t, TestOptions{}, good, everything)
	reports[1], _ = output(t, TestOptions{}, bad, everything)
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
	if !strings.HasPrefix(b.String(), xml.Header+"<testsuites>\n") || first.Name != good || first.Tests != 2 ||
		first.Failures != 1 || first.Errors != 0 || first.Cases[1].Name != "b" || first.Cases[1].Failure != nil ||
		first.Cases[1].Seconds != "0.002" || first.Cases[1].File != good || first.Cases[1].Line != 3 ||
		first.Cases[0].Failure == nil || !strings.Contains(first.Cases[0].Failure.Text, "id\n          - \"x\"\n") {
		t.Errorf("the tests of a file:\n%s", b.String())
	}
	second := got.Suites[1]
	if second.Tests != 1 || second.Errors != 1 || second.Cases[0].Error == nil ||
		!strings.Contains(second.Cases[0].Error.Text, "this is not YAML") {
		t.Errorf("an invalid file:\n%s", b.String())
	}
}
