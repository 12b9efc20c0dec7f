package chart

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// rule is one of a PrometheusRule, which has the form of a file of rules.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type ruleGroup struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

type ruleFile struct {
	Groups []ruleGroup `json:"groups"`
}

// rules are those of a rendering, and the file that promtool reads them from.
func rules(t *testing.T, args ...string) ([]rule, string) {
	t.Helper()
	var o struct {
		Spec ruleFile `json:"spec"`
	}
	text := template(
		t,
		append([]string{"--set", "prometheusRule.enabled=true", "--show-only", "templates/prometheusrule.yaml"}, args...)...)
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	if len(o.Spec.Groups) != 1 || len(o.Spec.Groups[0].Rules) == 0 {
		t.Fatalf("rules: %s", text)
	}
	return o.Spec.Groups[0].Rules, writeRules(t, o.Spec)
}

func writeRules(t *testing.T, file ruleFile) string {
	t.Helper()
	text, err := yaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "rules.yaml", string(text))
}

// promtool checks a file of rules: syntax, templates, and what it finds dubious.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, _, err := command(t, tools.promtool, args...); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAlerts(t *testing.T) {
	all, file := rules(t)
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", file)
	tests, err := os.ReadFile("testdata/alerts.test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tests = bytes.ReplaceAll(tests, []byte("VERSION"), []byte(chartVersion(t)))
	copied := filepath.Join(filepath.Dir(file), "alerts.test.yaml") // beside the rules
	if err := os.WriteFile(copied, tests, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "test", "rules", copied)

	var file2 struct {
		Tests []struct {
			Cases []struct {
				Alert  string `json:"alertname"`
				Expect []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	if err := yaml.Unmarshal(tests, &file2); err != nil {
		t.Fatal(err)
	}
	fires, still := map[string]bool{}, map[string]bool{}
	for _, test := range file2.Tests {
		for _, c := range test.Cases {
			fires[c.Alert] = fires[c.Alert] || len(c.Expect) > 0
			still[c.Alert] = still[c.Alert] || len(c.Expect) == 0
		}
	}
	for _, r := range all {
		if !fires[r.Alert] || !still[r.Alert] {
			t.Errorf("%s: shown to fire: %v, to keep still: %v", r.Alert, fires[r.Alert], still[r.Alert])
		}
		delete(fires, r.Alert)
	}
	for name := range fires { // promtool takes an unknown alert for one that is still
		t.Errorf("the test of %s is about no alert", name)
	}
}

// The alerts of the other example values are valid too. Changes of single alerts and additional rules are applied.
func TestAlertsOfExamples(t *testing.T) {
	for name, values := range examples(t) {
		all, file := rules(t, values...)
		promtool(t, "check", "rules", file)
		has := func(alert string) bool {
			return slices.ContainsFunc(all, func(r rule) bool { return r.Alert == alert })
		}
		full := name == "everything"
		if has("DeltabridgeGap") == full || has("DeltabridgeNotReadyForLong") != full {
			t.Errorf("%s: disabled and extraRules: %+v", name, all)
		}
		for _, r := range all {
			lag := full && r.Alert == "DeltabridgeLag"
			if lag && (r.Labels["severity"] != "info" || r.For != "30m" || !strings.HasSuffix(r.Expr, "> 300")) {
				t.Errorf("the changes of the alert are not applied: %+v", r)
			}
			if strings.Contains(r.Expr, "THRESHOLD") {
				t.Errorf("%s has no threshold", r.Alert)
			}
		}
	}
}

// Each alert leads to a section that says what to do.
func TestRunbooks(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	all, _ := rules(t, "--values", withLog, "--set", noVolume)
	for _, r := range all {
		if !strings.Contains(string(text), "\n### "+r.Alert+"\n") {
			t.Errorf("docs/operations.md has no section %s", r.Alert)
		}
		want := "/blob/v" + chartVersion(t) + "/docs/operations.md#" + strings.ToLower(r.Alert)
		if !strings.HasSuffix(r.Annotations["runbook_url"], want) {
			t.Errorf("%s: runbook %s", r.Alert, r.Annotations["runbook_url"])
		}
		if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%+v lacks a severity, a summary or a description", r)
		}
	}
	for _, section := range regexp.MustCompile(`(?m)^### (Deltabridge\w+)$`).FindAllStringSubmatch(string(text), -1) {
		if !slices.ContainsFunc(all, func(r rule) bool { return r.Alert == section[1] }) {
			t.Errorf("docs/operations.md has a section %s, which is no alert", section[1])
		}
	}
}

var metricName = regexp.MustCompile(`\b(deltabridge|go|process)_\w+`)

// documentedMetrics are the names in docs/metrics.md with their labels, and those in docs/availability.md, which have
// none. Those of a histogram have the names of its series.
func documentedMetrics(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(root + "/docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{
		// The page leaves out the metrics of the Go runtime and the process.
		"process_start_time_seconds":    nil,
		"process_resident_memory_bytes": nil,
		"process_cpu_seconds_total":     nil,
		"go_memstats_heap_inuse_bytes":  nil,
		"go_gc_gomemlimit_bytes":        nil,
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w+) \\| (.*?) \\|").FindAllStringSubmatch(string(text), -1) {
		labels := regexp.MustCompile(`\w+`).FindAllString(row[3], -1)
		suffixes := []string{""}
		if row[2] == "histogram" {
			suffixes = []string{"_bucket", "_sum", "_count"}
			labels = append(labels, "le")
		}
		for _, suffix := range suffixes {
			found[row[1]+suffix] = labels
		}
	}
	if text, err = os.ReadFile(root + "/docs/availability.md"); err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(deltabridge_\\w+)` \\|").FindAllStringSubmatch(string(text), -1) {
		found[row[1]] = nil
	}
	if len(found) < 30 {
		t.Fatalf("docs/metrics.md: found %v", found)
	}
	return found
}

// checkExpressions reports metrics and labels that do not exist.
func checkExpressions(t *testing.T, where string, expressions ...string) {
	t.Helper()
	known := documentedMetrics(t)
	for _, expression := range expressions {
		of := []string{"cluster", "namespace", "pod", "instance", "job"} // from Prometheus
		for _, name := range metricName.FindAllString(expression, -1) {
			labels, ok := known[name]
			if !ok {
				t.Errorf("%s: there is no metric %s", where, name)
			}
			of = append(of, labels...)
		}
		for _, match := range regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"|by \(([\w, ]+)\)`).FindAllStringSubmatch(expression, -1) {
			for _, label := range regexp.MustCompile(`\w+`).FindAllString(match[1]+" "+match[2], -1) {
				if !slices.Contains(of, label) {
					t.Errorf("%s: no metric of %s has the label %s", where, expression, label)
				}
			}
		}
	}
}

func TestAlertsUseMetricsThatExist(t *testing.T) {
	all, _ := rules(t, "--values", withLog, "--set", noVolume)
	for _, r := range all {
		checkExpressions(t, r.Alert, r.Expr)
	}
}

// The dashboard asks for metrics that exist, in expressions that are valid.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile(chartDir + "/files/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			ID                       int
			GridPos                  struct{ X, Y, W, H int }
			Title, Type, Description string
			Targets                  []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Definition string }
		}
		Annotations struct {
			List []struct{ Name, Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	var group ruleGroup
	interval := strings.NewReplacer("$__rate_interval", "5m", "$__interval", "1m")
	ids, cells := map[int]string{}, map[[2]int]string{}
	for _, p := range dashboard.Panels {
		if other, taken := ids[p.ID]; taken {
			t.Errorf("%s has the id of %s", p.Title, other)
		}
		ids[p.ID] = p.Title
		for n := range p.GridPos.W * p.GridPos.H {
			cell := [2]int{p.GridPos.X + n%p.GridPos.W, p.GridPos.Y + n/p.GridPos.W}
			if other, taken := cells[cell]; taken || cell[0] >= 24 {
				t.Fatalf("%s overlaps %s, or is outside of the grid", p.Title, other)
			}
			cells[cell] = p.Title
		}
		if p.Type != "row" && (len(p.Targets) == 0 || p.Description == "") {
			t.Errorf("%s: no query, or no description", p.Title)
		}
		for _, target := range p.Targets {
			checkExpressions(t, p.Title, target.Expr)
			group.Rules = append(group.Rules, rule{Alert: p.Title, Expr: interval.Replace(target.Expr)})
		}
	}
	for _, a := range dashboard.Annotations.List {
		checkExpressions(t, a.Name, a.Expr)
		group.Rules = append(group.Rules, rule{Alert: a.Name, Expr: interval.Replace(a.Expr)})
	}
	if len(group.Rules) < 20 {
		t.Fatalf("%d queries", len(group.Rules))
	}
	for _, v := range dashboard.Templating.List {
		checkExpressions(t, v.Name, v.Definition)
	}
	group.Name = "dashboard"
	promtool(t, "check", "rules", "--lint=none", writeRules(t, ruleFile{[]ruleGroup{group}}))
}
