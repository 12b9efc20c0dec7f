package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/statustext"
)

// The exit code says whether a replica delivers.
func TestExamine(t *testing.T) {
	of := func(role control.Role, notReady ...string) control.Answer {
		return control.Answer{Status: &control.Status{Replica: control.Replica{Name: "a", Role: role, NotReady: notReady}}}
	}
	for want, answers := range map[string][]control.Answer{
		"0 ":                     {of(control.Leader)},
		`2 a: one\ntwo; a: more`: {of(control.Leader, "one\ntwo", "more")},
		"1 no replica is the leader, so nothing is delivered": {of(control.Standby)},
		"1 1 of 1 addresses do not answer":                    {{Error: "connection refused"}},
	} {
		err, text := examine(answers), ""
		if err != nil {
			text = err.Error()
		}
		if got := fmt.Sprintf("%d %s", exitCode(err), text); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// standby serves the status of a standby that is starting, and returns its address.
func standby(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s := control.Status{At: time.Now(), Replica: control.Replica{
			Name: "bridge-0-abcde", Role: control.Standby, NotReady: []string{"starting"},
		}}
		s.Judge()
		_ = json.NewEncoder(w).Encode(s)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestStatusOfAnAddress(t *testing.T) {
	out, err := command(t, "status", "--address", standby(t), "-o", "json")
	var report statustext.Report
	if failed := json.Unmarshal([]byte(out), &report); failed != nil || exitCode(err) != exitFailed {
		t.Fatalf("%v, %v: %s", failed, err, out)
	}
	r := report.Replicas[0].Replica
	want := "no replica is the leader, so nothing is delivered; bridge-0-abcde: starting"
	if r.Name != "bridge-0-abcde" || r.Ready || r.Role != control.Standby || report.Problem != want {
		t.Errorf("%+v, %q", r, report.Problem)
	}
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
