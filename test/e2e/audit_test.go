package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

const auditPolicy = `rules:
  - {level: RequestResponse, namespaces: [audited]}
  - {level: Metadata, nonResourceURLs: [/version*]}
  - {level: None}
`

// audited is an API server that sends audit events to a bridge, and writes them to a file too.
type audited struct {
	t         *testing.T
	cluster   *cluster.Cluster
	file      string // what the API server itself has logged
	keys      string // of the bridge's configuration, with a verb for the address
	address   string // to which the API server sends
	hidden    *hidden
	bridgeDir string
	auditOnly bool // no sink is sent changes, so that the bridge reads no objects
}

// startAudited starts an API server that sends its audit events to an address. If it is empty, nothing listens there
// yet.
func startAudited(t *testing.T, auditPolicy, address string) *audited {
	t.Helper()
	dir := t.TempDir()
	a := &audited{t: t, file: filepath.Join(dir, "audit.log"), bridgeDir: t.TempDir(), hidden: &hidden{t: t}}
	intake, err := cluster.NewAuditIntake(dir, auditPolicy, address)
	if err != nil {
		t.Fatal(err)
	}
	a.address = intake.Address
	a.keys = fmt.Sprintf("audit: {listen: %%q, certFile: %q, keyFile: %q, clientCAFile: %q, clientNames: [%s]}\n",
		intake.CertFile, intake.KeyFile, intake.CAFile, cluster.AuditClient)
	a.cluster = cluster.ForTest(t, func(o *cluster.Options) {
		o.APIServerFlags = append(intake.Flags, "--audit-webhook-batch-max-wait=50ms", "--audit-webhook-batch-max-size=20",
			"--audit-webhook-initial-backoff=3s", "--audit-webhook-batch-throttle-qps=100",
			"--audit-webhook-batch-throttle-burst=100", "--audit-log-path="+a.file)
	})
	return a
}

// write writes objects, and secret values in every way. After each part except the last, it waits for writers.next.
func (a *audited) write(
	ctx context.Context, cs kubernetes.Interface, w, rounds, parts int, next chan<- struct{},
) error {
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
		if (n+1)%(rounds/parts) == 0 && n < rounds/parts*(parts-1) {
			select {
			case next <- struct{}{}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// writers write objects at the same time.
type writers struct {
	t     *testing.T
	group *errgroup.Group
	ctx   context.Context //nolint:containedctx // of the group
	parts chan struct{}
}

const writerCount = 3

// startWriters creates the namespace and a token, and starts writers. They write in parts.
func (a *audited) startWriters(rounds, parts int) *writers {
	a.t.Helper()
	cs := clientset(a.t, a.cluster)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "audited"}}
	if _, err := cs.CoreV1().Namespaces().Create(a.t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		a.t.Fatal(err)
	}
	a.token(cs)
	w := &writers{t: a.t, parts: make(chan struct{})}
	w.group, w.ctx = errgroup.WithContext(a.t.Context())
	for n := range writerCount {
		w.group.Go(func() error { return a.write(w.ctx, cs, n, rounds, parts, w.parts) })
	}
	return w
}

// next waits until all writers have written another part, and lets them write the next one.
func (w *writers) next() {
	w.t.Helper()
	for range writerCount {
		select {
		case <-w.parts:
		case <-w.ctx.Done():
			w.t.Fatal(w.group.Wait())
		}
	}
}

// wait waits until all writers have written everything.
func (w *writers) wait() {
	w.t.Helper()
	if err := w.group.Wait(); err != nil {
		w.t.Fatal(err)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", freePorts(t, 1)[0])
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

// logged returns what the API server itself has logged.
func (a *audited) logged() map[auditKey][]byte {
	a.t.Helper()
	file, err := os.Open(a.file)
	if err != nil {
		a.t.Fatal(err)
	}
	defer file.Close()
	all, found := map[auditKey][]byte{}, false
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		all[keyOf(a.t, lines.Bytes())] = bytes.Clone(lines.Bytes())
		if a.auditOnly && bytes.Contains(lines.Bytes(), []byte(`"userAgent":"deltabridge/`)) {
			a.t.Errorf("the bridge has sent %s", lines.Bytes())
		}
		found = found || a.hidden.in(lines.Bytes())
	}
	if lines.Err() != nil {
		a.t.Fatal(lines.Err())
	}
	if !found {
		a.t.Fatal("the API server's log has no secret values")
	}
	return all
}

// judge compares what a broker has with what the API server has logged.
func (a *audited) judge(broker string, want map[auditKey][]byte, got []received) {
	a.t.Helper()
	for _, r := range got {
		if a.hidden.in(r.data) {
			a.t.Fatalf("%s: a secret value is in %s", broker, r.subject())
		}
	}
	if repeated := judgeAudit(a.t, broker, want, got); repeated > len(want) { // a crash repeats those of about a second
		a.t.Errorf("%s: %d repetitions", broker, repeated)
	}
}

// judgeAudit checks that a broker has these audit events and no others, and that ids are unique. It returns how often
// an event is repeated, as after a kill.
func judgeAudit(t *testing.T, broker string, want map[auditKey][]byte, got []received) (repetitions int) {
	t.Helper()
	seen := map[auditKey]bool{}
	ids := map[string]auditKey{}
	for _, r := range got {
		if r.attributes["type"] != "dev.deltabridge.audit" {
			t.Errorf("%s: %s: %s", broker, r.attributes["type"], r.data)
			continue
		}
		key := keyOf(t, r.data)
		if _, known := want[key]; !known {
			t.Errorf("%s: nobody has sent %+v to the bridge", broker, key)
		}
		if other, known := ids[r.id()]; known && other != key {
			t.Errorf("%s: two events have the id %s", broker, r.id())
		}
		if ids[r.id()] = key; seen[key] {
			repetitions++
		}
		seen[key] = true
	}
	missing := 0
	for key := range want {
		if !seen[key] {
			missing++
		}
	}
	t.Logf("%s: %d events, %d repetitions; of %d that were sent to the bridge, %d are missing",
		broker, len(got), repetitions, len(want), missing)
	if missing > 0 {
		t.Errorf("%s: %d audit events are missing", broker, missing)
	}
	return repetitions
}

// Every audit event that the API server itself logs is in both destinations, without secret values, although the bridge
// is killed twice, and JetStream is away for a while.
func TestEveryAuditEventArrives(t *testing.T) {
	t.Parallel()
	a, js, k := startAudited(t, auditPolicy, ""), startJetStream(t), kafka.ForTest(t)
	a.auditOnly = true
	a.hidden.value()
	cs := clientset(t, a.cluster)
	topic := "audit-" + newNamespace(t, cs)
	kafka.CreateTopic(t, k.Addr(), topic, 3, nil)
	config := fmt.Sprintf(a.keys, a.address) + fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [audited]}]
sinks:
  - name: jetstream
    events: audit
    nats: {url: %q, subject: "audit.{cluster}.{group}.{resource}.{namespace}.{name}", stream: {name: AUDIT, create: true}}
  - {name: kafka, events: audit, kafka: {brokers: [%q], topic: %q}}
`, js.url(), k.Addr(), topic)
	b := startBridgeIn(t, a.bridgeDir, a.cluster.Kubeconfig(), config)
	b.waitReady()
	w := a.startWriters(scale.Of(150, 1500), 3)
	for n := range 2 {
		w.next()
		b.kill()
		if n == 0 {
			js.stop()
		}
		b = startBridgeIn(t, a.bridgeDir, a.cluster.Kubeconfig(), config)
	}
	w.wait()
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
