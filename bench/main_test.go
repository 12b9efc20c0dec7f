package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The benchmarks start this binary as their helpers.
	if ran, err := helper(os.Args[1:]); ran {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// built gives the path of a program of this module, freshly built.
func built(t *testing.T, dir, pkg string) string {
	t.Helper()
	binary := filepath.Join(dir, filepath.Base(pkg))
	// Unlike "go build", "go run" caches programs.
	build := exec.CommandContext(t.Context(), "go", "run", "-exec=cp", "-ldflags=-s -w",
		"github.com/deltabridge/deltabridge/"+pkg, binary)
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, text)
	}
	return binary
}

// TestReplay: small replays, a kill and a start, from the command line to the written results. It fails unless the floor
// and the bridge deliver everything.
func TestReplay(t *testing.T) {
	dir := t.TempDir()
	results := filepath.Join(dir, "RESULTS.md")
	var out bytes.Buffer
	err := run(t.Context(), []string{
		"-bridge", built(t, dir, "cmd/bridge"), "-floor", built(t, dir, "bench/floor"), "-tmp", dir,
		"-scenario", "replay,same,kill,start", "-brokers", jetStreamName, "-runs", "1", "-scale", "0.1", "-results", results,
	}, &out)
	t.Logf("%s", out.String())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(results)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"- Go: 1.", "| replay: CPU per event ", "| JetStream ", "## same messages", "## kill", "## start"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the results do not hold %q", want)
		}
	}
}
