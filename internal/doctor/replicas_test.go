package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// lease answers the requests about a Lease.
type lease struct {
	allowed []string // requests, as "VERB NAME"; if it is nil, the API server refuses to answer
	answer  any      // to a get
}

func (l lease) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	a := answers{
		"GET /apis/coordination.k8s.io/v1/namespaces/ns/leases/mine": l.answer,
		"POST " + reviews: http.StatusForbidden,
	}
	var review authorizationv1.SelfSubjectAccessReview
	if r.URL.Path == reviews && l.allowed != nil {
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		of := review.Spec.ResourceAttributes
		review.Status.Allowed = of.Namespace == "ns" && of.Group == "coordination.k8s.io" && of.Resource == "leases" &&
			slices.Contains(l.allowed, of.Verb+" "+of.Name)
		text, _ := json.Marshal(review)
		a["POST "+reviews] = string(text)
	}
	a.ServeHTTP(w, r)
}

// examinationOf is an examination of an API server.
func examinationOf(t *testing.T, apiServer http.Handler) *examination {
	t.Helper()
	server := httptest.NewServer(apiServer)
	t.Cleanup(server.Close)
	client, err := informer.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.(*rest.RESTClient).Client.CloseIdleConnections)
	return &examination{cfg: config.Default(), client: client}
}

// The permissions for the Lease are those of `bridge rbac`. Without watch, the replicas work.
func TestLease(t *testing.T) {
	all := []string{"get mine", "update mine", "watch mine", "create "}
	without := func(verb string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return strings.HasPrefix(s, verb) })
	}
	const held = `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","spec":{"holderIdentity":"a"}}`
	const may = "ok ns/mine get, update, watch, create"
	for name, c := range map[string]struct {
		lease
		want []string
	}{
		"held":      {lease{all, held}, []string{may, "ok ns/mine held by a"}},
		"released":  {lease{all, `{"spec":{"holderIdentity":""}}`}, []string{may, "ok ns/mine nobody holds it"}},
		"new":       {lease{all, http.StatusNotFound}, []string{may, "ok ns/mine does not exist yet; the bridge will create it"}},
		"broken":    {lease{all, "{"}, []string{may, "failed ns/mine unexpected end of JSON input -> " + checkLog}},
		"no watch":  {lease{without("watch"), held}, []string{"warning ns/mine no permission to watch: a standby takes over a little later -> " + rbacRemedy, "ok ns/mine held by a"}},
		"no update": {lease{without("update"), held}, []string{"failed ns/mine no permission to update -> " + rbacRemedy, "ok ns/mine held by a"}},
		"no create": {lease{without("create"), http.StatusNotFound}, []string{"failed ns/mine no permission to create -> " + rbacRemedy, "ok ns/mine does not exist yet; the bridge will create it"}},
		"no get":    {lease{without("get"), held}, []string{"failed ns/mine no permission to get -> " + rbacRemedy}},
		"no answer": {lease{nil, held}, []string{"warning ns/mine cannot check the permissions: unknown -> " + checkLog}},
	} {
		t.Run(name, func(t *testing.T) {
			e := examinationOf(t, c.lease)
			e.cfg.Election.Lease = config.Lease{Namespace: "ns", Name: "mine"}
			e.checkLease(t.Context())
			var got []string
			for _, f := range e.report.Findings {
				line := strings.TrimSpace(strings.Join([]string{f.Result, f.Target, f.Detail + f.Error}, " "))
				if f.Remedy != "" {
					line += " -> " + f.Remedy
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// reviews answers SelfSubjectAccessReviews. It contains the requests that are not allowed, as "VERB NAME".
type reviews []string

func (denied reviews) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review authorizationv1.SelfSubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var name string
	if of := review.Spec.ResourceAttributes; of != nil {
		name = of.Verb + " " + of.Resource
	} else {
		name = review.Spec.NonResourceAttributes.Verb + " " + review.Spec.NonResourceAttributes.Path
	}
	review.Status.Allowed = !slices.Contains(denied, name)
	_ = json.NewEncoder(w).Encode(review)
}

// The permissions for commands are those of `bridge rbac`.
func TestCommands(t *testing.T) {
	for want, denied := range map[string]reviews{
		"ok allowed": nil,
		"warning no permission to create tokenreviews, post /api/pause: `bridge resync`, `pause` and `resume` work only in " +
			"the Pod of the leader": {"create tokenreviews", "post /api/pause"},
	} {
		e := examinationOf(t, denied)
		e.checkCommands(t.Context())
		if f := e.report.Findings[0]; f.Result+" "+f.Detail != want {
			t.Errorf("%s %s, want %s", f.Result, f.Detail, want)
		}
	}
}

// checkedLog is a state log with findings of its own.
type checkedLog struct {
	statelog.Log
	found  []diagnose.Finding
	closed bool
}

func (l *checkedLog) Check(context.Context) []diagnose.Finding { return l.found }

func (l *checkedLog) Close() error {
	l.closed = true
	return nil
}

func TestStateLog(t *testing.T) {
	log := &checkedLog{found: []diagnose.Finding{{Step: "stream", Err: errors.New("gone")}}}
	report := (&examination{cfg: localConfig(t), log: log}).run(t.Context())
	found := slices.IndexFunc(report.Findings, func(f Finding) bool { return f.Area == "state log" })
	if found < 0 || report.Findings[found].Error != "gone" || !log.closed {
		t.Errorf("%+v, closed: %t", report.Findings, log.closed)
	}
}

// The state log of the configuration is checked, even without a state directory.
func TestExamineStateLog(t *testing.T) {
	cfg := localConfig(t)
	cfg.Sinks, cfg.State.Path = nil, ""
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, make([]byte, 32), 0o600); err != nil {
		t.Fatal(err)
	}
	for broker, text := range map[string]string{"nats": "{url: nats://127.0.0.1:1}", "kafka": `{brokers: ["127.0.0.1:1"], topic: a}`} {
		parsed, err := config.Parse("bridge.yaml", fmt.Appendf(nil,
			"redactionKeyFile: %s\nstate: {log: {%s: %s}}\nsinks: [{name: a, stdout: {}}]\n", key, broker, text))
		if err != nil {
			t.Fatal(err)
		}
		cfg.State.Log = parsed.State.Log
		report, err := Examine(t.Context(), cfg, "dev")
		if err != nil {
			t.Fatal(err)
		}
		found := slices.IndexFunc(report.Findings, func(f Finding) bool { return f.Area == "state log" })
		if found < 0 || report.Findings[found].Target != "127.0.0.1:1" || report.Findings[found].Result != resultFailed {
			t.Errorf("%s: %+v", broker, report.Findings)
		}
	}
}
