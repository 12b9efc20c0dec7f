package control

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/test/freeport"
)

// peer is the HTTP port of a replica.
type peer struct {
	Replica

	token string // with the last command
}

// start returns the address of a replica. It answers each command with the name of the replica.
func (p *peer) start(t *testing.T) (address string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+StatusPath, func(w http.ResponseWriter, _ *http.Request) {
		if err := json.NewEncoder(w).Encode(Status{Replica: p.Replica}); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("POST /api/pause", func(w http.ResponseWriter, r *http.Request) {
		p.token = r.Header.Get("Authorization")
		if r.URL.Query().Get("sink") != "a" {
			http.Error(w, "no such sink", http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, p.Name)
	})
	mux.Handle("POST /api/resume", http.RedirectHandler("http://192.0.2.1/", http.StatusTemporaryRedirect))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// silent returns an address at which nobody listens.
func silent(t *testing.T) string {
	t.Helper()
	ports, err := freeport.Reserve(1)
	if err != nil {
		t.Fatal(err)
	}
	return freeport.Address(ports[0])
}

// The leader of the newest term is the first, and what does not answer is the last. A replica with several addresses is
// shown once.
func TestReadStatus(t *testing.T) {
	old := &peer{Replica: Replica{Name: "y", Role: Leader, Epoch: 3}}
	leader := &peer{Replica: Replica{Name: "z", Role: Leader, Epoch: 4}}
	a, b := &peer{
		Replica: Replica{Name: "a", Role: Standby, Epoch: 4},
	}, &peer{
		Replica: Replica{Name: "b", Role: Standby, Epoch: 4},
	}
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	_, port, _ := net.SplitHostPort(leader.start(t))
	var got []string
	for _, answer := range ReadStatus(t.Context(), []string{
		silent(t), other.Listener.Addr().String(), "no-port", b.start(t), a.start(t), a.start(t), old.start(t), "localhost:" + port,
	}) {
		if answer.Status == nil {
			got = append(got, answer.Error[strings.LastIndex(answer.Error, ": ")+2:])
		} else {
			got = append(got, answer.Replica.Name)
		}
	}
	// localhost can have an IPv6 address, at which nobody listens.
	got = slices.DeleteFunc(got, func(text string) bool { return text == "connection refused" })
	want := []string{"z", "y", "a", "b", "missing port in address", "GET /api/status returns 404 Not Found"}
	slices.Sort(want[4:])
	slices.Sort(got[4:])
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if answers := ReadStatus(t.Context(), []string{silent(t)}); len(answers) != 1 || answers[0].Error == "" {
		t.Errorf("%+v", answers)
	}
}

// A command goes to the process that uses the state directory. If there is none, it goes to the leader, with a token, and
// to no other server.
func TestCommandForTheLeader(t *testing.T) {
	leader := &peer{Replica: Replica{Name: "leader", Role: Leader}}
	standby := &peer{Replica: Replica{Name: "standby", Role: Standby}}
	b := Bridge{
		State: t.TempDir(), Peers: []string{standby.start(t), silent(t), leader.start(t)},
		TokenFile: filepath.Join(t.TempDir(), "token"),
	}
	answer, err := RequestPause(t.Context(), b, "a", true)
	if err != nil || answer != "leader" || leader.token != "" {
		t.Errorf("without a token: %q, %v, %q", answer, err, leader.token)
	}
	if err := os.WriteFile(b.TokenFile, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	answer, err = RequestPause(t.Context(), b, "a", true)
	if err != nil || answer != "leader" || leader.token != "Bearer secret" || standby.token != "" {
		t.Errorf("with a token: %q, %v, %q", answer, err, leader.token)
	}
	expect := func(b Bridge, sink string, paused bool, want string) {
		t.Helper()
		if _, err := RequestPause(t.Context(), b, sink, paused); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	expect(b, "b", true, b.Peers[2]+": no such sink")
	expect(b, "a", false, "307 Temporary Redirect") // is not followed
	expect(Bridge{State: b.State}, "a", true, "no bridge is running with this state.path")
	expect(Bridge{State: b.State, Peers: b.Peers[:2]}, "a", true, b.Peers[0]+": standby")
	expect(Bridge{State: b.State, Peers: b.Peers, TokenFile: b.State}, "a", true, "http.tokenFile")
}
