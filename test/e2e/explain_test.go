package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/test/kafka"
)

type header = struct{ Name, Value string }

// explained is what `bridge explain -o json` prints.
type explained struct {
	Watched bool
	Watch   []struct {
		Entry  int
		Covers bool
		Why    string
	}
	Notes []string
	Sinks []struct {
		Name      string
		Sent      bool
		Operation string
		Message   *struct {
			ID, Subject, Topic, Key string
			Partition               *int
			Partitions              int
			Headers                 []header
			Size, Limit             int64
			Unknown                 string
		}
	}
}

func explainFor(t *testing.T, config string, args ...string) explained {
	t.Helper()
	out, errs, err := runBridge(t, append([]string{"explain", "-c", config, "-o", "json"}, args...)...)
	if err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	var e explained
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return e
}

// delivered is where a message lies: what explain foretells.
type delivered struct {
	ID, Place, Key string
	Partition      int
	Headers        map[string]string
}

// stable are the headers without those that explain can't know: when it happens, and whether in the first list. Of the
// header deltabridge, it knows only the name of the sink.
func stable(headers map[string]string) map[string]string {
	maps.DeleteFunc(headers, func(name, _ string) bool {
		return strings.HasSuffix(name, "_time") || strings.HasSuffix(name, "-time") ||
			strings.HasSuffix(name, "initiallist")
	})
	_, sink, _ := strings.Cut(headers["deltabridge"], "/")
	headers["deltabridge"], _, _ = strings.Cut(sink, " ")
	return headers
}

// predicts is what explain says that a sink is sent; false: nothing.
func (e explained) predicts(t *testing.T, sink string) (delivered, bool) {
	t.Helper()
	for _, s := range e.Sinks {
		if s.Name != sink {
			continue
		}
		if !s.Sent {
			return delivered{}, false
		}
		m := s.Message
		d := delivered{ID: m.ID, Place: m.Subject + m.Topic, Key: m.Key, Headers: map[string]string{}}
		if m.Partition != nil {
			d.Partition = *m.Partition
		}
		for _, h := range m.Headers {
			d.Headers[h.Name] = h.Value
		}
		if m.Limit == 0 || m.Size == 0 || m.Size > m.Limit || m.Unknown != "" || (m.Topic != "" && m.Partitions != 3) {
			t.Errorf("%s: size %d, limit %d, %d partitions; %s", m.ID, m.Size, m.Limit, m.Partitions, m.Unknown)
		}
		stable(d.Headers)
		return d, true
	}
	t.Fatalf("nothing is said of the sink %s", sink)
	return delivered{}, false
}

// delivered gives the messages of a stream by id.
func (js *jetStream) delivered(stream string) map[string]delivered {
	js.t.Helper()
	api, closeConn := js.api()
	defer closeConn()
	s, err := api.Stream(js.t.Context(), stream)
	if err != nil {
		js.t.Fatal(err)
	}
	all := map[string]delivered{}
	for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(js.t.Context(), seq)
		if err != nil {
			js.t.Fatal(err)
		}
		d := delivered{ID: m.Header.Get("ce-id"), Place: m.Subject, Headers: map[string]string{}}
		for name := range m.Header {
			switch name {
			case jetstream.SequenceHeader,
				jetstream.StreamHeader,
				jetstream.SubjectHeader,
				jetstream.TimeStampHeaer: // of the answer
			default:
				d.Headers[name] = m.Header[name][0]
			}
		}
		stable(d.Headers)
		id := path.Base(d.Headers["ce-source"]) + "/" + d.ID
		if !strings.HasPrefix(d.Headers[jetstream.MsgIDHeader], id+".") {
			js.t.Errorf("%s has no epoch: %q", d.ID, d.Headers[jetstream.MsgIDHeader])
		}
		d.Headers[jetstream.MsgIDHeader] = id // bridge explain knows no epoch
		all[d.ID] = d
	}
	return all
}

func deliveredToKafka(t *testing.T, addr, topic string) map[string]delivered {
	t.Helper()
	all := map[string]delivered{}
	for _, partition := range kafka.ReadAll(t, addr, topic) {
		for _, record := range partition {
			d := delivered{
				Place:     record.Topic,
				Key:       string(record.Key),
				Partition: int(record.Partition),
				Headers:   map[string]string{},
			}
			for _, h := range record.Headers {
				d.Headers[h.Key] = string(h.Value)
			}
			d.ID = d.Headers["ce_id"]
			stable(d.Headers)
			all[d.ID] = d
		}
	}
	return all
}

// rawConfigMap gives a ConfigMap's bytes as the API server sends them, in a file.
func rawConfigMap(t *testing.T, cs kubernetes.Interface, namespace, name string) (file string) {
	t.Helper()
	raw, err := cs.CoreV1().RESTClient().Get().Namespace(namespace).Resource("configmaps").Name(name).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), name+".json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// What `bridge explain` says is what `bridge run` then sends, to both brokers: of objects that are there, of an update
// that leaves a filter, and of a deletion.
func TestExplainIsWhatRunSends(t *testing.T) {
	t.Parallel()
	c, js, k := sharedCluster(t), startJetStream(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	topic := "explain-" + namespace
	dir := t.TempDir()
	text := fmt.Sprintf(`
watch:
  - {resources: [configmaps], namespaces: [%q], labelSelector: "test=explain"}
  - {resources: [secrets], namespaces: [%q]}
  - {resources: ["*.nothing.example.com"]}
sinks:
  - name: js
    filters: [{when: "object.metadata.name != 'left-out' && object.?data.?color.orValue('') != 'black'"}]
    enrich: {namespaceLabels: true}
    nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}
  - name: kafka
    filters: [{resources: [configmaps]}]
    kafka: {brokers: [%q], topic: %q, createTopics: {partitions: 3, replicationFactor: 1}}
`, namespace, namespace, js.url(), k.Addr(), topic)
	file := filepath.Join(dir, "bridge.yaml")

	labels := map[string]string{"test": "explain"}
	for _, name := range []string{"plain", "dotted.name", "left-out", "another", "one-more"} {
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Data:       map[string]string{"color": "gr\u00fcn"},
		}
		if _, err := cs.CoreV1().
			ConfigMaps(namespace).
			Create(t.Context(), cm, metav1.CreateOptions{FieldManager: "caf\u00e9"}); err != nil {
			t.Fatal(err)
		}
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "secret", Labels: labels},
		StringData: map[string]string{"password": "hunter2"},
	}
	if _, err := cs.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	unselected := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "unselected"}}
	if _, err := cs.CoreV1().ConfigMaps(namespace).Create(t.Context(), unselected, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	b := startBridgeIn(t, dir, c.Kubeconfig(), text)
	b.waitReady()
	var told []explained
	for _, name := range []string{"plain", "dotted.name", "left-out", "another", "one-more"} {
		told = append(told, explainFor(t, file, "configmaps", namespace+"/"+name))
	}
	told = append(told, explainFor(t, file, "secrets", "secret", "-n", namespace))
	if headers := told[0].Sinks[0].Message.Headers; !slices.ContainsFunc(headers, func(h header) bool {
		return h.Name == "ce-namespacelabels" && h.Value == "kubernetes.io/metadata.name="+namespace
	}) {
		t.Errorf("the labels of the namespace are missing: %v", headers)
	}
	if e := explainFor(
		t,
		file,
		"configmaps",
		namespace+"/unselected",
	); e.Watched || e.Sinks[0].Sent ||
		!strings.Contains(e.Watch[0].Why, "does not select it") {
		t.Errorf("what no watch entry selects: %+v", e)
	}

	before := rawConfigMap(t, cs, namespace, "plain")
	black := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "plain", Labels: labels},
		Data:       map[string]string{"color": "black"},
	}
	if _, err := cs.CoreV1().ConfigMaps(namespace).Update(t.Context(), black, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	update := explainFor(t, file, rawConfigMap(t, cs, namespace, "plain"), "--old", before)
	if update.Sinks[0].Operation != "left" || update.Sinks[1].Operation != "updated" || len(update.Notes) > 0 {
		t.Errorf("an update that leaves a filter: %+v", update)
	}
	told = append(told, update)
	deletion := explainFor(t, file, "configmaps", namespace+"/another", "--operation", "deleted")
	if err := cs.CoreV1().ConfigMaps(namespace).Delete(t.Context(), "another", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// Two entries select Secrets by different labels: the API server selects none, and the id of a deletion has no
	// resourceVersion.
	gone := explainFor(t, file, "secrets", namespace+"/secret", "--operation", "deleted")
	if err := cs.CoreV1().Secrets(namespace).Delete(t.Context(), "secret", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	var inStream, inTopic map[string]delivered
	eventually(t, 30*time.Second, func() error {
		inStream, inTopic = js.delivered("E2E"), deliveredToKafka(t, k.Addr(), topic)
		// Five of six objects, a leave, two deletions; five ConfigMaps, an update, a deletion; synced events of each
		// resource.
		if len(inStream) < 5+1+2+2 || len(inTopic) < 5+1+1+1 {
			return fmt.Errorf("%d in the stream, %d in the topic", len(inStream), len(inTopic))
		}
		return nil
	})
	foretold := 0
	for _, e := range told {
		for sink, all := range map[string]map[string]delivered{"js": inStream, "kafka": inTopic} {
			want, sent := e.predicts(t, sink)
			if !sent {
				continue
			}
			foretold++
			if diff := cmp.Diff(want, all[want.ID]); diff != "" {
				t.Errorf("%s: explained and sent:\n%s", sink, diff)
			}
		}
	}
	if foretold != 5+1+5+1 {
		t.Errorf("%d messages were foretold", foretold)
	}
	// A deletion is another revision than the last state: what explain knows of that is the id, where it has no
	// resourceVersion.
	wantGone, sentGone := gone.predicts(t, "js")
	gotGone := inStream[wantGone.ID]
	delete(wantGone.Headers, "ce-resourceversion")
	delete(gotGone.Headers, "ce-resourceversion")
	if diff := cmp.Diff(wantGone, gotGone); diff != "" || !sentGone {
		t.Errorf("the deletion of a Secret, explained and sent:\n%s", diff)
	}
	// The deletion is another revision than the last state, and under a selector its id has that of the deletion.
	want, sent := deletion.predicts(t, "kafka")
	found := false
	for id, d := range inTopic {
		if strings.HasSuffix(id, ".deleted") {
			found = d.Key == want.Key && d.Partition == want.Partition && d.Place == want.Place &&
				strings.Split(id, ".")[0] == strings.Split(want.ID, ".")[0]
		}
	}
	if !sent || !found || !strings.HasSuffix(want.ID, ".deleted") {
		t.Errorf("the deletion, explained as %v, is not in %v", want, inTopic)
	}
}
