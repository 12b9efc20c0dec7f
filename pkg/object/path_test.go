package object

import (
	"slices"
	"strings"
	"testing"
)

func TestParsePath(t *testing.T) {
	for text, want := range map[string][]string{
		"spec": {"spec"}, "spec.containers[*].env": {"spec", "containers", "", "env"}, "data.*": {"data", ""},
		`metadata.annotations["a/b.c"].x`: {"metadata", "annotations", "a/b.c", "x"}, `["a.b"][*]`: {"a.b", ""}, `a["b]"]["c"]`: {"a", "b]", "c"},
	} {
		if path, err := ParsePath(text); err != nil || !slices.Equal(path, want) {
			t.Errorf("%q: %q, %v", text, path, err)
		}
	}
	for text, problem := range map[string]string{
		"": `"."`, "a..b": `"..b"`, ".a": `"..a"`, "a.": `"."`, "a[0]": `"[0]"`, `a["b`: `"[\"b"`, `a[""]`: `"[\"\"]"`,
		"a[*]b": `"b"`, `a["b"]c`: `"c"`, "*": "everything", "[*].a": "everything", "$.spec": `".$.spec"`, "spec.a b": `" b"`, "/spec/a": `"./spec/a"`, "a[": `"["`,
	} {
		if path, err := ParsePath(text); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%q: %q, %v", text, path, err)
		}
	}
}

// Each step of a path that is taken is written in it, and a path that is written out of its steps is the same.
func FuzzParsePath(f *testing.F) {
	f.Add("spec.containers[*].env[*].value")
	f.Add(`metadata.annotations["example.com/at"]`)
	f.Add(`["a"].b["`)
	f.Fuzz(func(t *testing.T, text string) {
		path, err := ParsePath(text)
		if err != nil {
			return
		}
		var written strings.Builder
		for _, step := range path {
			if step == "" {
				written.WriteString("[*]")
				continue
			}
			if !strings.Contains(text, step) {
				t.Fatalf("%q has a step %q", text, step)
			}
			written.WriteString(`["` + step + `"]`)
		}
		if again, err := ParsePath(written.String()); err != nil || !slices.Equal(again, path) {
			t.Errorf("%q is %q, and written as %q it is %q, %v", text, path, written.String(), again, err)
		}
	})
}
