package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// What `config show` prints has the same meaning: it is what `config show` prints of it, and `check` accepts it.
func TestConfigShow(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "bridge.yaml"), `
kubeconfig: kubeconfig
sinks:
  live: {nats: {url: "nats://${DELTABRIDGE_TEST_HOST:-a}:4222", passwordFile: secret, user: u}}
`)
	writeFile(t, filepath.Join(dir, "secret"), "s3cret")
	shown, err := command(t, "config", "show", "--config", file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"kubeconfig: " + dir + "/kubeconfig", "- name: live", "  maxInFlight: 512", "    url: nats://a:4222",
		"    passwordFile: " + dir + "/secret",
	} {
		if !strings.Contains(shown, line+"\n") {
			t.Errorf("there is no %q in\n%s", line, shown)
		}
	}
	if strings.Contains(shown, "s3cret") {
		t.Error("it contains a secret")
	}
	again := writeFile(t, filepath.Join(t.TempDir(), "again.yaml"), shown)
	if out, err := command(t, "config", "show", "--config", again); err != nil || out != shown {
		t.Errorf("%v\n%s\nof\n%s", err, out, shown)
	}
	if out, err := command(t, "check", "--config", again); err != nil || !strings.HasSuffix(out, again+": ok\n") {
		t.Errorf("%v\n%s", err, out)
	}
	bad := writeFile(t, filepath.Join(dir, "bad.yaml"), `sinks: {a: {nats: {url: "nats://u:s3cret@a"}}}`)
	if out, err := command(t, "config", "show", "--config", bad); exitCode(err) != exitConfig || out != "" ||
		strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%v\n%s", err, out)
	}
}

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
