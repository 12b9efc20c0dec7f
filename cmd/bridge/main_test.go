package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/parked"
)

// asCommand is an environment variable with which the test binary is the bridge.
const asCommand = "BRIDGE_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	if err := os.Unsetenv(configVariable); err != nil { // the tests set it themselves
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// command runs the command line in the process and gives what it printed.
func command(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := newCommand(&out, &errs)
	cmd.SetArgs(args)
	err = execute(t.Context(), cmd)
	return out.String(), err
}

func TestVersion(t *testing.T) {
	out, err := command(t, "version")
	if err != nil || !strings.HasPrefix(out, "bridge dev (commit unknown, built unknown, go") {
		t.Errorf("%q, %v", out, err)
	}
}

func TestCheck(t *testing.T) {
	examples, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatalf("no examples (%v)", err)
	}
	for _, file := range examples {
		out, err := command(t, "check", "--config", file)
		text, readErr := os.ReadFile(file)
		if err = errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(text), "\n") {
			if before, _, ok := strings.Cut(line, "{topic: "); ok && strings.HasSuffix(before, "controlEvents: ") {
				warning, rest, _ := strings.Cut(out, "\n")
				if out = rest; !strings.HasPrefix(warning, fmt.Sprintf("warning: %s:%d:%d: ", file, n+1, len(before)+1)) {
					t.Errorf("%s: no warning about line %d: %q", file, n+1, warning)
				}
			}
		}
		if out != file+": ok\n" {
			t.Errorf("%q", out)
		}
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("clutser: prod\nshutdownTimeout: 30\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = command(t, "check", "--config", bad)
	if err == nil || !strings.Contains(err.Error(), bad+":1:1: ") || !strings.Contains(err.Error(), bad+":2:18: ") {
		t.Errorf("both mistakes should be named with their places: %v", err)
	}
}

func TestUsageMistakes(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"check"}, "no configuration: set --config or DELTABRIDGE_CONFIG, or create ./bridge.yaml"},
		{[]string{"check", "--config", ""}, "--config is empty"},
		{[]string{"run", "--config", "nowhere.yaml"}, "nowhere.yaml"},
		{[]string{"run", "extra"}, `unknown command "extra"`},
		{[]string{"dance"}, `unknown command "dance"`},
	} {
		if _, err := command(t, tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %s", tt.args, err, tt.want)
		}
	}
}

// Events that were parked for a sink which is gone: neither run nor check takes the configuration, and both say what to
// do.
func TestOrphanedEventsAreRefused(t *testing.T) {
	dir := t.TempDir()
	store, err := parked.Open(parked.Options{Dir: dir, Sink: "old-name"})
	if err != nil {
		t.Fatal(err)
	}
	err = store.Park([]parked.Parking{{Destination: "k8s.pods", Message: &event.Message{}}})
	if err := errors.Join(err, store.Close()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "bridge.yaml")
	text := fmt.Sprintf("state: {path: %q}\nwatch: [{resources: [pods]}]\nsinks: [{name: new-name, stdout: {}}]\n", dir)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, checked := command(t, "check", "--config", file)
	_, run := command(t, "run", "--config", file)
	for _, err := range []error{checked, run} {
		if err == nil || !strings.Contains(err.Error(), "1 events of k8s.pods for sink old-name") ||
			!strings.Contains(err.Error(), "restore the sink with its old name") {
			t.Error(err)
		}
	}
}
