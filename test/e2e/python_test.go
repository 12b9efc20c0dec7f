package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/test/process"
)

const pythonExamples = "../../examples/consumers/python"

// noIndex is what pip says where it can't reach an index of packages.
var noIndex = regexp.MustCompile(
	`NewConnectionError|ProxyError|ConnectTimeout|Failed to establish|Name or service not known|Temporary failure in name resolution|Network is unreachable`,
)

// pythonForExamples is a Python that has what the examples require.
func pythonForExamples(t *testing.T) string {
	t.Helper()
	return pythonWith(t, filepath.Join(pythonExamples, "requirements.txt"))
}

// pythonWith is a Python that has the packages of a file, in .work/. The test is skipped where there is no Python, or no
// way to its packages.
func pythonWith(t *testing.T, requirements string) string {
	t.Helper()
	system, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("the Python examples need python3")
	}
	pins, err := os.ReadFile(requirements)
	if err != nil {
		t.Fatal(err)
	}
	version, err := exec.Command(system, "-c", "import sys, venv, ensurepip; print(sys.version)").Output()
	if err != nil {
		t.Skipf("the Python examples need venv and pip: %v", err)
	}
	base, err := filepath.Abs("../../.work/python")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(filepath.Join(base, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, fmt.Sprintf("%x", sha256.Sum256(append(version, pins...)))[:16])
	python := filepath.Join(dir, "bin", "python")
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		return python
	}
	tmp := dir + ".tmp"
	if err := os.RemoveAll(tmp); err != nil { // of a test that was killed
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	if out, err := exec.Command(system, "-m", "venv", tmp).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	install := exec.Command(
		filepath.Join(tmp, "bin", "python"),
		"-m",
		"pip",
		"install",
		"--quiet",
		"--disable-pip-version-check",
		"--retries=1",
		"--only-binary=:all:",
		"-r",
		requirements,
	)
	if out, err := install.CombinedOutput(); noIndex.Match(out) {
		t.Skipf("the Python examples need an index of packages: %s", out)
	} else if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Rename(tmp, dir); err != nil { // complete
		t.Fatal(err)
	}
	return python
}

// The state of the Python examples is that of the Go ones, event by event, and a patch makes the new state of the old
// one.
func TestPythonExamples(t *testing.T) {
	t.Parallel()
	python := pythonForExamples(t)
	run := func(input []byte, args ...string) []byte {
		t.Helper()
		var errs bytes.Buffer
		cmd := exec.Command(python, args...)
		cmd.Dir, cmd.Stdin, cmd.Stderr, cmd.SysProcAttr = pythonExamples, bytes.NewReader(input), &errs, process.Attr()
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, errs.String())
		}
		return out
	}
	parsed := func(lines []byte) (objects []map[string]any) {
		t.Helper()
		for line := range bytes.Lines(lines) {
			o := map[string]any{}
			if err := json.Unmarshal(line, &o); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			delete(o, "lastEvent") // is written with another number of digits
			objects = append(objects, o)
		}
		return objects
	}
	const replay = `
import json, sys, state
s = state.State(sys.argv[1], sweep=True)
for line in sys.stdin:
    event = json.loads(line)
    data = json.dumps(event["data"]).encode() if "data" in event else None
    s.apply([(event.get("attributes", {}), data, event.get("key"))])
`
	events, err := os.ReadFile("../../examples/consumers/testdata/events.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../../examples/consumers/testdata/objects.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "state.sqlite")
	for range 2 { // the second time everything is a repetition
		run(events, "-c", replay, file)
		if diff := cmp.Diff(parsed(want), parsed(run(nil, "state.py", file))); diff != "" {
			t.Error(diff)
		}
	}
}
