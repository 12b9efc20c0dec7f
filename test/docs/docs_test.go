package docs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/internal/files"
)

const root = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// section returns the lines below a heading, up to the next heading.
func section(t *testing.T, text, heading string) []string {
	t.Helper()
	_, after, found := strings.Cut(text, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("there is no section %q", heading)
	}
	body, _, _ := strings.Cut(after, "\n## ")
	return strings.Split(body, "\n")
}

var quoted = regexp.MustCompile("`([^`]+)`")

// imports returns the packages of this module that each package imports, without those that only tests import.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	const module = "github.com/deltabridge/deltabridge/"
	list := exec.CommandContext(
		t.Context(),
		"go",
		"list",
		"-json=ImportPath,Imports",
		"./cmd/...",
		"./pkg/...",
		"./internal/...",
		"./docs/...",
	)
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string][]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		var own []string
		for _, path := range p.Imports {
			if path, ok := strings.CutPrefix(path, module); ok {
				own = append(own, path)
			}
		}
		packages[strings.TrimPrefix(p.ImportPath, module)] = own
	}
}

func TestImportTable(t *testing.T) {
	place := map[string]int{}
	for _, row := range section(t, read(t, "ARCHITECTURE.md"), "Imports") {
		cells := strings.Split(row, "|")
		if len(cells) < 3 {
			continue
		}
		for _, name := range quoted.FindAllStringSubmatch(cells[2], -1) {
			if _, again := place[name[1]]; again {
				t.Errorf("%s is in the table twice", name[1])
			}
			place[name[1]] = len(place)
		}
	}
	packages := imports(t)
	for name := range place {
		if _, ok := packages[name]; !ok {
			t.Errorf("the table names %s, which does not exist", name)
		}
	}
	for name, imported := range packages {
		at, ok := place[name]
		if !ok {
			t.Errorf("%s is not in the table", name)
			continue
		}
		for _, other := range imported {
			if where, ok := place[other]; ok && where > at {
				t.Errorf("%s imports %s, which follows it in the table", name, other)
			}
		}
	}
}

// TestFileMap: each path in the file map exists. A path is one from the root, or from the directory of the path before
// it, or from a directory above that.
func TestFileMap(t *testing.T) {
	paths := 0
	for _, row := range section(t, read(t, "ARCHITECTURE.md"), "File map") {
		cells := strings.Split(row, "|")
		if len(cells) < 4 {
			continue
		}
		dir := "."
		for _, name := range quoted.FindAllStringSubmatch(cells[2], -1) {
			if !strings.Contains(name[1], "/") && !strings.HasSuffix(name[1], ".go") {
				continue // an identifier
			}
			path, ok := find(dir, name[1])
			if !ok {
				t.Errorf("%s: there is no %s", strings.TrimSpace(cells[1]), name[1])
				continue
			}
			paths++
			if dir = path; filepath.Ext(path) != "" {
				dir = filepath.Dir(path)
			}
		}
	}
	if paths < 100 {
		t.Errorf("only %d paths were found in the file map", paths)
	}
}

// find returns the path of a file or directory, by its name in a directory or in one above that.
func find(dir, name string) (path string, ok bool) {
	for path = filepath.Join(dir, name); ; path = filepath.Join(dir, name) {
		if _, err := os.Stat(filepath.Join(root, path)); err == nil {
			return path, true
		}
		if dir == "." {
			return "", false
		}
		dir = filepath.Dir(dir)
	}
}

var (
	link         = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	notInAnchors = regexp.MustCompile(`[^\pL\pN\s_-]`)
	ownAnchor    = regexp.MustCompile(`(?:id|name)="([^"]+)"`)
	// repository matches the links of the chart's README, which is also read outside of the repository.
	repository = regexp.MustCompile(`^https://github\.com/deltabridge/deltabridge/(?:blob|tree)/(?:main|v[^/]+)/(.+)`)
)

// TestLinks: links in Markdown files to this repository lead to files, and those with a fragment to headings, that exist.
func TestLinks(t *testing.T) {
	var pages []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			pages = append(pages, path)
		}
		return nil
	})
	if err != nil || len(pages) < 20 {
		t.Fatalf("found %d pages: %v", len(pages), err)
	}
	known := map[string][]string{} // the anchors of each page that a link names
	anchorsOf := func(path string) []string {
		if known[path] == nil {
			known[path] = anchors(t, path)
		}
		return known[path]
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target, fragment, _ := strings.Cut(m[1], "#")
			path := page
			if own := repository.FindStringSubmatch(target); own != nil {
				path = filepath.Join(root, own[1])
			} else if strings.Contains(target, ":") {
				continue
			} else if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %s does not exist", page, m[1])
			} else if fragment != "" && filepath.Ext(path) == ".md" && !slices.Contains(anchorsOf(path), fragment) {
				t.Errorf("%s: %s: there is no such heading", page, m[1])
			}
		}
	}
}

// anchors returns the fragments of a page's headings, as GitHub derives them, and those that the page sets itself.
func anchors(t *testing.T, path string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			heading = notInAnchors.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			all = append(all, strings.ReplaceAll(heading, " ", "-"))
		}
		for _, m := range ownAnchor.FindAllStringSubmatch(line, -1) {
			all = append(all, m[1])
		}
	}
	return all
}

var (
	testName = regexp.MustCompile("`(Test[A-Z]\\w*)(?:/(\\w+))?`")
	testFunc = regexp.MustCompile(`func (Test\w+)\(|("\w+")`) // any string can be the name of a subtest
)

// TestNamesOfTests: each test that a page names exists.
func TestNamesOfTests(t *testing.T) {
	exist := map[string]bool{}
	for _, dir := range []string{"bench", "cmd", "docs", "examples", "internal", "pkg", "test", "tools"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range testFunc.FindAllStringSubmatch(string(text), -1) {
				exist[m[1]+m[2]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range append(pages, root+"/README.md", root+"/CONTRIBUTING.md", root+"/SECURITY.md", "testdata/promises.txt") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testName.FindAllStringSubmatch(string(text), -1) {
			if found++; !exist[m[1]] || m[2] != "" && !exist[`"`+m[2]+`"`] {
				t.Errorf("%s names %s, which does not exist", page, m[0])
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d names of tests were found", found)
	}
}

// TestEveryPromiseHasATest: promises.txt names a test for each row of the table of failures in docs/delivery.md.
func TestEveryPromiseHasATest(t *testing.T) {
	tests := map[string]string{} // by failure
	for _, row := range tableAfter(t, read(t, "test/docs/testdata/promises.txt"), "| failure | tests |\n") {
		tests[row[0]] = row[1]
	}
	rows := tableAfter(t, read(t, "docs/delivery.md"), "| failure | lost | repeated |\n")
	for _, row := range rows {
		if !testName.MatchString(tests[row[0]]) {
			t.Errorf("promises.txt names no test for this row of docs/delivery.md: %.100s", row[0])
		}
		delete(tests, row[0])
	}
	if len(tests) > 0 {
		t.Errorf("docs/delivery.md has no row for %q", slices.Collect(maps.Keys(tests)))
	}
	if len(rows) < 15 {
		t.Errorf("the table of failures has %d rows: it was not read", len(rows))
	}
}

// tableAfter returns the cells of the table with this head.
func tableAfter(t *testing.T, page, head string) (rows [][]string) {
	t.Helper()
	_, table, found := strings.Cut(page, head)
	if !found {
		t.Fatalf("there is no table %q", head)
	}
	table, _, _ = strings.Cut(strings.TrimSuffix(table, "\n"), "\n\n")
	for _, row := range strings.Split(table, "\n")[1:] {
		rows = append(rows, strings.Split(strings.Trim(row, "| "), " | "))
	}
	return rows
}

// TestSupport: docs/support.md names the versions that the tests use.
func TestSupport(t *testing.T) {
	page := read(t, "docs/support.md")
	for row, version := range map[string]struct{ file, pattern string }{
		"Kubernetes API server":              {"test/controlplane/go.mod", `k8s\.io/kubernetes v(\S+)`},
		"etcd":                               {"test/controlplane/go.mod", `go\.etcd\.io/etcd/server/v3 v(\S+)`},
		"nats-server":                        {"go.mod", `github\.com/nats-io/nats-server/v2 v(\S+)`},
		"Apache Kafka":                       {"test/kafka/pom.xml", `<artifactId>kafka_2\.13</artifactId>\s*<version>([^<]+)<`},
		"schema registry: Apicurio Registry": {"test/registry/registry.go", `apicurio-registry-app/([^/]+)/`},
		"Helm":                               {"tools/helm/go.mod", `helm\.sh/helm/v4 v(\d+\.\d+)`},
		"Go, to build":                       {"go.mod", `(?m)^go (\d+\.\d+)`},
	} {
		used := regexp.MustCompile(version.pattern).FindStringSubmatch(read(t, version.file))
		if used == nil {
			t.Errorf("%s: %s does not match", version.file, version.pattern)
		} else if !strings.Contains(page, "\n| "+row+" | "+used[1]+" |") {
			t.Errorf("docs/support.md: the tests use %s %s", row, used[1])
		}
	}
	// make test-matrix reads the versions from these rows, and writes the results there.
	older := regexp.MustCompile(`^\| ([\w -]+) \| \d+\.\d+\.\d+ \| (?:\d+ \| \d{4}-\d\d-\d\d|- \| not tested) \|$`)
	tested := map[string]int{}
	for _, line := range section(t, page, "Older versions") {
		if m := older.FindStringSubmatch(line); m != nil {
			if !strings.Contains(line, "not tested") {
				tested[m[1]]++
			}
		} else if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| server |") {
			t.Errorf("docs/support.md: make test-matrix does not read the row %s", line)
		}
	}
	for server, atLeast := range map[string]int{"Kubernetes API server": 3, "nats-server": 2, "Apache Kafka": 1} {
		if tested[server] < atLeast {
			t.Errorf("docs/support.md: %d older versions of %s are tested, want %d", tested[server], server, atLeast)
		}
	}
}

// TestFormats: docs/compatibility.md has the format of each file of the state directory.
func TestFormats(t *testing.T) {
	row := regexp.MustCompile(`^\| (` + "`[^|]+`" + `) \| (.*?) \|`)
	documented := map[string]string{}
	for _, line := range section(t, read(t, "docs/compatibility.md"), "Files in the state directory") {
		if m := row.FindStringSubmatch(line); m != nil {
			for file := range strings.SplitSeq(m[1], ", ") {
				documented[file] = m[2]
			}
		}
	}
	together := strconv.Itoa(files.Format)
	for _, file := range []string{"`checkpoint.db`", "`spill-SINK/`", "`parked-SINK.db`", "`audit/`", "`audit-state/`"} {
		if documented[file] != together {
			t.Errorf("%s has format %s, documented is %q", file, together, documented[file])
		}
	}
	const others = "`checkpoint.lock`, `bridge.sock`"
	for _, line := range section(t, read(t, "docs/operations.md"), "The state directory") {
		m := row.FindStringSubmatch(line)
		if m == nil || strings.Contains(others, m[1]) || strings.HasPrefix(m[1], "`*.") {
			continue
		}
		if !regexp.MustCompile(`^\d+\b`).MatchString(documented[m[1]]) {
			t.Errorf("docs/compatibility.md has no format of %s", m[1])
		}
		delete(documented, m[1])
	}
	if len(documented) > 0 {
		t.Errorf("docs/operations.md has no %v", slices.Collect(maps.Keys(documented)))
	}
}
