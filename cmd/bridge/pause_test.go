package main

import (
	"strings"
	"testing"
)

// The answers of the running bridge are printed, one for each sink, until one is an error. That a running bridge gives
// such answers is tested in internal/engine and with the built binary (test/e2e).
func TestPauseCommands(t *testing.T) {
	for _, name := range []string{"pause", "resume"} {
		file := answering(t, "a: done\n")
		if out, err := command(t, name, "-c", file, "a", "b"); err != nil || out != "a: done\na: done\n" {
			t.Errorf("%s: %q, %v", name, out, err)
		}
		if _, err := command(t, name, "-c", file); err == nil {
			t.Errorf("%s without a sink was accepted", name)
		}
		if out, err := command(t, name, "-c", stateConfig(t), "a"); err == nil || out != "" ||
			!strings.HasPrefix(err.Error(), "no bridge is running with this state.path on this machine") {
			t.Errorf("%s without a bridge: %q, %v", name, out, err)
		}
	}
}
