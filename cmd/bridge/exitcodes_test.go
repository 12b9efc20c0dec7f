package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The table in docs/commands.md has the exit codes of the program, and each of them is that of some failure.
func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	lines := "http: {listen: \"127.0.0.1:0\"}\nstate: {path: " + dir + "}\nsinks: [{name: lines, stdout: {}}]\n"
	good := writeFile(t, filepath.Join(dir, "good.yaml"), lines)
	broken := writeFile(t, filepath.Join(dir, "broken.yaml"), "kubeconfig: broken.yaml\n"+lines)
	bad := writeFile(t, filepath.Join(dir, "bad.yaml"), "clutser: a")
	key := writeFile(t, filepath.Join(dir, "key"), "short")
	failing := writeFile(t, filepath.Join(dir, "a_test.yaml"), testFile)
	short, valid := runFile(t, "127.0.0.1:0")
	writeFile(t, short, "redactionKeyFile: "+key+"\n"+valid)
	part := answering(t, `{"sink":"a","resources":2,"objects":5,"skipped":["pods: forbidden"]}`)
	seen := map[int]bool{}
	for _, tt := range []struct {
		want int
		args []string
	}{
		{exitOK, []string{"version"}},
		{exitOK, nil},
		{exitOK, []string{"tail", "--help"}},
		{exitOK, []string{"check", "-c", good}},
		{exitFailed, []string{"doctor", "-c", broken}},
		{exitFailed, []string{"resync", "-c", good}},
		{exitFailed, []string{"explain", "-c", good, "--offline", filepath.Join(dir, "none.yaml")}},
		{exitPartly, []string{"resync", "-c", part}},
		{exitPartly, []string{"test", "-c", good, good}},
		{exitFailed, []string{"test", "-c", good, failing}},
		{exitUsage, []string{"test", "-c", good, "--run", "("}},
		{exitConfig, []string{"test", "-c", bad, failing}},
		{exitUsage, []string{"dance"}},
		{exitUsage, []string{"run", "extra"}},
		{exitUsage, []string{"check", "--fix"}},
		{exitUsage, []string{"version", "-o", "xml"}},
		{exitUsage, []string{"explain", "-c", good}},
		{exitUsage, []string{"explain", "-c", good, "pods", "a/b", "--offline"}},
		{exitUsage, []string{"tail", "--kafka", "a:1", "--nats", "nats://a:4222"}},
		{exitUsage, []string{"tail", "--kafka", "a"}},
		{exitUsage, []string{"tail", "-c", good, "--diff", "-o", "json"}},
		{exitUsage, []string{"rbac", "-c", good, "--group", "a.com", "--discover"}},
		{exitUsage, []string{"schema", "--event", "pods"}},
		{exitConfig, []string{"check", "-c", bad}},
		{exitConfig, []string{"run", "-c", bad}},
		{exitConfig, []string{"run", "-c", short}}, // the key is too short
		{exitConfig, []string{"doctor", "-c", filepath.Join(dir, "none.yaml")}},
		{exitConfig, []string{"rbac"}},
	} {
		if _, err := command(t, tt.args...); exitCode(err) != tt.want {
			t.Errorf("%v: exit code %d, want %d: %v", tt.args, exitCode(err), tt.want, err)
		}
		seen[tt.want] = true
	}
	text, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []int
	for _, row := range regexp.MustCompile(`(?m)^\| ([0-9]+) \| `).FindAllSubmatch(text, -1) {
		code, err := strconv.Atoi(string(row[1]))
		if err != nil {
			t.Fatal(err)
		}
		documented = append(documented, code)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(seen)), documented); diff != "" {
		t.Errorf("the table in docs/commands.md (-code +table):\n%s", diff)
	}
}
