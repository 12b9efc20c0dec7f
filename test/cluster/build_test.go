package cluster

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The progress is that of the packages; what the compiler complains about is kept
// for the error.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		output, write := io.Pipe()
		go func() {
			defer write.Close()
			for _, text := range []string{
				"go: downloading k8s.io/api v0.37.1\nk8s.io/api/core/v1\n",
				"github.com/o-k/a_b~c/v2\n# k8s.io/broken\n./broken.go:1:1: syntax error\n",
			} {
				_, _ = io.WriteString(write, text) // fails only when nobody reads any more
				time.Sleep(progressPeriod + time.Second)
			}
		}()
		messages := builder{log: &log}.follow("x", output)
		wantMessages := "go: downloading k8s.io/api v0.37.1\n# k8s.io/broken\n./broken.go:1:1: syntax error\n"
		if diff := cmp.Diff(wantMessages, string(messages)); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		wantLog := "building x: 1 packages compiled in 10s\n" +
			"building x: 2 packages compiled in 20s\n" +
			"built x: 2 packages compiled in 22s\n"
		if diff := cmp.Diff(wantLog, log.String()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

func TestBuildFailureNamesTheReason(t *testing.T) {
	b := builder{module: filepath.Join("..", "controlplane"), log: io.Discard}
	err := b.build(t.Context(), "./nowhere", filepath.Join(t.TempDir(), "x"))
	if err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("build of a package that is not there: %v", err)
	}
}

func TestBuildIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := builder{module: filepath.Join("..", "controlplane"), log: io.Discard}
	if err := b.build(ctx, ".", filepath.Join(t.TempDir(), "x")); !errors.Is(err, context.Canceled) {
		t.Errorf("build after its context has ended: %v", err)
	}
}

func TestUpToDate(t *testing.T) {
	dir := t.TempDir()
	b := builder{module: filepath.Join(dir, "module")}
	source, target := filepath.Join(b.module, "inner", "x.go"), filepath.Join(dir, "x")
	write := func(path string, at time.Time) {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want bool, when string) {
		t.Helper()
		if got, err := b.upToDate(target); err != nil || got != want {
			t.Errorf("%s: up to date: %v, %v, want %v", when, got, err, want)
		}
	}
	if err := os.MkdirAll(filepath.Dir(source), 0o700); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	write(source, now)
	check(false, "no program")
	write(target, now.Add(time.Minute))
	check(true, "program newer than its source")
	write(source, now.Add(2*time.Minute))
	check(false, "source newer than the program")
}

// The control plane shares most of its packages with the bridge. They are compiled only once if their versions and
// the flags of the compiler are equal: `go -C test/controlplane get MODULE@VERSION`.
func TestSharedPackages(t *testing.T) {
	ours, theirs := requirements(t, "../../go.mod"), requirements(t, "../controlplane/go.mod")
	shared := 0
	for module, version := range theirs {
		switch ours[module] {
		case version:
			shared++
		case "":
		default:
			t.Errorf("%s: %s in go.mod, and %s in test/controlplane/go.mod", module, ours[module], version)
		}
	}
	if shared < 50 {
		t.Errorf("only %d modules have the same version", shared)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	release := "RELEASE := " + strings.Join(compilerFlags[:3], " ") + " -ldflags"
	if !strings.Contains(string(makefile), release) {
		t.Errorf("the Makefile does not contain %q", release)
	}
}

// requirements returns the versions of the modules that a go.mod requires. A replacement wins.
func requirements(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) (?:=> \S+ )?(v\S+)`).FindAllStringSubmatch(string(text), -1) {
		versions[m[1]] = m[2]
	}
	return versions
}
