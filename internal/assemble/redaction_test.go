package assemble

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestFingerprintKey(t *testing.T) {
	cfg := embeddedConfig(t)
	for range 2 { // made once, then read
		if _, err := newRedaction(cfg); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(cfg.State.Path, fingerprintKeyFile)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newRedaction(cfg); err == nil || !strings.Contains(err.Error(), "at least 32") {
		t.Errorf("err = %v", err)
	}
	cfg.State.Path = path // a file, not a folder
	if _, err := newRedaction(cfg); err == nil || !strings.Contains(err.Error(), "state.path") {
		t.Errorf("err = %v", err)
	}
	// A key of one's own needs nothing of the folder. An editor's line break is not part of it.
	key := strings.Repeat("k", 64)
	var names []string
	for _, text := range []string{key, key + "\n", key + "\r\n"} {
		file := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg.RedactionKeyFile = file
		r, err := newRedaction(cfg)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, r.Privacy.Name)
	}
	if names[0] != names[1] || names[0] != names[2] {
		t.Errorf("keys differ: %v", names)
	}
	if err := os.WriteFile(cfg.RedactionKeyFile, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newRedaction(
		cfg,
	); err == nil || !strings.Contains(err.Error(), "redactionKeyFile") ||
		strings.Contains(err.Error(), "short") {
		t.Errorf("err = %v", err)
	}
}

// What rows have to be is another thing for each set of rules, and for each key.
func TestRedactionPolicies(t *testing.T) {
	names := map[string]string{}
	for what, change := range map[string]func(*config.Config){
		"default": func(*config.Config) {},
		"plain":   func(c *config.Config) { c.Sinks[0].Secrets = config.SecretsPlain },
		"a rule":  func(c *config.Config) { c.Redact = []config.Redact{{Paths: []string{"spec"}}} },
		"a pod's": func(c *config.Config) {
			c.Redact = []config.Redact{{Resources: []string{"pods"}, Paths: []string{"spec"}}}
		},
	} {
		cfg := embeddedConfig(t)
		change(cfg)
		cfg.RedactionKeyFile = filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(cfg.RedactionKeyFile, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := newRedaction(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if other := names[r.Privacy.Name]; other != "" {
			t.Errorf("%s is as %s", what, other)
		}
		names[r.Privacy.Name] = what
		if (r.Transform() == nil) != (what == "plain") || (r.Privacy.Seal != nil) != (what == "plain") {
			t.Errorf("%s: transform %t, seal %t", what, r.Transform() != nil, r.Privacy.Seal != nil)
		}
	}
}

// A filter sees what its sink is sent: of an object as it was read, and as the checkpoint gives it back.
func TestFiltersSeeWhatIsSent(t *testing.T) {
	cfg := embeddedConfig(t)
	r, err := newRedaction(cfg)
	if err != nil {
		t.Fatal(err)
	}
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	o, err := object.New(
		[]byte(
			`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a","uid":"u","resourceVersion":"1"},"data":{"a":"aHVudGVyMg=="}}`,
		),
	)
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := seen(r.Redactor)(gvr, o)
	if err != nil || strings.Contains(string(fresh), "aHVudGVyMg==") {
		t.Errorf("%s, %v", fresh, err)
	}
	r.Transform()(gvr, o)
	stored, err := seen(r.Redactor)(gvr, o)
	if diff := cmp.Diff(string(fresh), string(stored)); err != nil || diff != "" {
		t.Errorf("%v (-fresh +stored):\n%s", err, diff)
	}
	if seen(nil) != nil {
		t.Error("a sink that wants clear values filters by others")
	}
}
