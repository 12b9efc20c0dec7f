package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/test/cluster"
)

// TestCommandsReachTheLeader: `bridge status` shows all replicas and the last take-over. Commands beside a standby reach
// the leader with a token, and a request without a valid token changes nothing.
func TestCommandsReachTheLeader(t *testing.T) {
	t.Parallel()
	c, js := sharedCluster(t), startJetStream(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	all := newReplicas(
		t,
		c.Kubeconfig(),
		namespace,
		fmt.Sprintf("nats: {url: %q, stream: {name: STATE, create: true}}", js.url()),
		fmt.Sprintf("watch: [{resources: [configmaps], namespaces: [%s]}]\nsinks:\n  - name: jetstream\n"+
			"    nats: {url: %q, stream: {name: E2E, create: true, subjects: [\"k8s.>\"]}}\n", namespace, js.url()),
	)
	leader := all.start()
	leader.waitLeader()
	standby := all.start()
	standby.waitReady()
	o := &operator{t: t, all: all, token: filepath.Join(t.TempDir(), "token"), peers: []*bridge{standby, leader}}

	var r []control.Replica
	eventually(t, 20*time.Second, func() error {
		if r = o.status(0, leader, standby); r[1].BehindCommits == nil || *r[1].BehindCommits > 2 {
			return fmt.Errorf("the standby is behind: %+v", r[1])
		}
		return nil
	})
	if r[0].TakeOver == nil || r[0].TakeOver.Reason != "start" || r[1].TakeOver != nil || r[0].Epoch != r[1].Epoch ||
		!r[0].Ready || !r[1].Ready {
		t.Errorf("%+v", r)
	}
	if code, body, err := standby.get("/readyz"); code != http.StatusOK || !strings.Contains(body, r[0].Name) {
		t.Errorf("/readyz of the standby: %d %s, %v", code, body, err)
	}

	o.run("no bridge is running", "pause", "jetstream", "--config", o.config(nil))
	for name, tt := range map[string]struct {
		path, verb, audience, want string
	}{
		"an allowed token":   {"/api/resync", "post", "deltabridge", "jetstream: "},
		"no right":           {"/api/resync", "get", "deltabridge", "may not post the non-resource URL /api/resync"},
		"for the API server": {"/api/resync", "post", "https://kubernetes.default.svc", "is not valid for the audience deltabridge"},
	} {
		t.Run(name, func(t *testing.T) {
			o.account(tt.path, tt.verb, tt.audience)
			o.run(tt.want, "resync", "--config", o.config(o.peers))
		})
	}
	o.account("/api/*", "post", "deltabridge")
	for _, paused := range []float64{1, 0} {
		o.run("jetstream: "+[]string{"resumed", "paused"}[int(paused)], []string{"resume", "pause"}[int(paused)],
			"jetstream", "--config", o.config(o.peers))
		if got := leader.metric("deltabridge_sink_paused"); got != paused {
			t.Errorf("%.0f sinks are paused", got)
		}
	}
	for _, b := range o.peers {
		for _, path := range []string{"resync", "pause?sink=jetstream", "resume?sink=jetstream", "reload", "status", "other"} {
			for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodGet} {
				want := http.StatusUnauthorized
				if path == "status" && method == http.MethodGet {
					want = http.StatusOK
				}
				if got := o.anonymous(b, method, "/api/"+path); got != want {
					t.Errorf("%s %s without a token: %d", method, path, got)
				}
			}
		}
	}
	if leader.metric("deltabridge_sink_paused") != 0 {
		t.Error("a request without a token has paused the sink")
	}
	o.takeOvers(cs, namespace, leader, standby)
}

// takeOvers checks the status after a crash and after a hand-over.
func (o *operator) takeOvers(cs kubernetes.Interface, namespace string, leader, standby *bridge) {
	o.t.Helper()
	for _, reason := range []string{"expired", "released"} {
		before := o.status(0, leader, standby)[0]
		began := time.Now()
		if reason == "expired" {
			leader.kill()
		} else {
			leader.stop()
		}
		leader = standby
		leader.waitLeader()
		if err := oneLife(o.t.Context(), cs, namespace, reason, 1, true); err != nil {
			o.t.Fatal(err)
		}
		var r control.Replica
		eventually(o.t, time.Minute, func() error { // only one of two addresses answers
			if r = o.status(2, leader)[0]; r.TakeOver == nil || len(r.TakeOver.Steps) < 5 {
				return fmt.Errorf("%+v", r.TakeOver)
			}
			return nil
		})
		var steps []string
		sum := 0.
		for _, step := range r.TakeOver.Steps {
			steps = append(steps, step.Name)
			if sum += step.Seconds; step.Seconds < 0 {
				o.t.Errorf("%+v", step)
			}
		}
		o.t.Logf("%s: %+v", reason, r.TakeOver)
		slices.Sort(steps)
		lease := r.TakeOver.Steps[0].Seconds
		if r.TakeOver.Reason != reason || r.Epoch <= before.Epoch ||
			reason == "expired" &&
				lease < steadyLease().Seconds() || sum > time.Since(began).Seconds()+steadyLease().Seconds() ||
			!slices.Equal(steps, []string{"engine", "firstEvent", "lease", "log", "ready"}) {
			o.t.Errorf("after %s: %+v", reason, r)
		}
		out := o.run("last take-over: ", "status", "--config", o.config(o.peers))
		if !strings.Contains(out, "1 of 2 addresses do not answer") || !strings.Contains(out, "  firstEvent ") {
			o.t.Error(out)
		}
		standby = o.all.start()
		standby.waitReady()
		o.peers = []*bridge{leader, standby}
	}
	leader.stop()
	standby.stop()
}

// operator runs commands beside a replica.
type operator struct {
	t     *testing.T
	all   *replicas
	token string // the file
	peers []*bridge
}

// config writes a configuration for commands, whose state directory no process uses.
func (o *operator) config(peers []*bridge) string {
	o.t.Helper()
	var addresses []string
	for _, b := range peers {
		addresses = append(addresses, b.addr)
	}
	http := "{}"
	if len(peers) > 0 {
		http = fmt.Sprintf("{peers: [%s], tokenFile: %q}", strings.Join(addresses, ", "), o.token)
	}
	file := filepath.Join(o.t.TempDir(), "bridge.yaml")
	text := fmt.Sprintf("http: %s\nstate: {path: %q%s}\n%s", http, o.t.TempDir(), o.all.state, o.all.config)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
	return file
}

// run runs a command, which must print a text, and returns its output.
func (o *operator) run(want string, args ...string) string {
	o.t.Helper()
	out, errs, err := runBridge(o.t, args...)
	if !strings.Contains(out+errs, want) {
		o.t.Errorf("bridge %s: %v: %s%s, want %s", strings.Join(args, " "), err, out, errs, want)
	}
	return out + errs
}

// status runs `bridge status`, which must exit with a code and show these replicas first.
func (o *operator) status(code int, want ...*bridge) (all []control.Replica) {
	o.t.Helper()
	var out string
	var report struct{ Replicas []control.Answer }
	eventually(o.t, 20*time.Second, func() error { // a standby can be some commits behind for a moment
		var errs string
		var err error
		out, errs, err = runBridge(o.t, "status", "-o", "json", "--config", o.config(o.peers))
		if failed := json.Unmarshal([]byte(out), &report); failed != nil {
			return fmt.Errorf("%w: %s", errors.Join(err, failed), errs)
		}
		got := 0
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			got = exit.ExitCode()
		}
		if got != code || len(report.Replicas) != len(o.peers) {
			return fmt.Errorf("exit code %d: %s%s", got, out, errs)
		}
		return nil
	})
	for n, b := range want {
		role := control.Standby
		if n == 0 {
			role = control.Leader
		}
		a := report.Replicas[n]
		if a.Status == nil || a.Address != b.addr || a.Replica.Role != role {
			o.t.Fatalf("%d: not %s at %s: %s", n, role, b.addr, out)
		}
		all = append(all, a.Replica)
	}
	return all
}

// account makes the commands use the token of a new service account, which has a right.
func (o *operator) account(path, verb, audience string) {
	o.t.Helper()
	rule := rbacv1.PolicyRule{NonResourceURLs: []string{path}, Verbs: []string{verb}}
	_, token := newAccount(o.t, sharedCluster(o.t), audience, rule)
	if err := os.WriteFile(o.token, []byte(token+"\n"), 0o600); err != nil {
		o.t.Fatal(err)
	}
}

// newAccount makes a service account with some rights. It returns its name, which is that of its ClusterRoleBinding too,
// and a token for an audience.
func newAccount(t *testing.T, c *cluster.Cluster, audience string, rules ...rbacv1.PolicyRule) (name, token string) {
	t.Helper()
	kubeconfig, err := c.RestrictedKubeconfig(t.Context(), rules)
	if err != nil {
		t.Fatal(err)
	}
	if token, err = c.Token(t.Context(), kubeconfig, audience); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(filepath.Base(kubeconfig), ".kubeconfig"), token
}

// anonymous sends a request that does not seem to come from the same machine, and returns the status code.
func (o *operator) anonymous(b *bridge, method, path string) int {
	o.t.Helper()
	request, err := http.NewRequestWithContext(o.t.Context(), method, "http://"+b.addr+path, http.NoBody)
	if err != nil {
		o.t.Fatal(err)
	}
	request.Host = "bridge.example"
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		o.t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		o.t.Error(err)
	}
	return response.StatusCode
}
