package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/election"
	"github.com/deltabridge/deltabridge/internal/statustext"
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
	lossy, waits := answer("a", control.Leader, nil), answer("a", control.Leader, nil)
	lossy.Verdict = control.Verdict{Health: control.Lossy, Text: "A gap."}
	waits.Verdict = control.Verdict{Health: control.Waiting, Text: "Dead letters."}
	silent := control.Answer{Address: "c:1", Error: "connection refused"}
	for name, tt := range map[string]struct {
		answers []control.Answer
		want    string
		code    int
	}{
		"lost":        {[]control.Answer{lossy, standby}, "a: A gap.", exitPartly},
		"waits":       {[]control.Answer{waits, standby}, "", exitOK},
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

// With --watch, the reports of a pipe follow each other, until the command is interrupted. Then it exits with 0.
func TestStatusWatch(t *testing.T) {
	f := newTestFrontend(t)
	err := f.during(t.Context(), func(context.Context) error {
		ctx, cancel := context.WithCancel(t.Context())
		var out strings.Builder
		from := statusSource{addresses: []string{f.listener.Addr().String()}}
		err := from.watch(ctx, &output{w: &nthWrite{&out, 2, cancel}, format: choice{value: formatText}})
		if err != nil || strings.Count(out.String(), "WAITING  This standby cannot take over: starting.") != 2 ||
			strings.Contains(out.String(), "\x1b") {
			t.Errorf("%v: %s", err, out.String())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	var out strings.Builder
	if err := show(&out, &statustext.Report{}, console.Style{}, true); err != nil ||
		!strings.HasPrefix(out.String(), "\x1b[?7l\x1b[H\x1b[J20") || !strings.HasSuffix(out.String(), "\x1b[?7h") {
		t.Errorf("on a terminal: %q, %v", out.String(), err)
	}
}

// nthWrite calls a function with the n-th write.
type nthWrite struct {
	io.Writer

	n    int
	call func()
}

func (w *nthWrite) Write(p []byte) (int, error) {
	if w.n--; w.n == 0 {
		w.call()
	}
	return w.Writer.Write(p)
}

// Pods are asked through the API server. One that it cannot reach does not hide the others.
func TestStatusOfPods(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/namespaces/streams/pods/http:a:8080/proxy/api/status":
			_ = json.NewEncoder(w).Encode(control.Status{Replica: control.Replica{Name: "a", Role: control.Standby}})
		case "/api/v1/namespaces/streams/pods/http:b:9090/proxy/api/status":
			_ = json.NewEncoder(w).Encode(control.Status{Replica: control.Replica{Name: "b", Role: control.Leader}})
		default:
			http.Error(w, "no such Pod", http.StatusNotFound)
		}
	}))
	defer api.Close()
	answers, err := readPods(t.Context(), &rest.Config{Host: api.URL}, "streams", []string{"c", "a", "b:9090"})
	if err != nil || len(answers) != 3 || answers[0].Replica.Name != "b" || answers[1].Replica.Name != "a" ||
		answers[2].Error == "" || answers[2].Address != "pod streams/c" {
		t.Errorf("%+v, %v", answers, err)
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
		var report statustext.Report
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
