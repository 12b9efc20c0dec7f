// Package testtree has what tests do with copies of the project.
package testtree

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Copy copies the project without what was built and what git keeps.
func Copy(t *testing.T, from, to string) {
	t.Helper()
	skipped := []string{".git", ".work", "bin", "data", "state"}
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		switch {
		case slices.Contains(skipped, name):
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Compare reports the files that differ between two directories, which must have at least a number of files.
func Compare(t *testing.T, atLeast int, first, second string) {
	t.Helper()
	one, another := contents(t, first), contents(t, second)
	if len(one) < atLeast {
		t.Fatalf("%d files in %s", len(one), first)
	}
	for name, content := range one {
		if !bytes.Equal(content, another[name]) {
			t.Errorf("%s differs", name)
		}
	}
	if len(another) != len(one) {
		t.Errorf("%d and %d files", len(one), len(another))
	}
}

func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		files[name], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
