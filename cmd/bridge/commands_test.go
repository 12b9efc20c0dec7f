package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/internal/config"
)

func TestSchema(t *testing.T) {
	if out, err := command(t, "schema"); err != nil || out != config.Schema() || !strings.HasPrefix(out, "{\n") {
		t.Errorf("%.200q, %v", out, err)
	}
}

// Each example has rights that RBAC can express; the names are those that are asked for.
func TestRBAC(t *testing.T) {
	examples, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatalf("no examples (%v)", err)
	}
	for _, file := range examples {
		out, err := command(t, "rbac", "--config", file, "--namespace", "ns", "--service-account", "sa", "--name", "rights")
		if err != nil {
			t.Error(err)
		}
		for _, want := range []string{"kind: ClusterRole\n", "\n  name: rights\n", "- kind: ServiceAccount\n  name: sa\n  namespace: ns\n", "- deltabridge-probe\n"} {
			if !strings.Contains(out, want) && (want != "- deltabridge-probe\n" || strings.Contains(out, "'*'")) {
				t.Errorf("%s: there is no %q in\n%s", file, want, out)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "bridge.yaml")
	if err := os.WriteFile(file, []byte("watch: [{resources: [pod*]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := command(t, "rbac", "--config", file); err == nil || !strings.Contains(err.Error(), `watch[0].resources[0]: "pod*"`) {
		t.Errorf("a wildcard that RBAC does not know: %v", err)
	}
}
