package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// chartDir is the directory of the chart, in that of the project.
const chartDir = "charts/deltabridge"

// check returns the section of the version in CHANGELOG.md, or an error that says everything that prevents the release.
func (r *release) check(ctx context.Context) (changes string, err error) {
	if err := r.checkTree(ctx); err != nil {
		return "", err // the version may not be the intended one
	}
	chart, err := os.ReadFile(filepath.Join(r.Dir, chartDir, "Chart.yaml"))
	if err != nil {
		return "", err
	}
	changelog, err := os.ReadFile(filepath.Join(r.Dir, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	var errs []error
	for _, key := range []string{"version", "appVersion"} {
		m := regexp.MustCompile(`(?m)^` + key + `: "?([^"\s]*)"?$`).FindSubmatch(chart)
		if m == nil || "v"+string(m[1]) != r.Version {
			errs = append(errs, fmt.Errorf("%s of %s/Chart.yaml must be the tag without the v", key, chartDir))
		}
	}
	heading := regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(r.Tag()) + ` - \d{4}-\d\d-\d\d\n`)
	if at := heading.FindIndex(changelog); at != nil {
		changes, _, _ = strings.Cut(string(changelog[at[1]:]), "\n## ")
	}
	if changes = strings.TrimSpace(changes); changes == "" {
		errs = append(errs, fmt.Errorf("CHANGELOG.md must have a section %q with text", "## "+r.Tag()+" - YYYY-MM-DD"))
	}
	return changes, errors.Join(append(errs, r.checkSchemas())...)
}

// checkSchemas returns an error unless the schemas of events are stored as those of the last release, with which the
// tests compare all later ones.
func (r *release) checkSchemas() error {
	const dir = "docs/schemas"
	paths, err := filepath.Glob(filepath.Join(r.Dir, dir, "v*", "*.json"))
	if err != nil || len(paths) == 0 {
		return errors.Join(err, errors.New("there are no schemas in "+dir))
	}
	for _, path := range paths {
		schema, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		version, name := filepath.Base(filepath.Dir(path)), filepath.Base(path)
		stored, err := os.ReadFile(filepath.Join(r.Dir, dir, "testdata", "released", version, name))
		if err != nil || !bytes.Equal(schema, stored) {
			return fmt.Errorf("%s/%s/%s must be stored as released: go test ./%s -update", dir, version, name, dir)
		}
	}
	return nil
}

// checkTree returns an error unless the working tree is the commit, and the version is a tag of the commit.
func (r *release) checkTree(ctx context.Context) error {
	changed, err := r.git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("files are not committed:\n%s", changed)
	}
	head, err := r.git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	if head != r.Commit {
		return fmt.Errorf("commit %s is not checked out", r.Commit)
	}
	tags, err := r.git(ctx, "tag", "--points-at", "HEAD")
	if err != nil {
		return err
	}
	if !slices.Contains(strings.Fields(tags), r.Version) {
		return fmt.Errorf("commit %s has no tag of this name", head)
	}
	return nil
}

func (r *release) git(ctx context.Context, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, "git", append([]string{"-C", r.Dir}, args...)...))
}

// output runs a command and returns what it prints, without space at the end. Its error contains the error output.
func output(cmd *exec.Cmd) (string, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
