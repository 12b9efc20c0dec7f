package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"
)

// documents decodes what a command prints with -o json or -o yaml.
func documents(t *testing.T, format string, args ...string) (all []any) {
	t.Helper()
	out, err := command(t, append(args, "-o", format)...)
	if exitCode(err) == exitUsage {
		t.Fatalf("%v -o %s: %v", args, format, err)
	}
	if format == formatJSON {
		for decoder := json.NewDecoder(strings.NewReader(out)); decoder.More(); {
			var document any
			if err := decoder.Decode(&document); err != nil {
				t.Fatalf("%v: %v\n%s", args, err, out)
			}
			all = append(all, document)
		}
		return all
	}
	for text := range strings.SplitSeq(out, "\n---\n") {
		var document any
		if err := yaml.Unmarshal([]byte(text), &document); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		all = append(all, document)
	}
	return all
}

// Each command with a report prints the same as JSON and as YAML.
func TestOutputFormats(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "bridge.yaml"), "kubeconfig: bridge.yaml\nstate: {path: "+dir+"}\n"+
		"sinks: [{name: live, nats: {url: \"nats://127.0.0.1:1\"}, deadLetter: {file: {}}}]\n")
	bad := writeFile(t, filepath.Join(dir, "bad.yaml"), "clutser: prod\nshutdownTimeout: 30\n")
	lettersOf(t, dir, "live", 100, 200)
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
		{1, `"id": "u.2"`, []string{"dead-letters", "list", "-c", file}},
		{2, `"resourceversion": "2"`, []string{"dead-letters", "show", "-c", file, "u.1", "u.2"}},
	} {
		fromJSON, fromYAML := documents(t, formatJSON, tt.args...), documents(t, formatYAML, tt.args...)
		text, _ := command(t, append(tt.args, "-o", formatJSON)...)
		if len(fromJSON) != tt.documents || !strings.Contains(text, tt.has) {
			t.Errorf("%v: %d documents, want %d with %s\n%s", tt.args, len(fromJSON), tt.documents, tt.has, text)
		}
		if diff := cmp.Diff(fromJSON, fromYAML, ignoreMoments()); diff != "" {
			t.Errorf("%v (-json +yaml):\n%s", tt.args, diff)
		}
	}
	// The roles as a List, for kubectl; YAML is the default.
	list := documents(t, formatJSON, "rbac", "-c", file)[0].(map[string]any)
	objects := documents(t, formatYAML, "rbac", "-c", file)[1:] // the first document is the comment
	if diff := cmp.Diff(objects, list["items"]); diff != "" || list["kind"] != "List" || list["apiVersion"] != "v1" {
		t.Errorf("rbac (-yaml +json):\n%s", diff)
	}
}

// ignoreMoments ignores what differs between two calls: times, the size of an event, which has a time of up to nine
// decimals, and the free space of the disk.
func ignoreMoments() cmp.Option {
	moment := func(text string) bool {
		_, err := time.Parse(time.RFC3339Nano, text)
		return err == nil || strings.Contains(text, " free; ")
	}
	return cmp.Options{
		cmp.FilterValues(func(a, b string) bool { return moment(a) && moment(b) }, cmp.Ignore()),
		cmpopts.IgnoreMapEntries(func(key string, _ any) bool { return key == "size" }),
	}
}

// The shell completes what the configuration and the state directory know.
func TestCompletion(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(
		configVariable,
		writeFile(t, filepath.Join(dir, "bridge.yaml"), "kubeconfig: /nowhere\nstate: {path: "+dir+"}\n"+
			"watch: [{resources: [pods, deployments.apps, \"*.example.com\"]}]\n"+
			"sinks: [{name: live, nats: {url: \"nats://a:4222\"}, deadLetter: {file: {}}}, {name: lines, stdout: {}}]\n"),
	)
	lettersOf(t, dir, "live", 100, 200)
	for args, want := range map[string]string{
		"tail --sink":              "live lines :4",
		"resync --sink":            "live lines :4",
		"claim --sink":             "live lines :4",
		"pause":                    "live lines :4",
		"resume live":              "live lines :4",
		"dead-letters drop --sink": "live lines :4",
		"doctor -o":                "table json yaml :4",
		"check --output":           "text json yaml :4",
		"tail -o":                  "line json :4",
		"rbac -o":                  "yaml json :4",
		"explain":                  "deployments.apps pods :0",
		"tail --resource":          "deployments.apps pods :4",
		"explain --operation":      "added deleted restated :4",
		"dead-letters resend":      "u.1 u.2 :4",
		"run --config":             "yaml yml :8",
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
