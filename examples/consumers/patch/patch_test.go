package patch

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// change is that of docs/events.md, which is what the bridge sends.
type change struct{ Object, Old, Patch json.RawMessage }

func example(t *testing.T) (c change) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## The payload `change`\n")
	_, block, _ := strings.Cut(section, "```json\n")
	block, _, _ = strings.Cut(block, "\n```")
	if err := json.Unmarshal([]byte(block), &c); err != nil {
		t.Fatalf("%v: %s", err, block)
	}
	return c
}

func value(t *testing.T, text []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

func TestApply(t *testing.T) {
	c := example(t)
	merge := []byte(
		` {"metadata":{"resourceVersion":"48213"},"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:2"}]}}}}`,
	)
	for _, patch := range [][]byte{c.Patch, merge} {
		got, err := Apply(c.Old, patch)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(value(t, c.Object), value(t, got)); diff != "" {
			t.Errorf("after %s:\n%s", patch, diff)
		}
	}
	if _, err := Apply(c.Old, []byte(`[{"op":"remove","path":"/none"}]`)); err == nil {
		t.Error("a patch of another state was applied")
	}
	if _, err := Apply(c.Old, []byte(`"x"`)); err == nil {
		t.Error("no patch was applied")
	}
}
