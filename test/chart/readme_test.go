package chart

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// chartVersion is the appVersion of the chart.
func chartVersion(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(chartDir + "/Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`(?m)^appVersion: (\S+)$`).FindStringSubmatch(string(text))
	if match == nil {
		t.Fatal("Chart.yaml has no appVersion")
	}
	return match[1]
}

// The links of README.md work in the packed chart too: they are absolute, and lead to files and headings of this version.
func TestReadmeLinks(t *testing.T) {
	text, err := os.ReadFile(chartDir + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	links := regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(string(text), -1)
	if len(links) < 4 {
		t.Errorf("%d links", len(links))
	}
	prefix := regexp.MustCompile(
		`^https://github\.com/deltabridge/deltabridge/(?:blob|tree)/v` + regexp.QuoteMeta(chartVersion(t)) + `/`,
	)
	for _, link := range links {
		path := prefix.ReplaceAllString(link[1], "")
		if path == link[1] {
			t.Errorf("%s does not lead to a file of the chart's version", link[1])
			continue
		}
		path, fragment, _ := strings.Cut(path, "#")
		page, err := os.ReadFile(root + "/" + path)
		if err != nil && !strings.Contains(link[1], "/tree/") {
			t.Error(err)
		}
		if _, err := os.Stat(root + "/" + path); err != nil {
			t.Error(err)
		}
		heading := regexp.MustCompile(`(?im)^#+ ` + strings.ReplaceAll(regexp.QuoteMeta(fragment), "-", "[ -]") + `$`)
		if fragment != "" && !heading.Match(page) {
			t.Errorf("%s: there is no such heading", link[1])
		}
	}
}

// README.md is the output of helm-docs for README.md.gotmpl and the comments in values.yaml.
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
