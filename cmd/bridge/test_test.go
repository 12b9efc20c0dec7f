package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testFile has a test that fails and, for a sink with the name lines, one that passes.
const testFile = `tests:
- name: a Pod is sent twice
  changes: [{add: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}}}]
  expect: {lines: [{operation: added}, {operation: added}]}
- name: a Pod is sent
  changes: [{add: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}}}]
  expect: {lines: [{operation: added}]}
`

// Without arguments, the tests beside the configuration are run. Files that name their configuration require no other.
func TestTest(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "a_test.yaml", "config: sub/bridge.yaml\n"+testFile)
	out, err := command(t, "test", "a_test.yaml", "--run", "sent$")
	if exitCode(err) != exitPartly ||
		!strings.Contains(out, "ERROR  a_test.yaml\na_test.yaml:1:9: config: stat sub/bridge.yaml: ") {
		t.Errorf("without its configuration: %v\n%s", err, out)
	}
	if err := os.Mkdir("sub", 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join("sub", "bridge.yaml"), "sinks: [{name: lines, stdout: {}}]\n")
	out, err = command(t, "test", "a_test.yaml", "--run", "sent$")
	if err != nil || out != "ok  a_test.yaml: 1 passed\n" {
		t.Errorf("%v\n%s", err, out)
	}
	writeFile(t, "b_test.yaml", testFile)
	out, err = command(t, "test", "b_test.yaml")
	if exitCode(err) != exitPartly ||
		!strings.Contains(out, "the file has no key config, and there is no configuration: set --config") {
		t.Errorf("without any configuration: %v\n%s", err, out)
	}
	writeFile(t, "bridge.yaml", elsewhere)
	writeFile(t, "b_test.yaml", strings.ReplaceAll(testFile, "lines", "js"))
	out, err = command(t, "test", "--junit", "report.xml")
	if err == nil || err.Error() != "2 of 4 tests failed" || strings.Count(out, "FAIL  ") != 4 ||
		!strings.Contains(out, "FAIL  a_test.yaml:3  a Pod is sent twice\n") {
		t.Errorf("%v\n%s", err, out)
	}
	report, err := os.ReadFile("report.xml")
	if err != nil || strings.Count(string(report), "<testcase ") != 4 || strings.Count(string(report), "<failure ") != 2 {
		t.Errorf("%v\n%s", err, report)
	}
	writeFile(t, "b_test.yaml", "tests:")
	if out, err = command(
		t,
		"test",
	); exitCode(err) != exitPartly ||
		!strings.Contains(out, "\nFAIL  a_test.yaml: 1 failed, 1 passed\n") ||
		err.Error() != "the tests of 1 of 2 files could not be run" {
		t.Errorf("%v\n%s", err, out)
	}
}
