package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/docs/schemas"
	"github.com/deltabridge/deltabridge/internal/config"
)

func TestSchema(t *testing.T) {
	if out, err := command(t, "schema"); err != nil || out != config.Schema() || !strings.HasPrefix(out, "{\n") {
		t.Errorf("%.200q, %v", out, err)
	}
	for _, name := range schemas.Names() {
		if out, err := command(
			t,
			"schema",
			"--event",
			name,
		); err != nil ||
			!strings.HasPrefix(out, "{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\"") {
			t.Errorf("%s: %.200q, %v", name, out, err)
		}
	}
	if out, err := command(t, "schema", "--event", "avro"); err != nil || out != schemas.Avro() {
		t.Errorf("avro: %.200q, %v", out, err)
	}
	for _, name := range []string{"", "pods"} {
		if _, err := command(
			t,
			"schema",
			"--event",
			name,
		); err == nil ||
			!strings.Contains(err.Error(), "must be one of audit, change, cloudevent, ") {
			t.Errorf("--event %q: %v", name, err)
		}
	}
}

// What doctor finds is tested with the built binary (test/e2e); here, that it ends as it should.
func TestDoctor(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "bridge.yaml")
	text := "kubeconfig: bridge.yaml\nhttp: {listen: \"127.0.0.1:0\"}\nstate: {path: " + dir + "}\nsinks: [{name: lines, stdout: {}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := command(t, "doctor", "--config", file)
	if err == nil || !strings.HasSuffix(err.Error(), "steps failed") || !strings.Contains(out, "FAILED   kubeconfig") ||
		strings.Contains(out, "\x1b") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := command(
		t,
		"doctor",
		"--config",
		file,
		"-o",
		"json",
	); err == nil ||
		!strings.HasPrefix(out, "{\n  \"ok\": ") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := command(
		t,
		"doctor",
		"--config",
		file,
		"-o",
		"xml",
	); err == nil ||
		!strings.Contains(err.Error(), "must be table or json") {
		t.Errorf("an unknown format: %v", err)
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
	if _, err := command(
		t,
		"rbac",
		"--config",
		file,
	); err == nil ||
		!strings.Contains(err.Error(), `watch[0].resources[0]: "pod*"`) {
		t.Errorf("a wildcard that RBAC does not know: %v", err)
	}
}

// check names the environment variables of a file.
func TestCheckShowsVariables(t *testing.T) {
	t.Setenv("DELTABRIDGE_TEST_CLUSTER", "prod")
	file := writeFile(t, filepath.Join(t.TempDir(), "bridge.yaml"), `
cluster: ${DELTABRIDGE_TEST_CLUSTER}
log: {level: "${DELTABRIDGE_TEST_LEVEL:-info}"}
`)
	want := "note: " + file + ":2:10: cluster: the environment variable DELTABRIDGE_TEST_CLUSTER is set\n" +
		"note: " + file + ":3:14: log.level: the environment variable DELTABRIDGE_TEST_LEVEL is not set or empty, " +
		"so its default applies\n" + file + ": ok\n"
	if out, err := command(t, "check", "--config", file); err != nil || out != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
	out, err := command(t, "check", "--config", file, "-o", "json")
	if err != nil || !strings.Contains(out, `"name": "DELTABRIDGE_TEST_LEVEL"`) || !strings.Contains(out, `"set": false`) {
		t.Errorf("%v\n%s", err, out)
	}
}
