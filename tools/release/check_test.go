package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/tools/internal/artifact"
)

const changelog = `# Changelog

## Unreleased

- Something that is not released.

## 1.2.3 - 2026-01-02

### Added

- Something new.

## 1.2.2 - 2026-01-01

- Something old.
`

// A release is refused if the tag, the chart, CHANGELOG.md, the schemas and the working tree do not agree.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(t *testing.T, r *release)
		want   string // in the error; empty: the release is possible
	}{
		{"all agree", func(*testing.T, *release) {}, ""},
		{"version with quotes", func(t *testing.T, r *release) {
			edit(t, r, chartDir+"/Chart.yaml", "appVersion: 1.2.3", `appVersion: "1.2.3"`)
			commit(t, r, "v1.2.3")
		}, ""},
		{"changed file", func(t *testing.T, r *release) {
			edit(t, r, "CHANGELOG.md", "new", "other")
		}, "files are not committed:\nM CHANGELOG.md"},
		{"new file", func(t *testing.T, r *release) {
			write(t, filepath.Join(r.Dir, "new.go"), "package main")
		}, "files are not committed:\n?? new.go"},
		{"no tag", func(t *testing.T, r *release) {
			git(t, r.Dir, "tag", "--delete", "v1.2.3")
		}, "has no tag of this name"},
		{"tag of an earlier commit", func(t *testing.T, r *release) {
			write(t, filepath.Join(r.Dir, "new.go"), "package main")
			commit(t, r, "")
		}, "has no tag of this name"},
		{"another commit", func(_ *testing.T, r *release) {
			r.Commit = strings.Repeat("0", 40)
		}, "is not checked out"},
		{"tag without v", func(t *testing.T, r *release) {
			r.Version = "1.2.3"
			git(t, r.Dir, "tag", "1.2.3")
		}, "appVersion of charts/deltabridge/Chart.yaml must be the tag"},
		{"tag that is not the chart's version", func(t *testing.T, r *release) {
			edit(t, r, chartDir+"/Chart.yaml", "\nversion: 1.2.3", "\nversion: 1.2.4")
			commit(t, r, "v1.2.3")
		}, "version of charts/deltabridge/Chart.yaml must be the tag"},
		{"tag that is not the appVersion", func(t *testing.T, r *release) {
			edit(t, r, chartDir+"/Chart.yaml", "appVersion: 1.2.3", "appVersion: 1.2.30")
			commit(t, r, "v1.2.3")
		}, "appVersion of charts/deltabridge/Chart.yaml must be the tag"},
		{"no section", func(t *testing.T, r *release) {
			edit(t, r, "CHANGELOG.md", "## 1.2.3 -", "## 1.2.30 -")
			commit(t, r, "v1.2.3")
		}, `CHANGELOG.md must have a section "## 1.2.3 - YYYY-MM-DD"`},
		{"section without a date", func(t *testing.T, r *release) {
			edit(t, r, "CHANGELOG.md", "## 1.2.3 - 2026-01-02", "## 1.2.3")
			commit(t, r, "v1.2.3")
		}, `CHANGELOG.md must have a section "## 1.2.3 - YYYY-MM-DD"`},
		{"empty section", func(t *testing.T, r *release) {
			edit(t, r, "CHANGELOG.md", "### Added\n\n- Something new.\n", "")
			commit(t, r, "v1.2.3")
		}, `CHANGELOG.md must have a section "## 1.2.3 - YYYY-MM-DD" with text`},
		{"schema that is not stored", func(t *testing.T, r *release) {
			write(t, filepath.Join(r.Dir, "docs/schemas/v2/gap.json"), "{}")
			commit(t, r, "v1.2.3")
		}, "docs/schemas/v2/gap.json must be stored as released"},
		{"schema that has changed", func(t *testing.T, r *release) {
			write(t, filepath.Join(r.Dir, "docs/schemas/v1/gap.json"), "{}\n")
			commit(t, r, "v1.2.3")
		}, "docs/schemas/v1/gap.json must be stored as released"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &release{Build: artifact.Build{Dir: t.TempDir(), Version: "v1.2.3"}}
			write(t, filepath.Join(r.Dir, "CHANGELOG.md"), changelog)
			write(t, filepath.Join(r.Dir, chartDir, "Chart.yaml"), "name: deltabridge\nversion: 1.2.3\nappVersion: 1.2.3\n")
			for _, dir := range []string{"v1", "testdata/released/v1"} {
				write(t, filepath.Join(r.Dir, "docs/schemas", dir, "gap.json"), "{}")
			}
			git(t, r.Dir, "init", "--quiet")
			commit(t, r, "v1.2.3")
			c.change(t, r)
			notes, err := r.check(t.Context())
			if c.want == "" && (err != nil || notes != "### Added\n\n- Something new.") {
				t.Errorf("notes %q, error %v", notes, err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// edit replaces a string that a file must contain.
func edit(t *testing.T, r *release, name, old, replacement string) {
	t.Helper()
	path := filepath.Join(r.Dir, name)
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), old) {
		t.Fatalf("%s does not contain %q: %v", name, old, err)
	}
	write(t, path, strings.Replace(string(text), old, replacement, 1))
}

// commit commits all files, and tags the commit if tag is not empty.
func commit(t *testing.T, r *release, tag string) {
	t.Helper()
	git(t, r.Dir, "add", "--all")
	git(t, r.Dir, "commit", "--quiet", "--message=test")
	if tag != "" {
		git(t, r.Dir, "tag", "--force", tag)
	}
	r.Commit = git(t, r.Dir, "rev-parse", "HEAD")
}

// git runs git without the settings of the machine.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.com", "GIT_AUTHOR_DATE=2026-01-02T03:04:05+01:00",
		"GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.com", "GIT_COMMITTER_DATE=2026-01-02T03:04:05+01:00")
	out, err := output(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
