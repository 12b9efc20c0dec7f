package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// documents decodes what a command prints with -o json.
func documents(t *testing.T, args ...string) (all []any, text string) {
	t.Helper()
	text, err := command(t, append(args, "-o", formatJSON)...)
	if exitCode(err) == exitUsage {
		t.Fatalf("%v: %v", args, err)
	}
	for decoder := json.NewDecoder(strings.NewReader(text)); decoder.More(); {
		var document any
		if err := decoder.Decode(&document); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, text)
		}
		all = append(all, document)
	}
	return all, text
}

// Each command with a report prints it as JSON.
func TestOutputFormats(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "bridge.yaml"), "kubeconfig: bridge.yaml\nstate: {path: "+dir+"}\n"+
		"sinks: [{name: live, nats: {url: \"nats://127.0.0.1:1\"}}]\n")
	bad := writeFile(t, filepath.Join(dir, "bad.yaml"), "clutser: prod\nshutdownTimeout: 30\n")
	pods := writeFile(t, filepath.Join(dir, "pods.yaml"), "kind: Pod\napiVersion: v1\nmetadata: {name: a}\n"+
		"---\nkind: Pod\napiVersion: v1\nmetadata: {name: b}\n")
	resynced := answering(t, `{"sink":"a","resources":2,"objects":5}`)
	for _, tt := range []struct {
		documents int
		has       string // a part of the JSON
		args      []string
	}{
		{1, `"version": "dev"`, []string{"version"}},
		{1, `"valid": true`, []string{"check", "-c", file}},
		{1, `"missingFiles": [`, []string{"check", "-c", writeFile(t, filepath.Join(dir, "elsewhere.yaml"), elsewhere)}},
		{1, `"warnings": [`, []string{"check", "-c", "../../examples/latest-state-kafka.yaml"}},
		{1, `"line": 2,`, []string{"check", "-c", bad}},
		{1, `"error": "configuration file (--config): open `, []string{"check", "-c", filepath.Join(dir, "none.yaml")}},
		{1, `"result": "failed",`, []string{"doctor", "-c", file}},
		{2, `"subject": "k8s.local.core.pods.default.b"`, []string{"explain", "-c", file, "--offline", "-n", "default", pods}},
		{1, `"objects": 5`, []string{"resync", "-c", resynced}},
	} {
		if all, text := documents(t, tt.args...); len(all) != tt.documents || !strings.Contains(text, tt.has) {
			t.Errorf("%v: %d documents, want %d with %s\n%s", tt.args, len(all), tt.documents, tt.has, text)
		}
	}
}

// The shell completes what the configuration and the state directory know.
func TestCompletion(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(
		configVariable,
		writeFile(t, filepath.Join(dir, "bridge.yaml"), "kubeconfig: /nowhere\nstate: {path: "+dir+"}\n"+
			"watch: [{resources: [pods, deployments.apps, \"*.example.com\"]}]\n"+
			"sinks: [{name: live, nats: {url: \"nats://a:4222\"}}, {name: lines, stdout: {}}]\n"),
	)
	for args, want := range map[string]string{
		"tail --sink":         "live lines :4",
		"resync --sink":       "live lines :4",
		"claim --sink":        "live lines :4",
		"pause":               "live lines :4",
		"resume live":         "live lines :4",
		"doctor -o":           "table json :4",
		"check --output":      "text json :4",
		"tail -o":             "line json :4",
		"explain":             "deployments.apps pods :0",
		"tail --resource":     "deployments.apps pods :4",
		"explain --operation": "added deleted restated :4",
		"run --config":        "yaml yml :8",
	} {
		words := append([]string{"__complete"}, strings.Fields(args)...)
		out, err := command(t, append(words, "")...)
		if strings.Join(strings.Fields(out), " ") != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", args, out, err, want)
		}
	}
	if out, err := command(t, "--help"); err != nil || !strings.Contains(out, "\n  completion ") {
		t.Errorf("the command is hidden: %v\n%s", err, out)
	}
	t.Setenv(configVariable, filepath.Join(dir, "none.yaml"))
	if out, err := command(t, "__complete", "tail", "--sink", ""); err != nil || out != ":4\n" {
		t.Errorf("without a configuration: %q, %v", out, err)
	}
}
