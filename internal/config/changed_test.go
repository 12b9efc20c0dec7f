package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
)

// parseOffline is Parse, but the files that the configuration names need not exist.
func parseOffline(name string, data []byte) (*Config, error) {
	c, at := strictyaml.DecodeOffline[Config](name, data)
	return c.checked(at)
}

// A configuration is the same if it is parsed twice, whatever it contains. What cannot change at run time is reported
// with its place.
func TestParseChanged(t *testing.T) {
	data, err := os.ReadFile("testdata/design.yaml")
	if err != nil {
		t.Fatal(err)
	}
	running, err := parseOffline("design.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := parseOffline("design.yaml", data)
	if err != nil || !Same(running, again) {
		t.Errorf("parsed again, the configuration differs: %v", err)
	}
	parse := func(text string) (*Config, error) { return ParseChanged("a.yaml", []byte(text), Default()) }
	if c, err := parse("shutdownTimeout: 5s\nwatch: [{resources: [pods]}]\nsinks: [{name: a, stdout: {}}]"); err != nil ||
		Same(c, Default()) {
		t.Errorf("what can change: %v", err)
	}
	for text, want := range map[string]string{
		"cluster: b":                     "a.yaml:1:10: cluster: cannot change while the bridge runs",
		"\nstate: {path: b}":             "a.yaml:2:15: state.path: cannot change",
		"state: {log: {}}":               "state.log: has no broker",
		"kubeconfig: a.yaml":             "kubeconfig",
		"election: {leaseDuration: 11s}": "election: cannot change",
		"http: {listen: \":1\"}":         "http.listen: cannot change",
		"http: {ui: true}":               "http.ui: cannot change",
		"audit: {listen: \"127.0.0.1:1\", tokenFile: config.go}\nsinks: [{name: a, events: audit, stdout: {}}]": "audit: cannot change",
		"log: {format: json}": "log.format: cannot change",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// Mistakes elsewhere in the file do not hide a value.
func TestReadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bridge.yaml")
	for text, want := range map[string]string{
		"http: {listen: \":1\"}\nsinks: [{nam: a}]\nstate: {log: {}}": ":1",
		"http: {listen: 1, ui: yes}":                                  ":8080",
		"http: [":                                                     ":8080",
		"":                                                            ":8080",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := Readable(path)
		if c.HTTP.Listen != want || (c.State.Log != nil) != strings.Contains(text, "log:") {
			t.Errorf("%q: %q, %+v", text, c.HTTP.Listen, c.State)
		}
	}
	if c := Readable(path + ".none"); c.HTTP.Listen != ":8080" {
		t.Errorf("without a file: %q", c.HTTP.Listen)
	}
}
