package evaluate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/internal/console"
)

// Each example has tests, and they pass. Each of them tests all sinks of its example.
func TestExamples(t *testing.T) {
	examples, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatalf("there are no examples (%v)", err)
	}
	for _, example := range examples {
		name := strings.TrimSuffix(filepath.Base(example), ".yaml")
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("../../examples/tests", name+"_test.yaml")
			r := TestOptions{}.Test(file)
			if r.Err != nil || r.Failed() > 0 || len(r.Results) == 0 {
				t.Fatal(r.WriteTable(os.Stderr, console.Style{}))
			}
			f, err := load(file)
			if err != nil || filepath.Clean(f.Config) != example {
				t.Fatalf("it tests %s, %v", f.Config, err)
			}
			for line := range strings.SplitSeq(read(t, example), "\n") {
				sink, found := strings.CutPrefix(line, "  - name: ")
				sink, _, _ = strings.Cut(sink, " ")
				tested := false
				for n := range f.Tests {
					_, named := f.Tests[n].Expect[sink]
					tested = tested || named
				}
				if found && !tested {
					t.Errorf("no test names the sink %s", sink)
				}
			}
		})
	}
}
