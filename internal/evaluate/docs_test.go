package evaluate

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
)

// The example in docs/testing.md passes, and fails as the page shows.
func TestExampleInDocs(t *testing.T) {
	var blocks []string
	for _, block := range regexp.MustCompile("(?ms)^```(?:yaml|text)\n(.*?)^```").
		FindAllStringSubmatch(read(t, "../../docs/testing.md"), -1) {
		blocks = append(blocks, block[1])
	}
	if len(blocks) != 3 {
		t.Fatalf("the page has %d blocks", len(blocks))
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("bridge_test.yaml", []byte(blocks[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, out := output(
		t,
		TestOptions{},
		"bridge_test.yaml",
		blocks[0],
	); r.Err != nil ||
		out != "ok  bridge_test.yaml: 2 passed\n" {
		t.Errorf("the example fails:\n%s", out)
	}
	_, out := output(t, TestOptions{}, "bridge_test.yaml", strings.Replace(blocks[0], "[status]", "[spec]", 1))
	if diff := cmp.Diff(blocks[2], out); diff != "" {
		t.Errorf("the output on the page (-page +got):\n%s", diff)
	}
}

// docs/testing.md describes each key of a test file.
func TestKeysInDocs(t *testing.T) {
	_, page, _ := strings.Cut(read(t, "../../docs/testing.md"), "\n## The file\n")
	var documented, keys []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(page, -1) {
		documented = append(documented, row[1])
	}
	for _, part := range []reflect.Type{
		reflect.TypeFor[File](), reflect.TypeFor[Case](), reflect.TypeFor[Change](), reflect.TypeFor[Event](),
	} {
		for _, field := range strictyaml.Fields(part) {
			keys = append(keys, field.Name)
		}
	}
	if !slices.Equal(documented, keys) {
		t.Errorf("(-page +code):\n%s", cmp.Diff(documented, keys))
	}
}
