package chart

import (
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// README.md is what helm-docs makes of README.md.gotmpl and the comments in values.yaml.
func TestReadmeIsCurrent(t *testing.T) {
	want, _, err := command(t, tools.helmDocs, "--chart-search-root", chartDir, "--dry-run", "--log-level", "warning",
		"--sort-values-order", "file", "--skip-version-footer", "--document-dependency-values=false")
	if err != nil {
		t.Fatal(err)
	}
	if undescribed := regexp.MustCompile(`(?m)^\| (\S+) .*\|  \|$`).FindString(want); undescribed != "" {
		t.Errorf("without a description in values.yaml: %s", undescribed)
	}
	file := chartDir + "/README.md"
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not up to date: run make chart (-want +got):\n%s", file, diff)
	}
}
