package statustext

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/internal/control"
)

var update = flag.Bool("update", false, "rewrite the reference output")

// night is a status with everything that can be shown. Its texts try to control the terminal.
func night() *control.Status {
	at := time.Date(2026, 11, 20, 3, 12, 0, 0, time.Local)
	problem := func(text, remedy string) *control.Problem {
		return &control.Problem{Text: text, Remedy: remedy, Since: at.Add(-time.Hour)}
	}
	s := &control.Status{
		At: at,
		Replica: control.Replica{
			Name:          "deltabridge-0-k3x9q",
			Role:          control.Leader,
			Ready:         true,
			Version:       "1.2.3",
			Since:         at,
			Epoch:         7,
			BehindCommits: new(int),
			TakeOver: &control.TakeOver{
				Began: at, Reason: "expired", Steps: []control.Step{{Name: "lease", Seconds: 10.2004}, {Name: "log", Seconds: .03}},
			},
		},
		Configuration: control.Configuration{
			File:   "/etc/deltabridge/bridge.yaml",
			Hash:   "0123456789abcdef",
			Loaded: at,
			Error:  problem("line 3: no such key", ""),
			Waits:  "a list",
		},
		Sinks: []control.Sink{
			{
				Name: "audit", Kind: "kafka", Destination: "kafka:9092, topic k8s.{resource}", Health: control.AtRisk,
				Problem:  problem("kafka:9092: connect: connection\nrefused", "check that the broker is running"),
				Filtered: 12, Delivered: 1234567, Lag: 5000, Dropped: 3,
				Queue: control.Queue{
					Events: 123456, Bytes: 16 << 20, MemoryBytes: 32 << 20, DiskEvents: 120000, DiskBytes: 900 << 20, MaxDisk: 1 << 30,
					Overflow: "block", Blocked: true,
				},
				Parked: []control.Parked{{Destination: "k8s.pods\x1b[2J", Events: 5}},
				Gaps: []control.Gap{
					{
						Resource: "pods",
						Reason:   "relist",
						At:       at.Add(-time.Minute),
					},
					{Resource: "a", At: at},
					{Resource: "b", At: at},
					{Resource: "c", At: at},
				},
				Fuse: &control.Fuse{Seconds: 725, Text: "at 100.0 more waiting events per second, the queue is full in 11m"},
			},
			{
				Name:        "live",
				Kind:        "nats",
				Destination: "nats://nats:4222, stream K8S",
				Health:      control.Healthy,
				Rate:        123.4,
				Lag:         .21,
			},
			{Name: "paused", Kind: "stdout", Destination: "standard output", Health: control.Idle, PausedSince: at},
		},
		Checkpoint: &control.Checkpoint{
			LastCommit: at.Add(-400 * time.Millisecond), Bytes: 12345678, Log: "nats://nats:4222, stream STATE",
			Problem: problem("the state log is unavailable", "repair its broker"),
		},
	}
	for range 22 {
		s.Sources = append(s.Sources, control.Source{
			Resource:  "secrets",
			Namespace: "shop",
			Health:    control.Failing,
			Problem:   problem("list: forbidden\x00", "bridge rbac"),
		})
	}
	s.Sources = append(s.Sources, control.Source{Resource: "nodes", Health: control.Waiting, LastContact: at},
		control.Source{Resource: "pods", Health: control.Healthy, Objects: 10000, Rate: 34.5})
	s.Judge()
	return s
}

func TestWriteTable(t *testing.T) {
	leader := night()
	standby := &control.Status{Replica: control.Replica{Name: "b\x1b", Role: control.Standby, Since: leader.At}}
	report := &Report{Replicas: []control.Answer{
		{Address: "10.0.0.7:8080", Status: leader},
		{Address: "10.0.0.8:8080", Status: standby},
		{Address: "c:1", Error: "connection\nrefused"},
	}}
	var out strings.Builder
	if err := report.WriteTable(&out, console.Style{}); err != nil {
		t.Fatal(err)
	}
	const path = "testdata/night.txt"
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Error(diff)
	}
	if strings.ContainsFunc(out.String(), func(r rune) bool { return r < ' ' && r != '\n' }) {
		t.Error("there are control characters")
	}
	out.Reset()
	if err := report.WriteTable(
		&out,
		console.Style{Color: true},
	); err != nil ||
		!strings.HasPrefix(out.String(), "\x1b[31mAT RISK") {
		t.Errorf("in color: %q, %v", out.String(), err)
	}
}

// Without a status, there is no verdict.
func TestNoAnswer(t *testing.T) {
	var out strings.Builder
	if err := (&Report{Replicas: []control.Answer{{Address: "c:1", Error: "EOF"}}}).WriteTable(
		&out,
		console.Style{},
	); err != nil {
		t.Fatal(err)
	}
	want := "REPLICA  ROLE  READY  EPOCH  BEHIND  SINCE  VERSION  ADDRESS\n-        -     -      -      -       -      -        c:1: EOF\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

// A bridge that has refused its configuration at the start has none in use.
func TestRefusedAtTheStart(t *testing.T) {
	var out strings.Builder
	s := &control.Status{Configuration: control.Configuration{
		File: "bridge.yaml", Error: &control.Problem{Text: "line 3", Remedy: "correct it"},
	}}
	if err := (&Report{Replicas: []control.Answer{{Status: s}}}).WriteTable(&out, console.Style{}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.String(), "\nconfiguration: bridge.yaml, not in use\n  line 3\n    -> correct it\n") {
		t.Error(out.String())
	}
}

func TestNumbers(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{size(0), "0B"},
		{size(9999), "9999B"},
		{size(10 << 10), "10KiB"},
		{size(12345678), "11MiB"},
		{size(3 << 40), "3TiB"},
		{share(0, 1), "0"},
		{share(512, 1024), "512B (50%)"},
		{share(512, 0), "512B"},
		{rate(0.04), "0.0"},
		{rate(99.96), "100.0"},
		{rate(1234.5), "1,235"},
		{seconds(.25), "0.2s"},
		{seconds(5000), "83m"},
		{left(&control.Fuse{Seconds: -1}), "lost?"},
		{left(&control.Fuse{Seconds: 7200 + 59}), ">120m"},
		{left(&control.Fuse{Seconds: 30 * 24 * 3600}), ">30d"},
	} {
		if test.got != test.want {
			t.Errorf("%s, want %s", test.got, test.want)
		}
	}
}
