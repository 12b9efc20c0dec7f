package control

import (
	"strings"
	"testing"
	"time"
)

// A later state in the documentation is a worse one, and a state of a later version does not hide one of this version.
func TestWorst(t *testing.T) {
	for _, test := range []struct {
		all  []Health
		want Health
	}{
		{nil, Healthy},
		{[]Health{Idle, Healthy}, Idle},
		{[]Health{Unknown, Stopping, Waiting}, Waiting},
		{[]Health{AtRisk, Failing, Lossy}, AtRisk},
		{[]Health{Lossy, Failing}, Failing},
		{[]Health{"melted", Waiting}, Waiting},
		{[]Health{"melted", Idle}, "melted"},
	} {
		if got := Worst(test.all...); got != test.want {
			t.Errorf("%v: %s, want %s", test.all, got, test.want)
		}
	}
}

func TestJudge(t *testing.T) {
	now := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	leader, standby := Replica{Role: Leader, Ready: true}, Replica{Role: Standby, Ready: true}
	refused := &Problem{
		Text:   "kafka:9092: connect: connection refused",
		Remedy: "start it",
		Since:  now.Add(-50 * time.Minute),
	}
	sink := func(h Health, edit func(*Sink)) Sink {
		s := Sink{Name: "audit", Health: h}
		edit(&s)
		return s
	}
	forbidden := func(resource string) Source {
		return Source{Resource: resource, Health: Failing, Problem: &Problem{Text: "list: forbidden", Remedy: "bridge rbac"}}
	}
	for name, test := range map[string]struct {
		status       Status
		health       Health
		text, remedy string
	}{
		"all well": {Status{Replica: leader, Sinks: []Sink{sink(Healthy, func(*Sink) {})}}, Healthy, "Everything is delivered.", ""},
		"a resource that need not be readable": {
			Status{Replica: leader, Sources: []Source{{Resource: "secrets", Health: Idle, Problem: refused}}},
			Healthy, "Everything is delivered.", "",
		},
		"standby": {Status{Replica: standby}, Unknown, "This replica is a standby that can take over; " +
			"the leader knows whether everything is delivered.", "run `bridge status`, which asks all replicas"},
		"a standby that is behind": {
			Status{Replica: Replica{Role: Standby, NotReady: []string{"7 commits behind"}}},
			Waiting, "This standby cannot take over: 7 commits behind.", "",
		},
		"stopping": {
			Status{Replica: Replica{Role: Single, NotReady: []string{ShuttingDown}}, Sinks: []Sink{sink(Failing, func(*Sink) {})}},
			Stopping, "The bridge is shutting down.", "",
		},
		"starting": {
			Status{Replica: Replica{Role: Single, NotReady: []string{"the API server does not respond: EOF"}}},
			Waiting, "The bridge is not ready: the API server does not respond: EOF.",
			"if this lasts, read the log, and run `bridge doctor`",
		},
		"an outage": {
			Status{Replica: leader, Sinks: []Sink{sink(Waiting, func(s *Sink) { s.Problem, s.Fuse = refused, &Fuse{Seconds: 11520} })}},
			Waiting, "Sink audit does not deliver since 02:10 UTC: kafka:9092: connect: connection refused; its events wait, and " +
				"nothing is lost for at least 3h12m.", "start it",
		},
		"a fuse that has burned down": {
			Status{Replica: leader, Sinks: []Sink{sink(AtRisk, func(s *Sink) { s.Fuse = &Fuse{Seconds: -3} })}},
			AtRisk, "Sink audit delivers less than the cluster changes; events may be lost already.", "",
		},
		"paused for a day": {
			Status{Replica: leader, Sinks: []Sink{sink(Idle, func(s *Sink) { s.PausedSince = now.Add(-24 * time.Hour) })}},
			Idle, "Sink audit is paused since 2026-02-28 03:00 UTC.", "run `bridge resume audit`",
		},
		"a relist": {
			Status{Replica: leader, Sinks: []Sink{sink(Lossy, func(s *Sink) {
				s.Gaps = []Gap{{Resource: "pods", Reason: "relist", At: now.Add(-time.Minute)}}
			})}},
			Lossy, "Sink audit was sent a gap event (relist) at 02:59 UTC: states of pods may be missing, but no final states.",
			"nothing is to be done, unless a consumer requires every state",
		},
		"dropped events": {
			Status{Replica: leader, Sinks: []Sink{sink(Lossy, func(s *Sink) {
				s.Dropped, s.Gaps = 7, []Gap{{At: now.Add(-time.Hour)}}
			})}},
			Lossy, "Sink audit has dropped 7 events, because its queue was full.",
			"run `bridge resync --sink audit`, which sends the present state of each object",
		},
		"forbidden resources, and an outage": {
			Status{
				Replica: leader, Sources: []Source{{Resource: "nodes", Health: Waiting}, forbidden("pods"), forbidden("jobs.batch")},
				Sinks: []Sink{sink(Waiting, func(s *Sink) { s.Problem = refused })},
			},
			Failing, "pods and 1 more: list: forbidden (and 2 more problems).", "bridge rbac",
		},
		"a wrong file": {
			Status{Replica: leader, Configuration: Configuration{Loaded: now, Error: &Problem{Text: "line 3", Remedy: "fix it"}}},
			Failing, "The changed configuration was refused, and the earlier one stays in use: line 3.", "fix it",
		},
		"a wrong file at the start": {
			Status{
				Replica:       Replica{Role: Standby, NotReady: []string{"refused"}},
				Configuration: Configuration{Error: &Problem{Text: "line 3", Remedy: "fix it"}},
			},
			Failing, "The configuration is refused, so the bridge has not started: line 3.", "fix it",
		},
		"the checkpoint": {
			Status{Replica: leader, Checkpoint: &Checkpoint{Problem: &Problem{Text: "checkpoint: disk full", Remedy: "make room"}}},
			Failing, "Checkpoint: disk full.", "make room",
		},
	} {
		s := test.status
		s.At = now
		s.Judge()
		if s.Verdict.Health != test.health || s.Verdict.Text != test.text {
			t.Errorf("%s: %s, %s", name, s.Verdict.Health, s.Verdict.Text)
		}
		if test.remedy != s.Verdict.Remedy && !strings.HasPrefix(s.Verdict.Remedy, "check how long") {
			t.Errorf("%s: remedy %s", name, s.Verdict.Remedy)
		}
	}
}
