package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What `init` writes is tested in internal/starter.
func TestInit(t *testing.T) {
	for _, args := range [][]string{{"--nats", "a:4222", "--kafka", "a:9092"}, {"file"}, {"--name", "a"}} {
		if _, err := command(t, append([]string{"init"}, args...)...); exitCode(err) != exitUsage {
			t.Errorf("%v: %v", args, err)
		}
	}
	none := filepath.Join(t.TempDir(), "none")
	out, err := command(t, "init", "--kubeconfig", none)
	if exitCode(err) != exitFailed || !strings.Contains(err.Error(), none) || out != "" {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestWriteNew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bridge.yaml")
	if err := writeNew(file, "first", nil); err != nil {
		t.Fatal(err)
	}
	if err := writeNew(file, "second", nil); err == nil || !strings.Contains(err.Error(), "file exists") {
		t.Errorf("a file that exists: %v", err)
	}
	if data, err := os.ReadFile(file); string(data) != "first" {
		t.Errorf("%q, %v", data, err)
	}
	var out strings.Builder
	if err := writeNew("", "text", &out); err != nil || out.String() != "text" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
