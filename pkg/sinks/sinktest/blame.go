package sinktest

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// Blamed contains the parts of an error that an operator sees.
type Blamed struct{ Step, Key, Text string }

// Blame returns the parts of err, which must be or wrap a [sinks.ConnectError]. Values that differ between test runs
// are replaced: the address addr by ADDR, times by DATE, and paths in the test's temporary directories by their last
// element. TLS alerts are removed.
func Blame(t testing.TB, err error, addr string) Blamed {
	t.Helper()
	ce, ok := errors.AsType[*sinks.ConnectError](err)
	if !ok {
		t.Fatalf("no ConnectError: %v", err)
	}
	text := strings.NewReplacer(addr, "ADDR").Replace(err.Error())
	text = regexp.MustCompile(`20\d\d-\d\d-\d\dT[0-9:]+Z`).ReplaceAllString(text, "DATE")
	text = regexp.MustCompile(regexp.QuoteMeta(filepath.Dir(filepath.Dir(t.TempDir())))+`[^ :]*/`).
		ReplaceAllString(text, "")
	text = regexp.MustCompile(` \(tls: [a-z ]+\)`).ReplaceAllString(text, "") // the alert can get lost
	return Blamed{ce.Step, ce.Key, text}
}

// Table returns one line per finding of a check, as an operator sees it, but without the details of steps that passed.
func Table(findings []diagnose.Finding, addr string) (lines []string) {
	for _, f := range findings {
		var line string
		switch {
		case f.Err != nil:
			line = fmt.Sprintf("FAIL %s %s: %v -> %s", f.Step, f.Target, f.Err, f.Remedy)
		case f.Warn:
			line = fmt.Sprintf("warn %s %s: %s -> %s", f.Step, f.Target, f.Detail, f.Remedy)
		default:
			line = fmt.Sprintf("ok %s %s", f.Step, f.Target)
		}
		lines = append(lines, strings.NewReplacer(addr, "ADDR").Replace(line))
	}
	return lines
}

// Failures returns the failed steps.
func Failures(findings []diagnose.Finding) (steps []string) {
	for _, f := range findings {
		if f.Err != nil {
			steps = append(steps, f.Step)
		}
	}
	return steps
}
