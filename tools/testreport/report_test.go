package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCounts(t *testing.T) {
	const pass = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p"}
`
	tests := []struct {
		name, records string
		want          string
		shows         string // must be in what is printed
	}{
		{"pass", pass, "1 passed, 0 failed, 0 skipped", ""},
		{"failed test fails its package once", `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"got 1\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}
`, "0 passed, 1 failed, 0 skipped", "got 1"},
		{"failed package without a failed test", `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"found unexpected goroutines\n"}
{"Action":"fail","Package":"p"}
`, "1 passed, 1 failed, 0 skipped", "found unexpected goroutines"},
		{"test without an end", `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"panic: out of time\n"}
{"Action":"fail","Package":"p"}
`, "0 passed, 1 failed, 0 skipped", "panic: out of time"},
		{"build failure", `{"Action":"build-output","ImportPath":"p [p.test]","Output":"undefined: x\n"}
{"Action":"build-fail","ImportPath":"p [p.test]"}
{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}
`, "0 passed, 1 failed, 0 skipped", "undefined: x"},
		{"what a failed test says is in the summary", `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: got 1\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    run_test.go:9: the log:\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"        long\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}
`, "0 passed, 1 failed, 0 skipped", "failed: p TestA\n    a_test.go:7: got 1\n    run_test.go:9: the log:\n0 passed"},
		{"skip", `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:4: no java\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p"}
`, "0 passed, 0 failed, 1 skipped", "skipped: p TestA: a_test.go:4: no java"},
		{"slow", `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA/part","Elapsed":31}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":32.4}
{"Action":"pass","Package":"p"}
`, "2 passed, 0 failed, 0 skipped", "slow:   32 s  p TestA\n2 passed"},
		{"package without tests", `{"Action":"skip","Package":"p"}` + "\n", "0 passed, 0 failed, 0 skipped", ""},
		{"seeds are no tests", `{"Action":"skip","Package":"p","Test":"FuzzA/seed#0"}
{"Action":"pass","Package":"p","Test":"FuzzA/seed#1"}
{"Action":"pass","Package":"p","Test":"FuzzA"}
{"Action":"pass","Package":"p"}
`, "1 passed, 0 failed, 0 skipped", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out)
			if err := r.read(strings.NewReader(tt.records)); err != nil {
				t.Fatal(err)
			}
			r.summary()
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if got := lines[len(lines)-1]; got != tt.want {
				t.Errorf("last line %q, want %q", got, tt.want)
			}
			if !strings.Contains(out.String(), tt.shows) {
				t.Errorf("output lacks %q:\n%s", tt.shows, out.String())
			}
		})
	}
}

func TestNoFolderIsAnError(t *testing.T) {
	if err := run(t.Context(), []string{"-no-skips", "--", "-race"}, io.Discard, io.Discard); err == nil {
		t.Error("no error")
	}
}

// The module under test has one test, which skips.
func TestSkips(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module x\n\ngo 1.26\n",
		"x_test.go": "package x\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) {}\n\nfunc TestB(t *testing.T) { t.Skip(\"no java\") }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name string
		args []string
		ok   bool
	}{
		{"allowed", []string{dir}, true},
		{"not allowed", []string{"-no-skips", dir}, false},
		{"allowed for this reason", []string{"-no-skips", "-may-skip=no java", dir}, true},
		{"not for this one", []string{"-no-skips", "-may-skip=no python", dir}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			err := run(t.Context(), tt.args, &out, io.Discard)
			if (err == nil) != tt.ok {
				t.Errorf("error %v, want ok %v", err, tt.ok)
			}
			if want := "1 passed, 0 failed, 1 skipped\n"; !strings.HasSuffix(out.String(), want) {
				t.Errorf("output %q, want it to end in %q", out.String(), want)
			}
		})
	}
}

// The tests of all directories are counted, although they run at the same time.
func TestDirectories(t *testing.T) {
	var args []string
	for _, name := range []string{"a", "b", "c"} {
		dir := t.TempDir()
		for file, text := range map[string]string{
			"go.mod":    "module " + name + "\n\ngo 1.26\n",
			"x_test.go": "package x\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) {}\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		args = append(args, dir)
	}
	var out strings.Builder
	if err := run(t.Context(), args, &out, io.Discard); err != nil {
		t.Error(err)
	}
	if want := "3 passed, 0 failed, 0 skipped\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("output %q, want it to end in %q", out.String(), want)
	}
	if err := run(t.Context(), append(args, t.TempDir()), io.Discard, io.Discard); err == nil {
		t.Error("no error of a directory without a module")
	}
}

// Packages that are to start first are run once, and end first if packages run one by one.
func TestFirst(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"go.mod":      "module x\n\ngo 1.26\n",
		"a/x_test.go": "package a\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) {}\n",
		"b/x_test.go": "package b\n\nimport \"testing\"\n\nfunc TestB(t *testing.T) {}\n",
		"c/x_test.go": "package c\n\nimport \"testing\"\n\nfunc TestC(t *testing.T) {}\n",
	} {
		file = filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := run(t.Context(), []string{"-first=./c", "-first=./b", dir, "--", "-p=1"}, &out, io.Discard); err != nil {
		t.Error(err)
	}
	c, b, a := strings.Index(out.String(), "x/c"), strings.Index(out.String(), "x/b"), strings.Index(out.String(), "x/a")
	if c < 0 || b < c || a < b {
		t.Errorf("output %q, want x/c, then x/b, then x/a", out.String())
	}
	if want := "3 passed, 0 failed, 0 skipped\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("output %q, want it to end in %q", out.String(), want)
	}
}
