package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/evaluate"
)

// What explain says of a live object, and that run then does it, is tested with the built binary (test/e2e).
func TestExplain(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	cfg := write("bridge.yaml", `
cluster: c
watch:
  - {resources: [pods, deployments.apps], namespaces: ["team-*"], labelSelector: "app=web"}
  - {resources: ["*.example.com"]}
  - {resources: [jobs.batch], namespaces: ["!team-a"], labelSelector: "app=web"}
  - {resources: [jobs.batch], namespaces: [team-a]}
  - {resources: [nodes], namespaces: ["", "team-*"], fieldSelector: spec.unschedulable=false}
sinks:
  - name: js
    filters: [{resources: [pods], when: "object.status.phase != 'Done'"}]
    nats: {url: "nats://127.0.0.1:1"}
  - {name: kafka, kafka: {brokers: ["127.0.0.1:1"], topic: "t.{resource}"}}
  - {name: lines, secrets: plain, stdout: {}}
`)
	pod := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"team-a","labels":{"app":"web"},"uid":"u1","resourceVersion":"7"},"status":{"phase":"Running"}}`
	file := write("pod.json", pod)
	done := write(
		"done.yaml",
		"kind: Pod\napiVersion: v1\nmetadata: {name: web, namespace: team-a, uid: u1, resourceVersion: \"8\", labels: {app: web}}\nstatus: {phase: Done}\n",
	)
	several := write(
		"several.yaml",
		"---\nkind: Node\napiVersion: v1\nmetadata: {name: n1}\n---\nkind: List\napiVersion: v1\nitems:\n- "+pod+"\n- {kind: Deployment, apiVersion: apps/v1, metadata: {name: web}}\n",
	)

	job := func(namespace string) string {
		return write(
			"job-"+namespace+".json",
			strings.NewReplacer("Pod", "Job", "v1", "batch/v1", "team-a", namespace).Replace(pod),
		)
	}

	explained := func(args ...string) (reports []evaluate.Report) {
		t.Helper()
		out, err := command(t, append([]string{"explain", "-c", cfg, "--offline", "-o", "json"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		for decoder := json.NewDecoder(strings.NewReader(out)); decoder.More(); {
			var r evaluate.Report
			if err := decoder.Decode(&r); err != nil {
				t.Fatal(err)
			}
			reports = append(reports, r)
		}
		return reports
	}
	summary := func(r evaluate.Report) string {
		parts := []string{r.Object.Resource, r.Object.Namespace + "/" + r.Object.Name}
		for _, w := range r.Watch {
			if w.Covers {
				parts = append(parts, "+"+strconv.Itoa(w.Entry))
			}
		}
		for _, s := range r.Sinks {
			text := s.Name + "=" + s.Operation
			if s.Sent {
				text += ":" + s.Message.ID + ":" + s.Message.Subject + s.Message.Topic + s.Message.Key
			}
			parts = append(parts, text)
		}
		return strings.Join(parts, " ")
	}
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{file}, []string{"pods team-a/web +0 js=added:u1.7:k8s.c.core.pods.team-a.web kafka=added:u1.7:t.podsc//pods/team-a/web lines=added:u1.7:"}},
		{[]string{done, "--old", file}, []string{"pods team-a/web +0 js=left:u1.8.left:k8s.c.core.pods.team-a.web kafka=updated:u1.8:t.podsc//pods/team-a/web lines=updated:u1.8:"}},
		{[]string{file, "--old", done}, []string{"pods team-a/web +0 js=added:u1.7:k8s.c.core.pods.team-a.web kafka=updated:u1.7:t.podsc//pods/team-a/web lines=updated:u1.7:"}},
		{[]string{file, "--operation", "restated"}, []string{"pods team-a/web +0 js=restated:u1.7:k8s.c.core.pods.team-a.web kafka=restated:u1.7:t.podsc//pods/team-a/web lines=restated:u1.7:"}},
		{[]string{file, "--operation", "deleted"}, []string{"pods team-a/web +0 js=deleted:u1.7.deleted:k8s.c.core.pods.team-a.web kafka=deleted:u1.7.deleted:t.podsc//pods/team-a/web lines=deleted:u1.7.deleted:"}},
		{[]string{several, "-n", "shop", "--resource", ""}, []string{
			"nodes shop/n1 js= kafka=added lines=added", // offline, a namespace that is given counts
			"pods team-a/web +0 js=added:u1.7:k8s.c.core.pods.team-a.web kafka=added:u1.7:t.podsc//pods/team-a/web lines=added:u1.7:",
			"deployments.apps shop/web js= kafka=added lines=added",
		}},
		{[]string{several}, []string{
			"nodes /n1 +4 js= kafka=added:<uid>.<resourceVersion>:t.nodesc//nodes//n1 lines=added:<uid>.<resourceVersion>:",
			"pods team-a/web +0 js=added:u1.7:k8s.c.core.pods.team-a.web kafka=added:u1.7:t.podsc//pods/team-a/web lines=added:u1.7:",
			"deployments.apps /web js= kafka=added lines=added",
		}},
		// A selector decides on the id. In team-a, there is none.
		{[]string{job("team-b"), "--operation", "deleted"}, []string{"jobs.batch team-b/web +2 js= kafka=deleted:u1.7.deleted:t.jobsc/batch/jobs/team-b/web lines=deleted:u1.7.deleted:"}},
		{[]string{job("team-a"), "--operation", "deleted"}, []string{"jobs.batch team-a/web +3 js= kafka=deleted:u1.deleted:t.jobsc/batch/jobs/team-a/web lines=deleted:u1.deleted:"}},
		{[]string{file, "--resource", "pods.example.com"}, []string{"pods.example.com team-a/web +1 js= kafka=added:u1.7:t.podsc/example.com/pods/team-a/web lines=added:u1.7:"}},
	} {
		var got []string
		for _, r := range explained(tt.args...) {
			got = append(got, summary(r))
		}
		if strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
			t.Errorf("%v:\n%s", tt.args, strings.Join(got, "\n"))
		}
	}
	if out, err := command(
		t,
		"explain",
		"-c",
		cfg,
		"--offline",
		file,
	); err != nil || !strings.Contains(out, "\nsink js (nats)  sent as added\n") ||
		strings.Contains(out, "\x1b") {
		t.Errorf("the table: %v\n%s", err, out)
	}
	empty := write("empty.yaml", "---\n")
	for want, args := range map[string][]string{
		"the file has no objects":            {empty},
		"require an object in a file":        {"pods", "a/b", "--offline"},
		"[old operation] were all set":       {file, "--operation", "deleted", "--old", file},
		"must be added, deleted or restated": {file, "--operation", "updated"},
		"must be table or json":              {file, "-o", "xml"},
		"no such file":                       {filepath.Join(dir, "nowhere")},
		"different uids":                     {file, "--old", write("other.json", strings.Replace(pod, `"u1"`, `"u2"`, 1))},
		"lacks apiVersion or kind":           {write("bare.json", `{"metadata":{"name":"x"}}`)},
		"no metadata.name":                   {write("nameless.json", `{"kind":"Pod","apiVersion":"v1"}`)},
	} {
		if _, err := command(
			t,
			append([]string{"explain", "-c", cfg, "--offline"}, args...)...); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
}

// docs/commands.md shows what explain prints, without the headers of the second message.
func TestExplainOnThePage(t *testing.T) {
	dir := t.TempDir()
	cfg := writeFile(t, filepath.Join(dir, "bridge.yaml"), `
cluster: prod-eu-1
watch: [{resources: [configmaps, deployments.apps], namespaces: [shop, "team-*"]}]
sinks:
  - name: live
    filters: [{resources: [deployments.apps], when: object.spec.replicas > 2}, {resources: [configmaps]}]
    nats: {url: "nats://nats:4222"}
  - name: audit
    filters: [{operations: [updated, deleted]}]
    kafka: {brokers: ["kafka:9092"], topic: k8s.audit}
`)
	deployment := func(version string, replicas int) string {
		return writeFile(t, filepath.Join(dir, version+".yaml"), `
kind: Deployment
apiVersion: apps/v1
metadata: {name: web, namespace: shop, uid: f499c870-01cc-458e-9888-96ba11179db5, resourceVersion: "`+version+`"}
spec: {replicas: `+strconv.Itoa(replicas)+`}
`)
	}
	out, err := command(t, "explain", "-c", cfg, "--offline", "--resource", "deployments.apps", deployment("220", 2),
		"--old", deployment("219", 3))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```text\n(deployments.apps shop/web\n.*?)```").FindStringSubmatch(string(page))
	if shown == nil {
		t.Fatalf("the page does not show\n%s", out)
	}
	out, _, _ = strings.Cut(out, "  headers    content-type")
	moments := regexp.MustCompile(`20\d\d-[-0-9T:.]+Z|(size +)\d+`) // the size is that of the time
	if diff := cmp.Diff(moments.ReplaceAllString(shown[1], "$1"), moments.ReplaceAllString(out, "$1")); diff != "" {
		t.Errorf("(-page +got):\n%s\n%s", diff, out)
	}
}
