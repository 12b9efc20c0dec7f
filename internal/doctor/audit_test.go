package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/config"
)

// Whether there are audit events to read, with the reason and a remedy if there are not.
func TestAuditSources(t *testing.T) {
	dir := t.TempDir()
	const one = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","auditID":"a","stage":"ResponseComplete"}` + "\n"
	path := func(name, content string) string {
		p := filepath.Join(dir, name)
		if content != "" {
			if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return p
	}
	good, bad, missing := path("good.log", one+one), path("bad.log", one+"{}\n"), path("missing.log", "")
	head := fmt.Sprintf(
		"state: {path: %q}\nwatch: [{resources: [pods]}]\nsinks: [{name: s, events: audit, stdout: {}}]\naudit:\n",
		dir,
	)
	check := func(sources string) (lines []string) {
		t.Helper()
		cfg, err := config.Parse("bridge.yaml", []byte(head+sources))
		if err != nil {
			t.Fatal(err)
		}
		e := &examination{cfg: cfg, area: "audit"}
		e.checkAuditSources(t.Context())
		for _, f := range e.report.Findings {
			line := fmt.Sprintf("%s %s %s: %s%s", f.Result, f.Step, f.Target, f.Detail, f.Error)
			if f.Remedy != "" {
				line += " -> " + f.Remedy
			}
			lines = append(lines, strings.ReplaceAll(line, dir+"/", ""))
		}
		return lines
	}
	for sources, want := range map[string][]string{
		fmt.Sprintf("  files: [%q, %q, %q]", good, bad, missing): {
			"warning audit events missing.log: there is no such file yet -> check audit.files and the API server's --audit-log-path",
			"ok audit events good.log: can be read; events read from its beginning: 2",
			"warning audit events bad.log: 1 of the oldest events can be read; what is missing is announced by gap events: " +
				`lines of bad.log cannot be read: an audit event has no auditID -> check that it contains audit events of the version audit.k8s.io/v1, and nothing else`,
		},
		"  kafka: {brokers: ['127.0.0.1:1'], topic: t, requestTimeout: 1s}": {
			"failed connect 127.0.0.1:1: nothing listens there (connection refused) -> start the broker, or correct the port in kafka.brokers",
		},
		"  nats: {url: 'nats://127.0.0.1:1', stream: s}": {
			"failed connect 127.0.0.1:1: nothing listens there (connection refused) -> start the broker, or correct the port in nats.url",
		},
	} {
		if diff := cmp.Diff(want, check(sources)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sources, diff)
		}
	}
	// Without the state directory, this may be another machine than that of the bridge.
	cfg := config.Config{Audit: &config.Audit{Files: []string{good}}}
	e := &examination{cfg: &cfg}
	if e.checkAuditSources(t.Context()); len(e.report.Findings) > 0 {
		t.Errorf("%+v", e.report.Findings)
	}
}
