//go:build unix

package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/scale"
)

const auditPolicy = `omitStages: [RequestReceived]
rules:
  - {level: RequestResponse, namespaces: [audited], resources: [{resources: [configmaps]}]}
  - {level: None}
`

// addressVariable has the address on which a child process listens.
const addressVariable = "DELTABRIDGE_AUDIT_ADDRESS"

// TestAPIServerChild is the process of TestAPIServer that receives events until it is killed.
func TestAPIServerChild(t *testing.T) {
	dir := os.Getenv(childVariable)
	if dir == "" {
		return // it is run by TestAPIServer
	}
	o := ServerOptions{
		Address: os.Getenv(addressVariable), CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"),
		ClientCAFile: filepath.Join(dir, "audit-ca.crt"), Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	o.Handler, _ = newHandler(t, openJournal(t, filepath.Join(dir, "audit")), func(h *HandlerOptions) {
		h.Clients, h.Names, h.TokenFile, h.Logger = true, []string{cluster.AuditClient}, "", o.Logger
	})
	start(t, o)
	_, _ = os.Stdout.WriteString("@ready\n")
	<-t.Context().Done()
}

// startIntake starts a process that receives events, and returns a function that kills it.
func startIntake(t *testing.T, dir, address string) (kill func()) {
	t.Helper()
	cmd := child(t, "TestAPIServerChild", dir)
	cmd.Env = append(cmd.Env, addressVariable+"="+address)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == "@ready" {
			return kill
		}
	}
	kill()
	t.Fatal("the intake did not start")
	return nil
}

// TestAPIServer: the journal has each write that a real API server has committed, although the intake is killed twice.
func TestAPIServer(t *testing.T) {
	dir := t.TempDir()
	a, err := cluster.NewAuditIntake(dir, auditPolicy, "")
	if err != nil {
		t.Fatal(err)
	}
	kill := startIntake(t, dir, a.Address)
	t.Cleanup(func() { kill() })
	c := cluster.ForTest(t, func(o *cluster.Options) {
		o.APIServerFlags = append(a.Flags, "--audit-webhook-batch-max-wait=50ms", "--audit-webhook-batch-max-size=20",
			"--audit-webhook-initial-backoff=2s", "--audit-webhook-batch-throttle-qps=100",
			"--audit-webhook-batch-throttle-burst=100")
	})
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "audited"}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var writing sync.WaitGroup
	rounds := scale.Of(20, 200)
	third := make(chan struct{}, 8)
	for w := range 4 {
		writing.Go(func() { write(t, c.RESTConfig(), w, rounds, third) })
	}
	for range 2 {
		for range 4 {
			<-third
		}
		kill()
		kill = startIntake(t, dir, a.Address)
	}
	writing.Wait()
	if err := c.StopAPIServer(t.Context()); err != nil { // sends what it has
		t.Fatal(err)
	}
	kill()
	compare(t, c, openJournal(t, filepath.Join(dir, "audit")))
}

// write creates, updates, patches and deletes objects. It reports each third.
func write(t *testing.T, config *rest.Config, w, rounds int, third chan<- struct{}) {
	if w == 0 { // this client chooses the auditID, always the same
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				r = r.Clone(r.Context())
				r.Header.Set("Audit-ID", "chosen")
				return next.RoundTrip(r)
			})
		})
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Error(err)
		return
	}
	objects := client.CoreV1().ConfigMaps("audited")
	for n := range rounds {
		name := fmt.Sprintf("w%d-%d", w, n%7)
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"n": strconv.Itoa(n)}}
		object, err := objects.Create(t.Context(), object, metav1.CreateOptions{})
		if err == nil {
			object.Data["x"] = strings.Repeat("x", 100*n)
			_, err = objects.Update(t.Context(), object, metav1.UpdateOptions{})
		}
		if err == nil {
			_, err = objects.Patch(
				t.Context(),
				name,
				types.MergePatchType,
				[]byte(`{"data":{"n":"ä\u0000"}}`),
				metav1.PatchOptions{},
			)
		}
		if err == nil {
			err = objects.Delete(t.Context(), name, metav1.DeleteOptions{})
		}
		if err != nil {
			t.Error(err)
		}
		if (n+1)%(rounds/3) == 0 && n < rounds/3*2 {
			third <- struct{}{}
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// response is what a write's event contains.
type response struct {
	Verb           string
	User           struct{ Username string }
	ResponseStatus metav1.Status
	ResponseObject struct{ Metadata metav1.ObjectMeta }
}

// compare compares the journal with etcd.
func compare(t *testing.T, c *cluster.Cluster, j *Journal) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	history, err := c.History(ctx, "/registry/configmaps/audited/", 1)
	if err != nil {
		t.Fatal(err)
	}
	records, err := j.Read(ctx, 1, math.MaxInt)
	if err != nil {
		t.Fatal(err)
	}
	ids, chosen := map[string]bool{}, 0
	writes, deletions := map[string]string{}, map[string]int{} // name by resourceVersion; number by name
	for _, r := range records {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		e := r.Event
		if ids[e.ID()] {
			continue
		}
		ids[e.ID()] = true
		var got response
		if err := json.Unmarshal(e.Raw, &got); err != nil {
			t.Fatal(err)
		}
		if e.Stage != "ResponseComplete" || e.Object.Namespace != "audited" || e.Object.Resource != "configmaps" ||
			got.User.Username == "" || e.Received.IsZero() || e.StageTime.Before(e.Received) || got.ResponseStatus.Code/100 != 2 {
			t.Fatalf("%s", e.Raw)
		}
		if e.AuditID == "chosen" {
			chosen++
		}
		if got.Verb == "delete" {
			deletions[e.Object.Name]++
		} else {
			writes[got.ResponseObject.Metadata.ResourceVersion] = e.Object.Name
		}
	}
	for _, r := range history {
		name := filepath.Base(r.Key)
		if r.Deleted {
			deletions[name]--
		} else if got := writes[strconv.FormatInt(r.ModRevision, 10)]; got != name {
			t.Errorf("revision %d wrote %s, the journal has %q", r.ModRevision, name, got)
		}
	}
	for name, n := range deletions {
		if n != 0 {
			t.Errorf("%s: %d deletions more than in etcd", name, n)
		}
	}
	t.Logf("%d writes in etcd; %d events in the journal, of which %d are different, %d with a chosen auditID",
		len(history), len(records), len(ids), chosen)
	if len(ids) != len(history) || chosen != len(history)/4 || len(history) < 300 {
		t.Error("another number of events")
	}
}
