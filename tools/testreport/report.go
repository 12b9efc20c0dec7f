package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// record is one line of "go test -json"; see "go doc test2json" and, for the build- actions, "go help buildjson".
type record struct {
	Action      string
	Package     string
	ImportPath  string // in build- actions, instead of Package
	Test        string
	Output      string
	Elapsed     float64 // seconds
	FailedBuild string
}

// report counts the results of tests and prints the output of failed ones.
type report struct {
	mu     sync.Mutex // guards the other fields while tests run
	w      io.Writer
	passed int
	failed int
	skips  []skip
	fails  []string // what failed tests say, for the summary
	took   []timing // top-level tests

	output map[test][]string   // output of tests that have not ended yet
	open   map[string][]string // tests that have not ended yet, by package
	failIn map[string]int      // number of failed tests, by package
	builds map[string][]string // output of the compiler, by ImportPath
}

// skip is a skipped test and the reason.
type skip struct {
	test
	reason string
}

// timing is the time that a test took, without the time in which it waited for other tests.
type timing struct {
	test
	seconds float64
}

// slowest limits how many slow tests the summary lists. Tests faster than leastSeconds are not listed.
const (
	slowest      = 15
	leastSeconds = 5
)

// mostMessages and longestMessage (in characters) limit what the summary shows of one failed test.
const (
	mostMessages   = 12
	longestMessage = 500
)

// test identifies a test or, if the name is empty, a package.
type test struct{ pkg, name string }

func newReport(w io.Writer) *report {
	return &report{
		w:      w,
		output: map[test][]string{},
		open:   map[string][]string{},
		failIn: map[string]int{},
		builds: map[string][]string{},
	}
}

// read processes records until src ends.
func (r *report) read(src io.Reader) error {
	lines := bufio.NewReader(src)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.line(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) line(line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var rec record
	if err := json.Unmarshal(line, &rec); err != nil {
		fmt.Fprintf(r.w, "%s", line) // not from test2json: print it unchanged
		return
	}
	switch rec.Action {
	case "build-output":
		r.builds[rec.ImportPath] = append(r.builds[rec.ImportPath], rec.Output)
	case "output":
		t := test{rec.Package, rec.Test}
		r.output[t] = append(r.output[t], rec.Output)
	case "run":
		r.open[rec.Package] = append(r.open[rec.Package], rec.Test)
	case "pass", "fail", "skip":
		if rec.Test == "" {
			r.endPackage(rec)
		} else {
			r.endTest(rec)
		}
	}
}

func (r *report) hasFailed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed > 0
}

func (r *report) endTest(rec record) {
	t := test{rec.Package, rec.Test}
	r.open[t.pkg] = slices.DeleteFunc(r.open[t.pkg], func(name string) bool { return name == t.name })
	if rec.Elapsed >= leastSeconds && !strings.Contains(t.name, "/") {
		r.took = append(r.took, timing{t, rec.Elapsed})
	}
	seed := strings.HasPrefix(t.name, "Fuzz") && strings.Contains(t.name, "/")
	switch {
	case rec.Action == "fail":
		r.fail(t)
	case seed: // a passed seed of a fuzz target is not counted
	case rec.Action == "skip":
		r.skips = append(r.skips, skip{t, reason(r.output[t])})
	default:
		r.passed++
	}
	delete(r.output, t)
}

func (r *report) endPackage(rec record) {
	pkg := rec.Package
	if rec.Action == "fail" {
		for _, name := range r.open[pkg] { // the process ended before them
			r.fail(test{pkg, name})
			delete(r.output, test{pkg, name})
		}
		r.print(r.builds[rec.FailedBuild])
		if r.failIn[pkg] == 0 {
			r.failed++
		}
	}
	r.print(r.output[test{pkg, ""}])
	delete(r.output, test{pkg, ""})
	delete(r.open, pkg)
}

func (r *report) fail(t test) {
	r.failed++
	r.failIn[t.pkg]++
	r.print(r.output[t])
	r.fails = append(r.fails, fmt.Sprintf("failed: %s %s\n%s", t.pkg, t.name, messages(r.output[t])))
}

// message matches the first line of what a test says, and of a panic.
var message = regexp.MustCompile(`^( +[\w-]+\.go:\d+: |panic: )`)

// messages returns the first lines of what a failed test says, one of each, without what follows them, as logs of
// servers do.
func messages(output []string) string {
	var found strings.Builder
	count := 0
	for _, line := range output {
		if count < mostMessages && message.MatchString(line) {
			fmt.Fprintf(&found, "%.*s\n", longestMessage, strings.TrimRight(line, "\n"))
			count++
		}
	}
	return found.String()
}

// print prints output without the testing package's progress lines.
func (r *report) print(output []string) {
	for _, line := range output {
		if line == "PASS\n" || strings.HasPrefix(line, "=== ") || strings.HasSuffix(line, "[no test files]\n") {
			continue
		}
		fmt.Fprint(r.w, line)
	}
}

// summary prints the slowest tests, the skipped tests, what the failed tests say, and a line with the counts.
func (r *report) summary() {
	slices.SortFunc(r.took, func(a, b timing) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, t := range r.took[:min(len(r.took), slowest)] {
		fmt.Fprintf(r.w, "slow: %4.0f s  %s %s\n", t.seconds, t.pkg, t.name)
	}
	for _, s := range r.skips {
		fmt.Fprintf(r.w, "skipped: %s %s: %s\n", s.pkg, s.name, s.reason)
	}
	for _, f := range r.fails {
		fmt.Fprint(r.w, f)
	}
	fmt.Fprintf(r.w, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, len(r.skips))
}

// reason returns the message of t.Skip from the output of a skipped test.
func reason(output []string) string {
	var found []string
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			found = append(found, line)
		}
	}
	if len(found) == 0 {
		return "no reason given"
	}
	return strings.Join(found, " ")
}
