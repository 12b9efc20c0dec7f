package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// writeFile writes a file and returns its path.
func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// commandsWithConfig returns the arguments of each command that has --config.
func commandsWithConfig(t *testing.T) (all [][]string) {
	t.Helper()
	arguments := map[string]string{
		"explain": "pod.yaml", "pause": "live", "resume": "live",
	}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			visit(sub)
		}
		if c.Flags().Lookup("config") == nil {
			return
		}
		words := strings.Fields(c.CommandPath())[1:]
		if argument := arguments[strings.Join(words, " ")]; argument != "" {
			words = append(words, argument)
		}
		all = append(all, words)
	}
	visit(newCommand(nil, nil))
	if len(all) != 13 {
		t.Errorf("%d commands: %v", len(all), all)
	}
	return all
}

// All commands read the file of --config, or else that of DELTABRIDGE_CONFIG, or else ./bridge.yaml.
func TestWhichConfiguration(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	all := commandsWithConfig(t)
	expect := func(want string, code int, flags ...string) {
		t.Helper()
		for _, args := range all {
			_, err := command(t, append(args, flags...)...)
			if err == nil || !strings.Contains(err.Error(), want) || exitCode(err) != code {
				t.Errorf("%v %v: %v (exit code %d), want %s", args, flags, err, exitCode(err), want)
			}
		}
	}
	for _, args := range all {
		_, err := command(t, args...)
		switch args[0] {
		case "run": // has a built-in configuration
			if exitCode(err) != exitFailed || !strings.Contains(err.Error(), "there is no kubeconfig") {
				t.Errorf("run without a configuration: %v", err)
			}
		case "tail":
			if !errors.Is(err, errNoConfig) || !strings.HasSuffix(err.Error(), "or name the servers with --nats or --kafka") {
				t.Errorf("tail without a configuration: %v", err)
			}
		default:
			if !errors.Is(err, errNoConfig) {
				t.Errorf("%v without a configuration: %v", args, err)
			}
		}
	}
	writeFile(t, "flag.yaml", "flag: 1")
	writeFile(t, "variable.yaml", "variable: 1")
	writeFile(t, configDefault, "default: 1")
	expect(`bridge.yaml:1:1: unknown key "default"`, exitConfig)
	t.Setenv(configVariable, "variable.yaml")
	expect(`variable.yaml:1:1: unknown key "variable"`, exitConfig)
	expect(`flag.yaml:1:1: unknown key "flag"`, exitConfig, "--config", "flag.yaml")
	expect("configuration file (--config): open none.yaml: no such file", exitConfig, "-c", "none.yaml")
	expect("--config is empty", exitUsage, "--config=")
	t.Setenv(configVariable, "none.yaml")
	expect("configuration file (DELTABRIDGE_CONFIG): open none.yaml: no such file", exitConfig)
	if err := errors.Join(os.Remove(configDefault), os.Mkdir(configDefault, 0o700)); err != nil {
		t.Fatal(err)
	}
	t.Setenv(configVariable, "")
	expect("configuration file (default): read bridge.yaml: is a directory", exitConfig)
}

// elsewhere is the configuration of a Pod whose files do not exist on this machine.
const elsewhere = `
kubeconfig: /nowhere/kubeconfig
redactionKeyFile: /nowhere/key
watch: [{resources: [pods]}]
sinks:
  - name: js
    nats:
      url: tls://a:4222
      credentialsFile: /nowhere/bridge.creds
      tls: {caFile: /nowhere/ca.crt, certFile: /nowhere/tls.crt, keyFile: /nowhere/tls.key}
  - name: topic
    kafka:
      brokers: ["a:9092"]
      tls: {caFile: /nowhere/ca.crt}
      sasl: {mechanism: SCRAM-SHA-512, username: u, passwordFile: /nowhere/password}
`

// Outside of the Pod, the files that the configuration names do not exist. Commands that connect to nothing work.
func TestConfigurationOfAnotherMachine(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "bridge.yaml"), elsewhere)
	pod := writeFile(
		t,
		filepath.Join(dir, "pod.yaml"),
		"kind: Pod\napiVersion: v1\nmetadata: {name: web, namespace: shop}\n",
	)
	out, err := command(t, "check", "--config", file)
	if err != nil || strings.Count(out, "note: "+file+":") != 8 || !strings.HasSuffix(out, "\n"+file+": ok\n") ||
		!strings.Contains(
			out,
			file+":2:13: kubeconfig: stat /nowhere/kubeconfig: no such file or directory (`bridge run` requires this file)\n",
		) {
		t.Errorf("check: %v\n%s", err, out)
	}
	if out, err := command(t, "rbac", "--config", file); err != nil || !strings.Contains(out, "kind: ClusterRoleBinding") {
		t.Errorf("rbac: %v\n%s", err, out)
	}
	out, err = command(t, "explain", "--offline", "--config", file, pod)
	if err != nil || !strings.Contains(out, "sink js (nats)  sent as added") ||
		!strings.Contains(out, "sink topic (kafka)  sent as added") {
		t.Errorf("explain --offline: %v\n%s", err, out)
	}
	for _, args := range [][]string{{"pause", "js"}, {"resume", "js"}, {"resync"}} { // a lost Secret must not prevent them
		if _, err := command(t, append(args, "--config", file)...); err == nil ||
			!strings.HasPrefix(err.Error(), "no bridge is running") {
			t.Errorf("%v: %v", args, err)
		}
	}
	for _, args := range [][]string{{"run"}, {"doctor"}, {"explain", pod}, {"tail"}, {"claim"}} {
		out, err := command(t, append(args, "--config", file)...)
		if exitCode(err) != exitConfig || out != "" || !strings.Contains(
			err.Error(),
			file+":14:21: sinks[1].kafka.tls.caFile: stat /nowhere/ca.crt: no such file or directory (set it to a file that the bridge can read)",
		) {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	// All other mistakes are found, also about keys whose file is missing, and about files that exist.
	bad := strings.ReplaceAll(elsewhere, "credentialsFile:", "nkeyFile: /nowhere/nk\n      credentialsFile:")
	bad = strings.Replace(bad, "/nowhere/key", ".", 1)
	file = writeFile(t, filepath.Join(dir, "bad.yaml"), bad)
	_, err = command(t, "check", "--config", file)
	if exitCode(err) != exitConfig || strings.Contains(err.Error(), "no such file") ||
		!strings.Contains(err.Error(), "nkeyFile: cannot be used together with credentialsFile") ||
		!strings.Contains(err.Error(), "redactionKeyFile: "+dir+" is not a regular file") {
		t.Errorf("mistakes: %v", err)
	}
}
