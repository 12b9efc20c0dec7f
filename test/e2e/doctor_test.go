package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/deltabridge/deltabridge/test/certs"
	"github.com/deltabridge/deltabridge/test/kafka"
)

// diagnosis is what `bridge doctor` prints as JSON.
type diagnosis struct {
	OK, Warnings, Failed int
	Findings             []finding
}

type finding struct{ Area, Step, Target, Result, Detail, Error, Remedy string }

// String is a finding in one line.
func (f finding) String() string {
	return strings.Join([]string{f.Area, f.Step, f.Target, f.Result, f.Detail, f.Error, f.Remedy}, " | ")
}

// examine runs `bridge doctor` with a configuration to which the kubeconfig, the HTTP address and the state are added.
func examine(t *testing.T, dir, kubeconfig, config string) diagnosis {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bridge.yaml")
	text := fmt.Sprintf(
		"kubeconfig: %q\nhttp: {listen: \"127.0.0.1:0\"}\nstate: {path: %q}\n%s",
		kubeconfig,
		filepath.Join(dir, "state"),
		config,
	)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, err := runBridge(t, "doctor", "--config", file, "-o", "json")
	var d diagnosis
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, errs)
	}
	if failed := err != nil; failed != (d.Failed > 0) || d.OK+d.Warnings+d.Failed != len(d.Findings) {
		t.Errorf(
			"ended with %v: %d failed, %d warnings, %d ok of %d; %s",
			err,
			d.Failed,
			d.Warnings,
			d.OK,
			len(d.Findings),
			errs,
		)
	}
	t.Cleanup(func() {
		for _, f := range d.Findings {
			if t.Failed() {
				t.Log(f)
			}
		}
	})
	for _, f := range d.Findings {
		if f.Result != "ok" && f.Remedy == "" {
			t.Errorf("no remedy: %v", f)
		}
	}
	return d
}

// expect fails unless the findings that are not ok are those that are described by words of them.
func (d diagnosis) expect(t *testing.T, descriptions ...string) {
	t.Helper()
	for _, f := range d.Findings {
		found := f.Result == "ok"
		for n, description := range descriptions {
			if describes(description, f) {
				descriptions[n], found = "", true
			}
		}
		if !found {
			t.Errorf("unexpected: %v", f)
		}
	}
	for _, description := range descriptions {
		if description != "" {
			t.Errorf("missing: %s", description)
		}
	}
}

// describes reports whether all words of a description, divided by "...", stand in the finding in their order.
func describes(description string, f finding) bool {
	text := f.String()
	for part := range strings.SplitSeq(description, "...") {
		_, after, found := strings.Cut(text, part)
		if !found || description == "" {
			return false
		}
		text = after
	}
	return true
}

func TestDoctorAllIsWell(t *testing.T) {
	c, js := sharedCluster(t), startJetStream(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	config := fmt.Sprintf(`
watch:
  - {resources: [configmaps, deployments.apps], namespaces: [%s]}
  - {resources: [nodes, "*.v1"], exclude: [secrets, configmaps], labelSelector: "a!=b"}
sinks:
  - {name: lines, stdout: {}}
  - {name: jetstream, nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}}
`, namespace, js.url())
	dir := t.TempDir()
	single := "sink jetstream | stream | stream E2E | warning...one replica"
	small := "sink jetstream | stream | stream E2E | warning...it accepts messages of at most 1048576 bytes...raise max_payload"
	d := examine(t, dir, c.Kubeconfig(), config)
	d.expect(t) // what the stream will be like shows once it exists
	for _, want := range []string{
		"API server | connect...ok", "API server | authenticate...as ", "API server | version...Kubernetes v1.",
		"cluster | namespace kube-system | ok | uid ", "watch | configmaps in " + namespace + " | ok | 0 objects",
		"watch | nodes | ok", "state | directory...does not exist yet", "state | write...ok", "state | space...free", "state | checkpoint...there is none",
		"sink lines", "sink jetstream...ok",
	} {
		if !d.has(want) {
			t.Errorf("missing: %s", want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "state")); !os.IsNotExist(err) {
		t.Errorf("the state directory was created: %v", err)
	}
	if names := js.streams(); len(names) > 0 {
		t.Errorf("streams were made: %v", names)
	}
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	during := examine(t, dir, c.Kubeconfig(), config)
	during.expect(t, "state | checkpoint...warning | a bridge uses it", single, small)
	b.stop()
	after := examine(t, dir, c.Kubeconfig(), config)
	after.expect(t, single, small)
	if !after.has("state | checkpoint |  | ok | ...resources, last written") {
		t.Errorf("the checkpoint: %v", after.Findings)
	}
}

func (d diagnosis) has(description string) bool {
	for _, f := range d.Findings {
		if describes(description, f) {
			return true
		}
	}
	return false
}

// The rights are missing, in part and altogether.
func TestDoctorWithoutRights(t *testing.T) {
	c := sharedCluster(t)
	some := withRights(t, c, "watch: [{resources: [configmaps], namespaces: [default]}]\n")
	examine(t, t.TempDir(), some, `
watch:
  - {resources: [configmaps, pods], namespaces: [default]}
  - {resources: [secrets, "*.apps", unheardof.example.com]}
sinks: [{name: lines, enrich: {namespaceLabels: true}, stdout: {}}]
`).expect(t,
		"discover...failed...the cluster does not serve unheardof.example.com...watch",
		"authorize | customresourcedefinitions | warning...noticed after 30 seconds...bridge rbac",
		"authorize | apiservices | warning...bridge rbac",
		"watch | pods in default | failed...no permission to get, list, watch...bridge rbac",
		"watch | secrets | failed...no permission to get, list, watch...bridge rbac",
		"watch | deployments.apps | warning...the bridge will not send its events...or exclude it",
		"watch | namespaces | warning...no permission to get, list, watch...events will not be enriched with this resource...bridge rbac",
		"watch | statefulsets.apps | warning", "watch | daemonsets.apps | warning", "watch | replicasets.apps | warning", "watch | controllerrevisions.apps | warning",
	)
}

// The API server can't be reached, or not trusted, or does not know the bridge.
func TestDoctorAPIServer(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	admin, err := clientcmd.LoadFromFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	lines := "watch: [{resources: [configmaps]}]\nsinks: [{name: lines, stdout: {}}]\n"
	for _, tt := range []struct {
		name string
		with func(server, ca, token *string)
		want string
	}{
		{"wrong CA", func(_, ca, _ *string) { *ca = otherCA(t) }, "TLS...failed...certificate signed by unknown authority...certificate-authority"},
		{"wrong port", func(server, _, _ *string) { *server = "https://127.0.0.1:1" }, "connect | 127.0.0.1:1 | failed...connection refused...correct the server in the kubeconfig"},
		{"no such host", func(server, _, _ *string) { *server = "https://nowhere.invalid:6443" }, "resolve | nowhere.invalid | failed...correct the server in the kubeconfig, or check DNS"},
		{"wrong token", func(_, _, token *string) { *token = "wrong" }, "authenticate...failed...asked for the client to provide credentials...renew the token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kube := admin.DeepCopy()
			for _, cluster := range kube.Clusters {
				ca, token := string(cluster.CertificateAuthorityData), ""
				tt.with(&cluster.Server, &ca, &token)
				cluster.CertificateAuthorityData = []byte(ca)
				for _, user := range kube.AuthInfos {
					if token != "" {
						user.Token, user.ClientCertificateData, user.ClientKeyData = token, nil, nil
					}
				}
			}
			file := filepath.Join(t.TempDir(), "kubeconfig")
			if err := clientcmd.WriteToFile(*kube, file); err != nil {
				t.Fatal(err)
			}
			examine(t, t.TempDir(), file, lines).expect(t, tt.want)
		})
	}
}

// otherCA makes the certificate of an authority that signed nothing here.
func otherCA(t *testing.T) string {
	t.Helper()
	authority, err := certs.New("other")
	if err != nil {
		t.Fatal(err)
	}
	return string(authority.PEM())
}

// Kafka: a topic as it should be but for the single broker, and what can be wrong with one.
func TestDoctorKafka(t *testing.T) {
	t.Parallel()
	c, k := sharedCluster(t), kafka.ForTest(t)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, []byte(otherCA(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	kafka.CreateTopic(t, k.Addr(), "doctor-well", 1, map[string]string{"max.message.bytes": "4194304"})
	kafka.CreateTopic(t, k.Addr(), "doctor-small", 1, map[string]string{"max.message.bytes": "1000"})
	const replica = "topic | topic doctor-...warning...the topic has one replica...increase the number of replicas to 3"
	const state = "authorize | fence | warning...transaction.state.log.replication.factor"
	for _, tt := range []struct {
		name, kafka string
		want        []string
	}{
		{"well", fmt.Sprintf("{brokers: [%q], topic: doctor-well}", k.Addr()), []string{replica, state}},
		{"too small", fmt.Sprintf("{brokers: [%q], topic: doctor-small}", k.Addr()), []string{
			replica, state, "sink kafka | topic | topic doctor-small | warning...the topic accepts at most 1000 bytes...increase max.message.bytes",
		}},
		{"missing", fmt.Sprintf("{brokers: [%q], topic: doctor-missing}", k.Addr()), []string{state, "sink kafka | topic | topic doctor-missing | failed...kafka.createTopics"}},
		{"wrong CA", fmt.Sprintf("{brokers: [%q], topic: doctor-well, tls: {caFile: %q}}", k.TLSAddr(), ca), []string{
			"sink kafka | TLS | " + k.TLSAddr() + " | failed...its certificate is signed by...kafka.tls.caFile",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := "watch: [{resources: [configmaps]}]\nsinks: [{name: kafka, kafka: " + tt.kafka + "}]\n"
			examine(t, t.TempDir(), c.Kubeconfig(), config).expect(t, tt.want...)
		})
	}
}

// NATS: the stream is not there, takes no message of the size that objects can have, and a server that is not trusted.
func TestDoctorNATS(t *testing.T) {
	t.Parallel()
	c, js := sharedCluster(t), startJetStream(t)
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(ca, []byte(otherCA(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	small := jetstream.StreamConfig{Name: "SMALL", Subjects: []string{"small.>"}, MaxMsgSize: 1000}
	js.create(small)
	secured := newJetStream(t)
	secured.secure()
	secured.start()
	for _, tt := range []struct {
		name, nats string
		want       []string
	}{
		{"stream missing", fmt.Sprintf("{url: %q, stream: {name: E2E}}", js.url()), []string{
			"sink js | stream | stream E2E | failed...stream E2E does not exist...nats.stream.create: true",
		}},
		{"too small", fmt.Sprintf("{url: %q, stream: {name: SMALL}, subject: \"small.{uid}\"}", js.url()), []string{
			"stream SMALL | warning...it accepts messages of at most 1000 bytes, but objects can have up to...max_msg_size", "stream SMALL | warning...one replica",
		}},
		{"wrong CA", fmt.Sprintf("{url: \"tls://%s\", stream: {name: E2E}, tls: {caFile: %q}}", secured.addr(), ca), []string{
			"sink js | TLS | " + secured.addr() + " | failed...its certificate is signed by...nats.tls.caFile",
		}},
		{"no server", "{url: \"nats://127.0.0.1:1\", stream: {name: E2E}}", []string{"sink js | connect | 127.0.0.1:1 | failed...nothing listens there...nats.url"}},
		{"embedded", fmt.Sprintf("{embedded: {listen: %q, storeDir: %q}, stream: {name: E2E, create: true, subjects: [\"k8s.>\"]}}", js.addr(), filepath.Join(dir, "store")), []string{
			"sink js | connect | " + js.addr() + " | failed...nats.embedded.listen",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := "watch: [{resources: [configmaps]}]\nsinks: [{name: js, nats: " + tt.nats + "}]\n"
			examine(t, t.TempDir(), c.Kubeconfig(), config).expect(t, tt.want...)
		})
	}
	if names := js.streams(); len(names) != 1 {
		t.Errorf("streams were made: %v", names)
	}
}

// The disk is full.
func TestDoctorFullDisk(t *testing.T) {
	dir := smallDisk(t, "size=1m")
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	examine(
		t,
		dir,
		sharedCluster(t).Kubeconfig(),
		"watch: [{resources: [configmaps]}]\nsinks: [{name: lines, stdout: {}}]\n",
	).expect(t,
		"state | write...failed...no space left on device...make room or enlarge the volume",
		"state | space...warning | 0 free; spills can take up to 1Gi...free some space",
	)
}
