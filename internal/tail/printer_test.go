package tail

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/pkg/pattern"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// record makes one from attributes, as "name=value", and data.
func record(kind, data string, attributes ...string) *diagnose.Record {
	r := &diagnose.Record{Place: "K8S #1", Stored: time.Date(2026, 11, 20, 12, 0, 0, 0, time.Local)}
	r.Data = []byte(data)
	r.Attributes = map[string]string{
		"id": "i", "type": "dev.deltabridge." + kind, "apiversion": "v1", "uid": "u1",
		"time": r.Stored.Add(1234 * time.Millisecond).UTC().Format(time.RFC3339Nano),
	}
	for _, a := range attributes {
		name, value, _ := strings.Cut(a, "=")
		r.Attributes[name] = value
	}
	return r
}

func of(resource, namespace, name, version string, more ...string) []string {
	return append(
		[]string{
			"subject=" + resource + "/" + namespace + "/" + name,
			"namespace=" + namespace,
			"name=" + name,
			"resourceversion=" + version,
		},
		more...)
}

const script = "#!/bin/sh\\nset -e\\necho one\\nexit 0\\n"

// day is a stream in which everything happens.
func day() []*diagnose.Record {
	deployment := of("deployments.apps", "team-a", "web-frontend", "48213", "changedby=kubectl-edit", "uid=d")
	return []*diagnose.Record{
		record(
			"object.added",
			`{"metadata":{"name":"settings","labels":{"app":"web"}},"data":{"run":"`+script+`"}}`,
			of("configmaps", "shop", "settings", "4700", "initiallist=true")...),
		record("synced", `{"resource":"configmaps","resourceVersion":"4700","objects":12345}`, "subject=configmaps"),
		record(
			"progress",
			`{"resource":"configmaps","resourceVersion":"4701","asOf":"2026-11-20T12:25:57Z"}`,
			"subject=configmaps",
		),
		record(
			"object.added",
			`{"kind":"Deployment","metadata":{"resourceVersion":"48213"},"spec":{"replicas":2,"image":"web:1"}}`,
			deployment...),
		record(
			"object.updated",
			`{"kind":"Deployment","metadata":{"resourceVersion":"48214"},"spec":{"replicas":3,"paused":true}}`,
			append(deployment, "resourceversion=48214", "changedby=horizontal-pod-autoscaler")...),
		record(
			"object.updated",
			`{"metadata":{"name":"settings","labels":{"app":"api"}},"data":{"run":"#!/bin/sh\nset -eu\necho one\nexit 0\n"}}`,
			of("configmaps", "shop", "settings", "48215", "changedby=gr\u00fc\u00df-\u5e93\u5b58")...),
		record("object.updated", `{"metadata":{"name":"unseen"}}`, of("pods", "shop", "unseen", "48216", "uid=p")...),
		record(
			"object.updated",
			`{"operation":"updated","object":{"kind":"Pod","a":[1,2,3]},"old":{"kind":"Pod","a":[1,3]},"patch":[]}`,
			of("pods", "shop", "with-old", "48217", "uid=q")...),
		record(
			"object.updated",
			`{"operation":"updated","object":{"kind":"Pod"},"old":null,"patch":[{"op":"remove","path":"/spec/nodeName"},{"op":"replace","path":"/status/phase","value":"Failed"}]}`,
			of("pods", "shop", "with-patch", "48218", "uid=r")...),
		record(
			"object.deleted",
			`{}`,
			of(
				"pods",
				"a-namespace-with-a-long-name",
				"web-frontend-7d4b9c6f5-x2x4z",
				"48219",
				"finalstateunknown=true",
				"changedby=kubelet",
			)...),
		record("object.deleted", `{}`, of("nodes", "", "node-17", "48220", "leftfilter=true")...),
		record(
			"gap",
			`{"resource":"pods","from":"48220","to":"48300","reason":"overflow","message":"the queue was full and its policy is drop-oldest","events":80}`,
			"subject=pods",
		),
		record(
			"gap",
			`{"resource":"widgets.example.com","from":"7","to":"7","reason":"oversize"}`,
			"subject=widgets.example.com",
		),
		record(
			"gap",
			`{"resource":"configmaps","from":"8","to":"8","reason":"oversize","message":"more than max_payload","events":1,"event":"u.8","subject":"configmaps/shop/big","operation":"updated","deadLetter":"topic dead-letters"}`,
			"subject=configmaps",
		),
		record(
			"object.updated",
			`{"metadata":{"name":"web"}}`,
			append(
				deployment,
				"resourceversion=48215",
				"dataomitted=oversize",
				"datasize=1348219",
				"dataref=nats-object://claims/d.48215.2c26b46b68ffc68f",
			)...),
		record(
			"object.updated",
			`{"kind":"Deployment","metadata":{"resourceVersion":"48216"}}`,
			append(deployment, "resourceversion=48216")...),
		record("object.added", `{}`, of("pods", "shop", "\x1b[2J\u202eevil", "48301")...),
		record(
			"object.restated",
			`{"metadata":{"name":"told-again","labels":{"app":"web"}}}`,
			of("configmaps", "shop", "told-again", "48215")...),
		record(
			"synced",
			`{"resource":"configmaps","resourceVersion":"48301","objects":12345,"resync":true,"since":"2026-11-20T12:00:00Z"}`,
			"subject=configmaps",
		),
		{
			Place:   "K8S #9",
			Stored:  time.Date(2026, 11, 20, 12, 0, 1, 0, time.Local),
			Foreign: errors.New("it has no header ce-id"),
		},
		{Place: "t/0 #3"}, // a tombstone
	}
}

func TestLines(t *testing.T) {
	for name, tt := range map[string]struct {
		style console.Style
		diff  bool
	}{
		"color-diff": {console.Style{Color: true}, true}, "pipe-diff": {console.Style{}, true}, "pipe": {console.Style{}, false},
	} {
		var out bytes.Buffer
		p := New(Options{Out: &out, Notes: &out, Diff: tt.diff, Style: tt.style})
		for _, r := range day() {
			if err := p.Print(r); err != nil {
				t.Fatal(err)
			}
		}
		file := filepath.Join("testdata", "lines-"+name+".golden")
		if *update {
			if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		page, err := os.ReadFile("../../docs/commands.md")
		if err != nil {
			t.Fatal(err)
		}
		shown := regexp.MustCompile("```text\n([^`]+/spec/paused[^`]+)```").FindSubmatch(page)
		if name == "pipe-diff" && (shown == nil || !bytes.Contains(out.Bytes(), shown[1])) {
			t.Errorf("docs/commands.md shows something else than the golden file: %s", shown)
		}
	}
}

func TestWhatIsShown(t *testing.T) {
	namespaces, err := pattern.ParseNamespaces([]string{"team-a"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		options Options
		want    string
	}{
		{"all", Options{}, "settings SYNCED web-frontend web-frontend settings unseen with-old with-patch web-frontend-7d4b9c6f5-x2x4z node-17 GAP GAP GAP web-frontend web-frontend evil told-again SYNCED ?"},
		{"namespace", Options{Namespaces: namespaces}, "SYNCED web-frontend web-frontend GAP GAP GAP web-frontend web-frontend SYNCED ?"},
		{"resource", Options{Resources: pattern.Resources{{Resource: "pods", Version: "v1"}}}, "unseen with-old with-patch web-frontend-7d4b9c6f5-x2x4z GAP evil ?"},
		{"selector", Options{Selector: labels.SelectorFromSet(labels.Set{"app": "web"})}, "settings SYNCED GAP GAP GAP told-again SYNCED ?"},
	} {
		var out bytes.Buffer
		tt.options.Out, tt.options.Notes = &out, &out
		p := New(tt.options)
		for _, r := range day() {
			if err := p.Print(r); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			for _, word := range []string{
				"SYNCED", "GAP", "web-frontend-7d4b9c6f5-x2x4z", "web-frontend", "settings", "unseen", "with-old", "with-patch", "node-17", "evil", "told-again", "?",
			} {
				if strings.Contains(line, word) {
					got = append(got, word)
					break
				}
			}
		}
		if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestJSONLines(t *testing.T) {
	var out bytes.Buffer
	p := New(Options{Out: &out, Notes: &out, JSON: true})
	for _, r := range day() {
		if err := p.Print(r); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(out.String(), "\n"); n != 19 || strings.ContainsRune(out.String(), '\x1b') {
		t.Errorf("%d lines:\n%s", n, out.String())
	}
}

func TestBehind(t *testing.T) {
	var out, notes bytes.Buffer
	p := New(Options{Out: &out, Notes: &notes})
	clock := time.Unix(0, 0)
	p.now = func() time.Time { return clock }
	for _, behind := range []int64{12345, 12344, 5000, 999, 1, 0, 0, 100, 0} {
		r := record("object.added", "{}", of("pods", "a", fmt.Sprint(behind), "1")...)
		r.Behind = behind
		if err := p.Print(r); err != nil {
			t.Fatal(err)
		}
		if clock = clock.Add(time.Second); behind == 12345 {
			clock = clock.Add(time.Hour)
		}
	}
	if want := "-- 12,345 more in the stream --\n-- 12,344 more in the stream --\n-- up to date --\n"; notes.String() != want {
		t.Errorf("%q", notes.String())
	}
}

// With Diff, the last state of only so many objects is remembered.
func TestStatesAreBounded(t *testing.T) {
	var out bytes.Buffer
	p := New(Options{Out: &out, Notes: &out, Diff: true})
	show := func(kind string, n int) {
		t.Helper()
		uid := fmt.Sprintf("uid=%d", n)
		if err := p.Print(
			record("object."+kind, fmt.Sprintf(`{"a":%q}`, kind), of("pods", "a", "b", "1", uid)...),
		); err != nil {
			t.Fatal(err)
		}
	}
	for n := range maxStates + 1 {
		show("added", n)
	}
	out.Reset()
	show("updated", maxStates)
	if !strings.Contains(out.String(), `+ /a: "updated"`) {
		t.Errorf("the newest object: %s", out.String())
	}
	out.Reset()
	show("updated", 0)
	if !strings.Contains(out.String(), "(previous state unknown)") {
		t.Errorf("the oldest object: %s", out.String())
	}
}
