package e2e

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/test/certs"
	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
  - {level: RequestResponse, namespaces: [audited]}
  - {level: Metadata, nonResourceURLs: [/version*]}
  - {level: None}
`

const auditWebhook = `apiVersion: v1
kind: Config
current-context: bridge
contexts: [{name: bridge, context: {cluster: bridge, user: apiserver}}]
clusters: [{name: bridge, cluster: {server: "https://%s/audit", certificate-authority: %q}}]
users: [{name: apiserver, user: {client-certificate: %q, client-key: %q}}]
`

// audited is an API server that sends audit events to a bridge, and writes them to a file too.
type audited struct {
	t         *testing.T
	cluster   *cluster.Cluster
	dir, file string // the file has what the API server itself has logged
	keys      string // of the bridge's configuration
	hidden    *hidden
	bridgeDir string
}

func startAudited(t *testing.T) *audited {
	t.Helper()
	a := &audited{t: t, dir: t.TempDir(), bridgeDir: t.TempDir(), hidden: &hidden{t: t}}
	write := func(name, text string) string {
		path := filepath.Join(a.dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	authority, err := certs.New("audit")
	if err != nil {
		t.Fatal(err)
	}
	ca := write("ca.crt", string(authority.PEM()))
	clientCert, clientKey, err := authority.IssueFiles(t.TempDir(), certs.Options{Name: "kube-apiserver"})
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := authority.IssueFiles(a.dir, certs.Options{Name: "bridge", Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", freePorts(t, 1)[0])
	a.keys = fmt.Sprintf(
		"audit: {listen: %q, certFile: %q, keyFile: %q, clientCAFile: %q, clientNames: [kube-apiserver]}\n",
		address,
		cert,
		key,
		ca,
	)
	policy := write("policy.yaml", auditPolicy)
	webhook := write("webhook.yaml", fmt.Sprintf(auditWebhook, address, ca, clientCert, clientKey))
	a.file = filepath.Join(a.dir, "audit.log")
	a.cluster = cluster.ForTest(t, func(o *cluster.Options) {
		o.APIServerFlags = []string{
			"--audit-policy-file=" + policy, "--audit-webhook-config-file=" + webhook, "--audit-webhook-mode=batch",
			"--audit-webhook-batch-max-wait=50ms", "--audit-webhook-batch-max-size=20", "--audit-webhook-initial-backoff=3s",
			"--audit-webhook-batch-throttle-qps=100", "--audit-webhook-batch-throttle-burst=100", "--audit-log-path=" + a.file,
		}
	})
	return a
}

// write writes objects, and secret values in every way. It reports each third.
func (a *audited) write(ctx context.Context, cs kubernetes.Interface, w, rounds int, third chan<- struct{}) error {
	maps, secrets := cs.CoreV1().ConfigMaps("audited"), cs.CoreV1().Secrets("audited")
	for n := range rounds {
		name := fmt.Sprintf("w%d-%d", w, n)
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"n": itoa(n)}}
		object, err := maps.Create(ctx, object, metav1.CreateOptions{})
		if err == nil {
			object.Data["x"] = name
			_, err = maps.Update(ctx, object, metav1.UpdateOptions{})
		}
		if err == nil {
			err = maps.Delete(ctx, name, metav1.DeleteOptions{})
		}
		value := string(a.hidden.forms[0])
		if err == nil && n%10 == 0 {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"password": value}}
			_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
		}
		if err == nil && n%10 == 1 {
			encoded := base64.StdEncoding.EncodeToString([]byte(value))
			before := fmt.Sprintf("w%d-%d", w, n-1)
			for kind, patch := range map[types.PatchType]string{
				types.JSONPatchType:           `[{"op":"replace","path":"/data/password","value":"` + encoded + `"}]`,
				types.MergePatchType:          `{"stringData":{"b":"` + value + `"}}`,
				types.StrategicMergePatchType: `{"data":{"c":"` + encoded + `"}}`,
			} {
				if _, err = secrets.Patch(ctx, before, kind, []byte(patch), metav1.PatchOptions{}); err != nil {
					return err
				}
			}
			if _, err = secrets.List(ctx, metav1.ListOptions{}); err == nil {
				err = secrets.DeleteCollection(
					ctx,
					metav1.DeleteOptions{},
					metav1.ListOptions{FieldSelector: "metadata.name=" + before},
				)
			}
		}
		if err == nil {
			_, err = cs.Discovery().ServerVersion() // a request that is not about a resource
		}
		if err != nil {
			return err
		}
		if (n+1)%(rounds/3) == 0 && n < rounds/3*2 {
			third <- struct{}{}
		}
	}
	return nil
}

// auditKey identifies an audit event.
type auditKey struct{ AuditID, Stage, RequestReceivedTimestamp string }

func keyOf(t *testing.T, data []byte) (key auditKey) {
	t.Helper()
	if err := json.Unmarshal(data, &key); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return key
}

// logged returns what the API server itself has logged, in all files.
func (a *audited) logged() map[auditKey]bool {
	a.t.Helper()
	all, found := map[auditKey]bool{}, false
	paths, err := filepath.Glob(filepath.Join(filepath.Dir(a.file), "audit*.log*"))
	if err != nil {
		a.t.Fatal(err)
	}
	for _, path := range paths {
		lines := bufio.NewScanner(a.open(path))
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			all[keyOf(a.t, lines.Bytes())] = true
			found = found || a.hidden.in(lines.Bytes())
		}
		if lines.Err() != nil {
			a.t.Fatal(lines.Err())
		}
	}
	if !found {
		a.t.Fatal("the API server's log has no secret values")
	}
	return all
}

// open opens a file of the API server's log, which may be compressed.
func (a *audited) open(path string) io.Reader {
	a.t.Helper()
	file, err := os.Open(path)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = file.Close() })
	if !strings.HasSuffix(path, ".gz") {
		return file
	}
	z, err := gzip.NewReader(file)
	if err != nil {
		a.t.Fatal(err)
	}
	return z
}

// judge compares what a broker has with what the API server has logged.
func (a *audited) judge(broker string, want map[auditKey]bool, got []received) {
	a.t.Helper()
	seen, twice := map[auditKey]bool{}, 0
	ids := map[string]auditKey{}
	for _, r := range got {
		if r.attributes["type"] != "dev.deltabridge.audit" {
			a.t.Errorf("%s: %s: %s", broker, r.attributes["type"], r.data)
			continue
		}
		if a.hidden.in(r.data) {
			a.t.Fatalf("%s: a secret value is in %s", broker, r.subject())
		}
		key := keyOf(a.t, r.data)
		if !want[key] {
			a.t.Errorf("%s: the API server has not logged %+v", broker, key)
		}
		if other, known := ids[r.id()]; known && other != key {
			a.t.Errorf("%s: two events have the id %s", broker, r.id())
		}
		if ids[r.id()] = key; seen[key] {
			twice++
		}
		seen[key] = true
	}
	missing := 0
	for key := range want {
		if !seen[key] {
			missing++
		}
	}
	a.t.Logf("%s: %d events, %d repetitions; the API server has logged %d, of which %d are missing",
		broker, len(got), twice, len(want), missing)
	if missing > 0 || twice > len(want)/2 {
		a.t.Errorf("%s: %d audit events are missing, %d are there twice", broker, missing, twice)
	}
}

// Every audit event that the API server itself logs is in both destinations, without secret values, although the bridge
// is killed twice, and JetStream is away for a while.
func TestEveryAuditEventArrives(t *testing.T) { // alone: it keeps the API server busy
	a, js, k := startAudited(t), startJetStream(t), kafka.ForTest(t)
	a.hidden.value()
	topic := "audit-" + itoa(os.Getpid())
	kafka.CreateTopic(t, k.Addr(), topic, 3, nil)
	config := a.keys + fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [audited]}]
sinks:
  - name: jetstream
    events: audit
    nats: {url: %q, subject: "audit.{cluster}.{group}.{resource}.{namespace}.{name}", stream: {name: AUDIT, create: true}}
  - {name: kafka, events: audit, kafka: {brokers: [%q], topic: %q}}
`, js.url(), k.Addr(), topic)
	b := startBridgeIn(t, a.bridgeDir, a.cluster.Kubeconfig(), config)
	cs := clientset(t, a.cluster)
	if _, err := cs.CoreV1().
		Namespaces().
		Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "audited"}},
			metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.waitReady()
	a.token(cs)
	const writers = 3
	group, ctx := errgroup.WithContext(t.Context())
	third := make(chan struct{}, 2*writers)
	for w := range writers {
		group.Go(func() error { return a.write(ctx, cs, w, scale.Of(150, 1500), third) })
	}
	for n := range 2 {
		for range writers {
			select {
			case <-third:
			case <-ctx.Done():
				t.Fatal(group.Wait())
			}
		}
		b.kill()
		if n == 0 {
			js.stop()
		}
		b = startBridgeIn(t, a.bridgeDir, a.cluster.Kubeconfig(), config)
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error {
		if n := b.metric("deltabridge_audit_journal_events"); n < 10 {
			return fmt.Errorf("only %v events wait in the journal while JetStream is away", n)
		}
		return nil
	})
	if n := b.metric("deltabridge_spill_events", "sink=jetstream"); n > 0 {
		t.Errorf("%v events are in the spill", n)
	}
	if err := a.cluster.StopAPIServer(t.Context()); err != nil { // sends what it has
		t.Fatal(err)
	}
	js.start()
	eventually(t, 2*time.Minute, func() error {
		if n := b.metric("deltabridge_audit_journal_events"); n > 0 {
			return fmt.Errorf("%v events wait in the journal", n)
		}
		return nil
	})
	b.stop()
	want := a.logged()
	a.judge("JetStream", want, js.read("AUDIT"))
	a.judge("Kafka", want, slices.Concat(readKafka(t, k.Addr(), topic)...))
}

// token requests a token of a service account, which must not leave either.
func (a *audited) token(cs kubernetes.Interface) {
	a.t.Helper()
	accounts := cs.CoreV1().ServiceAccounts("audited")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
	if _, err := accounts.Create(a.t.Context(), account, metav1.CreateOptions{}); err != nil {
		a.t.Fatal(err)
	}
	request, err := accounts.CreateToken(a.t.Context(), "robot", &authv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	a.hidden.forms = append(a.hidden.forms, []byte(request.Status.Token))
}
