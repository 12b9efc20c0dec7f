package evaluate

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func report() *Report {
	return &Report{
		Object: Object{
			Resource:        "pods",
			APIVersion:      "v1",
			Kind:            "Pod",
			Namespace:       "team-a",
			Name:            "web-0",
			ResourceVersion: "4711",
			Bytes:           12345,
		},
		Operation: "updated",
		Watched:   true,
		Watch: []Watch{
			{0, "pods, deployments.apps in team-*", true, "covers the object"},
			{1, "*.example.com", false, "does not include pods"},
		},
		Notes: []string{"the resource is guessed"},
		Sinks: []Sink{
			{Name: "live", Kind: "nats", Sent: true, Operation: "left", Filters: []filter.Verdict{
				{Rule: 0, Conditions: []filter.Condition{{Field: "resources", Text: "deployments.apps", Found: "pods"}}},
				{Rule: 1, State: "now", Belongs: true, Sends: true, Conditions: []filter.Condition{
					{Field: "namespaces", Text: "team-*, !team-b", Found: "team-a", Holds: true},
					{
						Field: "when",
						Text:  "object.metadata.labels['app.kubernetes.io/name'] == 'gr\u00fcn' && object.spec.replicas > 3",
						Holds: true,
						Error: "no such key: labels",
					},
				}},
				{Rule: 2, Sends: true, Belongs: true},
			}, Message: &Message{
				ID: "6f0c7a52-1d0e-4c77-9a3c-0e6f5f9a5a11.4711.left", Placement: diagnose.Placement{
					Stream:  "K8S",
					Subject: "k8s.prod.core.pods.team-a.web-0",
					Size:    13001,
					Limit:   1 << 20,
					Headers: []diagnose.Header{
						{Name: "ce-id", Value: "6f0c7a52-1d0e-4c77-9a3c-0e6f5f9a5a11.4711.left"},
						{Name: "ce-name", Value: "web-0\x1b[2J"},
					},
				},
			}},
			{Name: "audit", Kind: "kafka", Sent: true, Operation: "updated", Message: &Message{
				ID: "6f0c.4711", Oversize: "sent with the metadata of the object alone (oversize: metadata)",
				Placement: diagnose.Placement{
					Topic:      "k8s.pods",
					Key:        "/pods/team-a/web-0",
					Partition:  new(3),
					Partitions: 6,
					Size:       2 << 20,
					Limit:      1 << 20,
					Tombstone:  true,
				},
				Incomplete: "the settings of topic k8s.pods can't be read: not allowed",
			}},
			{
				Name: "third",
				Kind: "stdout",
				Filters: []filter.Verdict{
					{Rule: 0, Conditions: []filter.Condition{{Field: "operations", Text: "deleted", Found: "updated"}}},
				},
			},
			{Name: "broken", Kind: "nats", Operation: "updated", Error: "the subject is too long"},
		},
	}
}

func TestTable(t *testing.T) {
	unwatched := report()
	unwatched.Watched, unwatched.Watch[0].Covers, unwatched.Sinks[0].Sent, unwatched.Notes = false, false, false, nil
	unwatched.Sinks = unwatched.Sinks[:1]
	for name, tt := range map[string]struct {
		report *Report
		style  console.Style
	}{
		"color": {report(), console.Style{Color: true}}, "pipe": {report(), console.Style{}},
		"unwatched": {unwatched, console.Style{}},
	} {
		var out bytes.Buffer
		if err := tt.report.WriteTable(&out, tt.style); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", "table-"+name+".golden")
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
	}
}
