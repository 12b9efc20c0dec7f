package state

import (
	"os"
	"strings"
	"testing"
)

// What docs/consuming.md shows is in the examples, word for word.
func TestConsumingPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/consuming.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, file := range []string{
		"state.go", "../../../test/e2e/testdata/schemaregistry/consumer.py",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	snippets := 0
	for _, kind := range []string{"go", "python"} {
		for _, rest := range strings.Split(string(page), "\n```"+kind+"\n")[1:] {
			snippet, _, _ := strings.Cut(rest, "```\n")
			snippets++
			if !strings.Contains(code.String(), "\n"+snippet) {
				t.Errorf("this is in no example:\n%s", snippet)
			}
		}
	}
	if snippets != 2 {
		t.Errorf("%d snippets", snippets)
	}
}
