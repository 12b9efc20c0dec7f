package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryPromiseNamesItsTest: each row of the first table of docs/delivery.md names a test, and each test that the
// page names exists.
func TestEveryPromiseNamesItsTest(t *testing.T) {
	const root = "../.."
	data, err := os.ReadFile(filepath.Join(root, "docs", "delivery.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	tests := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		for _, match := range declared.FindAllSubmatch(source, -1) {
			tests[string(match[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test\\w+)`")
	for _, match := range named.FindAllStringSubmatch(page, -1) {
		if !tests[match[1]] {
			t.Errorf("docs/delivery.md names %s, and there is no such test", match[1])
		}
	}
	_, table, found := strings.Cut(page, "| failure | lost | repeated | order of an object | shown by |\n")
	if !found {
		t.Fatal("docs/delivery.md has no table of failures")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")[1:]
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		if len(cells) != 5 || !named.MatchString(cells[4]) {
			t.Errorf("this row of docs/delivery.md names no test: %.100s", row)
		}
	}
	if len(rows) < 15 {
		t.Errorf("the table of failures has %d rows: it was not read", len(rows))
	}
}
