package main

import (
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/internal/evaluate"
)

// The configuration of `make run` sends what the workload does.
func TestConfiguration(t *testing.T) {
	file, _, err := writeConfig(t.TempDir(), "kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	r := evaluate.TestOptions{Config: func() (*config.Config, error) {
		cfg, _, err := config.LoadOffline(file)
		return cfg, err
	}}.Test("bridge_test.yaml")
	if r.Err != nil || r.Failed() > 0 {
		var out strings.Builder
		_ = r.WriteTable(&out, console.Style{}) // a strings.Builder takes everything
		t.Error(out.String())
	}
}
