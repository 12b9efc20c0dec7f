package reload

import (
	"path/filepath"
	"testing"
)

// The hash of a configuration depends on what the bridge does, and not on where a replica runs.
func TestHashFile(t *testing.T) {
	hash := func(text string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "bridge.yaml")
		writeFile(t, file, text)
		h, err := HashFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	same := hash("cluster: a\nstate: {path: /a, log: {nats: {url: b}}}\nhttp: {listen: \":1\"}\n")
	if got := hash(
		"# a comment\nstate: {log: {nats: {url: b}}, path: /b}\ncluster: a\nlog: {level: debug}\n",
	); got != same {
		t.Errorf("%s and %s", same, got)
	}
	for _, text := range []string{"cluster: b\nstate: {log: {nats: {url: b}}}", "cluster: a\nstate: {log: {nats: {url: c}}}"} {
		if hash(text) == same {
			t.Errorf("%s has the same hash", text)
		}
	}
	if _, err := HashFile(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that does not exist")
	}
}
