package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/election"
)

// answer returns the answer of a replica.
func answer(name string, role control.Role, edit func(*control.Replica)) control.Answer {
	r := control.Replica{Name: name, Role: role, Ready: true}
	if edit != nil {
		edit(&r)
	}
	return control.Answer{Address: name + ":1", Status: &control.Status{Replica: r}}
}

// The most important problem is the first. The exit code says whether a replica delivers.
func TestExamine(t *testing.T) {
	leader, standby := answer("a", control.Leader, nil), answer("b", control.Standby, nil)
	behind := answer(
		"b",
		control.Standby,
		func(r *control.Replica) { r.Ready, r.NotReady = false, []string{"it is behind"} },
	)
	away := answer("a", control.Leader, func(r *control.Replica) { r.Notes = []string{"sink x: retrying\nfor long"} })
	noted := answer("b", control.Standby, func(r *control.Replica) { r.Notes = []string{"the leader is a"} })
	silent := control.Answer{Address: "c:1", Error: "connection refused"}
	for name, tt := range map[string]struct {
		answers []control.Answer
		want    string
		code    int
	}{
		"fine":        {[]control.Answer{leader, standby, noted}, "", exitOK},
		"alone":       {[]control.Answer{answer("a", control.Single, nil)}, "", exitOK},
		"not ready":   {[]control.Answer{leader, behind}, "b: it is behind", exitPartly},
		"not sent":    {[]control.Answer{away, standby}, `a: sink x: retrying\nfor long`, exitPartly},
		"one silent":  {[]control.Answer{leader, behind, silent}, "1 of 3 addresses do not answer; b: it is behind", exitPartly},
		"all silent":  {[]control.Answer{silent}, "1 of 1 addresses do not answer", exitFailed},
		"no leader":   {[]control.Answer{standby, silent}, "no replica is the leader, so nothing is delivered; 1 of 2 addresses do not answer", exitFailed},
		"two leaders": {[]control.Answer{leader, leader}, "2 replicas are the leader; only the first one can write to the state log", exitPartly},
	} {
		t.Run(name, func(t *testing.T) {
			err := examine(tt.answers)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tt.want || exitCode(err) != tt.code {
				t.Errorf("%q, exit code %d, want %q, %d", got, exitCode(err), tt.want, tt.code)
			}
		})
	}
}

func TestStatusTable(t *testing.T) {
	at := time.Date(2026, 11, 20, 15, 58, 31, 0, time.Local)
	leader := answer("a", control.Leader, func(r *control.Replica) {
		r.Version, r.Since, r.Epoch, r.BehindCommits = "1.2.3", at, 7, new(int)
		r.TakeOver = &control.TakeOver{
			Began:  at,
			Reason: "expired",
			Steps:  []control.Step{{Name: "lease", Seconds: 10.2004}, {Name: "log", Seconds: .03}},
		}
	})
	standby := answer("b\x1b", control.Standby, func(r *control.Replica) { r.Since, r.Ready = at, false })
	var out strings.Builder
	report := &statusReport{Replicas: []control.Answer{leader, standby, {Address: "c:1", Error: "connection\nrefused"}}}
	if err := report.WriteTable(&out, console.Style{}); err != nil {
		t.Fatal(err)
	}
	want := `REPLICA  ROLE     READY  EPOCH  BEHIND  SINCE                VERSION  ADDRESS
a        leader   yes    7      0       2026-11-20 15:58:31  1.2.3    a:1
b\x1b    standby  no     -      -       2026-11-20 15:58:31           b\x1b:1
-        -        -      -      -       -                    -        c:1: connection\nrefused

last take-over: 2026-11-20 15:58:31, the previous leader did not renew the Lease
  lease  10.2s
  log    30ms
`
	if diff := cmp.Diff(want, strings.ReplaceAll(out.String(), "b\x1b:1", `b\x1b:1`)); diff != "" {
		t.Error(diff)
	}
}

// Without http.peers, the command asks the bridge itself.
func TestStatusAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "127.0.0.1:8080",
		"http: {listen: \"0.0.0.0:1\"}":  "127.0.0.1:1",
		"http: {listen: \"[::]:1\"}":     "127.0.0.1:1",
		"http: {listen: \"10.0.0.1:1\"}": "10.0.0.1:1",
		"http: {peers: [a:1, b:2]}":      "a:1 b:2",
	} {
		cfg, err := config.Parse("", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(statusAddresses(cfg), " "); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// The status needs no token and has the steps of the last take-over. A standby takes no commands.
func TestStatusEndpoint(t *testing.T) {
	f := newTestFrontend(t)
	taking := newTakeOver(election.Vacancy{Reason: election.Expired, Since: time.Now().Add(-time.Minute)})
	f.takeOver.Store(taking)
	err := f.during(t.Context(), func(context.Context) error {
		taking.end(stepLog)
		taking.endFirst()
		taking.endFirst()
		address := f.listener.Addr().String()
		out, err := command(t, "status", "--address", address, "-o", "json")
		var report statusReport
		if failed := json.Unmarshal([]byte(out), &report); failed != nil || exitCode(err) != exitFailed {
			t.Fatalf("%v, %v: %s", failed, err, out)
		}
		r := report.Replicas[0].Replica
		want := "no replica is the leader, so nothing is delivered; bridge-0-abcde: starting"
		if r.Name != "bridge-0-abcde" || r.Ready || r.Role != control.Standby || report.Problem != want {
			t.Errorf("%+v, %q", r, report.Problem)
		}
		steps := r.TakeOver.Steps
		if len(steps) != 3 || steps[0].Name != stepLease || steps[0].Seconds < 60 || steps[1].Seconds > 59 ||
			steps[2].Name != stepEvent || r.TakeOver.Reason != "expired" {
			t.Errorf("%+v", r.TakeOver)
		}
		if code, body := getPage(t, "http://"+address+"/api/resync"); code != http.StatusServiceUnavailable ||
			!strings.HasPrefix(body, "this replica is not the leader") {
			t.Errorf("%d %s", code, body)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
