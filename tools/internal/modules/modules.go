package modules

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// Module is a module that is linked into a program.
type Module struct {
	Path    string // "std" for the standard library
	Version string
	// Licenses are the SPDX identifiers of the licenses, sorted and without duplicates.
	Licenses []string
	// Texts are the files that must be distributed with the program (licenses and notices), by name.
	Texts map[string][]byte
}

// minCovered is the percentage of a text that must match a license for it to be recognized.
const minCovered = 75

// textName matches the names of license and notice files in a module's root directory.
var textName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-._].*)?$`)

// List returns the modules of the program in a package, sorted by path and without the program's own module. The go
// command runs in dir, with env added to its environment.
func List(ctx context.Context, dir, pkg string, env ...string) ([]Module, error) {
	out, err := goCommand(ctx, dir, env, "list", "-deps", "-json=Module,Standard", pkg)
	if err != nil {
		return nil, err
	}
	type module struct {
		Path, Version, Dir string
		Main               bool
		Replace            *struct{ Path, Version, Dir string }
	}
	seen := map[string]bool{}
	var found []Module
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Module   *module
			Standard bool
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read what go list says: %w", err)
		}
		if p.Module == nil || p.Module.Main || seen[p.Module.Path] {
			continue
		}
		seen[p.Module.Path] = true
		if p.Module.Replace != nil {
			p.Module.Version, p.Module.Dir = p.Module.Replace.Version, p.Module.Replace.Dir
		}
		found = append(found, Module{Path: p.Module.Path, Version: p.Module.Version})
		if err := found[len(found)-1].read(p.Module.Dir); err != nil {
			return nil, err
		}
	}
	std, err := standardLibrary(ctx, dir)
	if err != nil {
		return nil, err
	}
	found = append(found, std)
	slices.SortFunc(found, func(a, b Module) int { return cmp.Compare(a.Path, b.Path) })
	return found, nil
}

func standardLibrary(ctx context.Context, dir string) (Module, error) {
	out, err := goCommand(ctx, dir, nil, "env", "GOROOT", "GOVERSION")
	if err != nil {
		return Module{}, err
	}
	root, version, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	m := Module{Path: "std", Version: version}
	return m, m.read(root)
}

// read sets the licenses and texts from the files in dir.
func (m *Module) read(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("licenses of %s: %w", m.Path, err)
	}
	m.Texts = map[string][]byte{}
	for _, entry := range entries {
		if entry.IsDir() || !textName.MatchString(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return fmt.Errorf("licenses of %s: %w", m.Path, err)
		}
		m.Texts[entry.Name()] = text
		covered := licensecheck.Scan(text)
		if covered.Percent < minCovered || strings.EqualFold(entry.Name(), "PATENTS") {
			continue // a notice, a list of owners or an additional grant: distributed, but not a license
		}
		for _, match := range covered.Match {
			if !match.IsURL && !slices.Contains(m.Licenses, match.ID) {
				m.Licenses = append(m.Licenses, match.ID)
			}
		}
	}
	if len(m.Licenses) == 0 {
		return fmt.Errorf("licenses of %s: none recognized in %s", m.Path, dir)
	}
	slices.Sort(m.Licenses)
	return nil
}

func goCommand(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return out, nil
}
