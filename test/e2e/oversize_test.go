package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/test/kafka"
)

const (
	smallLimit = 64 << 10 // of a message, in bytes, at both brokers
	largeLimit = 4 << 20
)

// oversize is the sinks of TestOversize: for each mode one to a stream and one to a topic, and one to a topic that
// takes everything.
type oversize struct {
	t         *testing.T
	namespace string
	js        *jetStream
	kafka     string // address
	dir       string // of the bridge
	reference map[string][]byte
	hidden    *hidden
}

func (o *oversize) topic(name string) string { return "oversize-" + name + "-" + o.namespace }

func (o *oversize) config() string {
	var text strings.Builder
	fmt.Fprintf(
		&text,
		"watch: [{resources: [configmaps, secrets], namespaces: [%s]}]\nredact: [{resources: [configmaps], paths: [data.token]}]\nsinks:\n",
		o.namespace,
	)
	sink := func(name, keys, destination string) {
		fmt.Fprintf(&text, "  - name: %s\n%s    %s\n", name, keys, destination)
	}
	stream := func(name, keys string) {
		sink(
			name,
			keys,
			fmt.Sprintf(
				"nats: {url: %q, subject: %q, stream: {name: %q, create: true}}",
				o.js.url(),
				name+".{resource}.{namespace}.{name}",
				name,
			),
		)
	}
	topic := func(name, keys, more string) {
		sink(name, keys, fmt.Sprintf("kafka: {brokers: [%q], topic: %q%s}", o.kafka, o.topic(name), more))
	}
	topic("reference", "", "")
	stream("n-metadata", "")
	topic("k-metadata", "    content: structured\n", ", tombstones: true")
	stream("n-claim", "    oversize: claimCheck\n    claimCheck: {bucket: claims, create: true, ttl: 1h}\n")
	topic(
		"k-claim",
		"    payload: change\n    content: structured\n    oversize: claimCheck\n    claimCheck: {bucket: claims, create: true, nats: {url: \""+o.js.url()+"\"}}\n",
		"",
	)
	stream("n-letter", "    oversize: deadLetter\n    deadLetter: {subject: dead, stream: DEAD}\n")
	topic("k-letter", "    oversize: deadLetter\n    deadLetter: {topic: "+o.topic("dead")+"}\n", "")
	stream("n-gap", "    oversize: gap\n")
	topic("k-gap", "    oversize: gap\n", "")
	return text.String()
}

// read gives what a sink has delivered, by partition, in order. Nothing may be there twice.
func (o *oversize) read(sink string) [][]received {
	o.t.Helper()
	partitions := [][]received{nil}
	if strings.HasPrefix(sink, "n-") {
		partitions[0] = o.js.read(sink)
	} else {
		partitions = readKafka(o.t, o.kafka, o.topic(sink))
	}
	once(o.t, sink, partitions...)
	return partitions
}

// load makes ConfigMaps small, large, large and small again, and deletes every second one while it is large; and a
// Secret that is large.
func (o *oversize) load(ctx context.Context, cs kubernetes.Interface, prefix string, count int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	group.Go(func() error {
		values := map[string]string{}
		for n := range 2000 {
			values["key-"+itoa(n)] = string(o.hidden.forms[0])
		}
		_, err := cs.CoreV1().
			Secrets(o.namespace).
			Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: prefix}, StringData: values}, metav1.CreateOptions{})
		return err
	})
	for n := range count {
		group.Go(func() error {
			api := cs.CoreV1().ConfigMaps(o.namespace)
			cm := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", prefix, n)},
				Data:       map[string]string{"token": string(o.hidden.forms[0])},
			}
			if _, err := api.Create(ctx, cm, metav1.CreateOptions{}); err != nil {
				return err
			}
			for _, large := range []bool{true, true, false, true} {
				cm.Data["a"] = rand.Text()
				if large {
					noise := make([]byte, smallLimit) // twice as much in hex, and nothing for a compression
					_, _ = rand.Read(noise)           // never fails
					cm.Data["a"] = hex.EncodeToString(noise)
				}
				if _, err := api.Update(ctx, cm, metav1.UpdateOptions{}); err != nil {
					return err
				}
			}
			if n%2 == 0 {
				return api.Delete(ctx, cm.Name, metav1.DeleteOptions{})
			}
			return nil
		})
	}
	return group.Wait()
}

// deadLetters returns the events in a topic of dead letters, by id. A kill can repeat some.
func deadLetters(t *testing.T, addr, topic, reason string) map[string]received {
	t.Helper()
	byID := map[string]received{}
	for _, partition := range readKafka(t, addr, topic) {
		for _, r := range partition {
			if r.attributes["refused"] != reason || r.attributes["refusedbecause"] == "" {
				t.Errorf("%s: %v", topic, r.attributes)
			}
			byID[r.id()] = r
		}
	}
	return byID
}

// whole fails the test if data is not that of the event, as the sink that takes everything has it.
func (o *oversize) whole(sink string, r received, data []byte) {
	o.t.Helper()
	if sink == "k-claim" {
		var change struct{ Object json.RawMessage }
		if err := json.Unmarshal(data, &change); err != nil {
			o.t.Error(err)
		}
		data = change.Object
	}
	if want := o.reference[r.resourceVersion()]; want == nil || !bytes.Equal(data, want) {
		o.t.Errorf("%s: the data of %s is not the object", sink, r.id())
	}
}

// claim reads the data that an event refers to.
func (o *oversize) claim(store jetstream.ObjectStore, r received) []byte {
	o.t.Helper()
	name, ok := strings.CutPrefix(r.attributes["dataref"], "nats-object://claims/")
	data, err := store.GetBytes(o.t.Context(), name)
	sum := sha256.Sum256(data)
	if !ok || err != nil || r.attributes["datadigest"] != "sha256:"+hex.EncodeToString(sum[:]) ||
		r.attributes["datasize"] != itoa(len(data)) {
		o.t.Errorf("%s: %v, %d bytes, %v", r.attributes["dataref"], err, len(data), r.attributes)
	}
	return data
}

// reduced checks the events of a sink that has each in some form: all of them, in order, those that are too large with
// their metadata.
func (o *oversize) reduced(sink string, truth []change, store jetstream.ObjectStore) {
	o.t.Helper()
	partitions := o.read(sink)
	judge(o.t, sink, truth, "configmaps/"+o.namespace+"/", partitions...)
	omitted, deletions, tombstones := 0, 0, 0
	for _, partition := range partitions {
		for i, r := range partition {
			switch {
			case r.attributes["type"] == "":
				tombstones++
				if i == 0 || partition[i-1].attributes["operation"] != "deleted" {
					o.t.Errorf("%s: a tombstone that does not follow its deletion, at %d of %d", sink, i, len(partition))
				}
			case r.attributes["type"] == "dev.deltabridge.gap":
				o.t.Errorf("%s: %s", sink, r.data)
			case !r.object():
			case r.attributes["dataomitted"] == "oversize":
				omitted++
				if r.attributes["operation"] == "deleted" {
					deletions++
				}
				if store != nil {
					o.whole(sink, r, o.claim(store, r))
				}
				var data struct {
					Metadata *metav1.ObjectMeta
					Object   *metav1.PartialObjectMetadata
					Data     any
				}
				err := json.Unmarshal(r.data, &data)
				if data.Object != nil {
					data.Metadata = &data.Object.ObjectMeta
				}
				if err != nil || data.Metadata == nil || data.Metadata.Name != r.attributes["name"] || data.Data != nil ||
					len(r.data) > 5000 {
					o.t.Errorf("%s: %v, %.300s", sink, err, r.data)
				}
			default:
				if len(r.data) < smallLimit {
					o.whole(sink, r, r.data)
				}
			}
		}
	}
	if omitted < 20 || deletions < 3 || sink == "k-metadata" && tombstones < 3 {
		o.t.Errorf("%s: %d events without their data, %d of deletions, %d tombstones", sink, omitted, deletions, tombstones)
	}
	o.t.Logf("%s: %d events without their data, %d of deletions", sink, omitted, deletions)
}

// gaps checks the events of a sink in which gap events stand for those that are too large, and gives those, by id.
func (o *oversize) gaps(sink string, truth []change, letters bool) map[string]bool {
	o.t.Helper()
	seen, ids := map[string]bool{}, map[string]bool{}
	for _, partition := range o.read(sink) {
		for _, r := range partition {
			seen[r.resourceVersion()] = true
			var info struct{ Event, Subject, Operation, DeadLetter, Reason, From string }
			if r.attributes["type"] != "dev.deltabridge.gap" {
				continue
			}
			if err := json.Unmarshal(
				r.data,
				&info,
			); err != nil || info.Reason != "oversize" || info.Event == "" ||
				(info.DeadLetter != "") != letters ||
				!strings.Contains(info.Subject, o.namespace) {
				o.t.Errorf("%s: %v, %s", sink, err, r.data)
			}
			ids[info.Event], seen[info.From] = true, true
		}
	}
	for _, c := range truth {
		if !seen[c.rv] {
			o.t.Errorf("%s: of %s@%s there is neither the event nor a gap", sink, c.subject, c.rv)
		}
	}
	if len(ids) < 20 {
		o.t.Errorf("%s: %d gaps", sink, len(ids))
	}
	return ids
}

// TestOversize: objects over both brokers' limits in each mode, with a kill -9 in between. Claims and dead letters are
// read back byte for byte, and nothing of all that holds a secret value. No subject takes a dead letter above NATS's
// max_payload.
func TestOversize(t *testing.T) {
	t.Parallel()
	c, k, js := sharedCluster(t), kafka.ForTest(t), newJetStream(t)
	js.more = []string{fmt.Sprint("max_payload: ", smallLimit)}
	js.start()
	cs := clientset(t, c)
	o := &oversize{
		t:         t,
		namespace: newNamespace(t, cs),
		js:        js,
		kafka:     k.Addr(),
		dir:       t.TempDir(),
		reference: map[string][]byte{},
		hidden:    &hidden{t: t},
	}
	o.hidden.value()
	for name, limit := range map[string]int{"reference": largeLimit, "dead": largeLimit, "k-metadata": smallLimit, "k-claim": smallLimit, "k-letter": smallLimit, "k-gap": smallLimit} {
		kafka.CreateTopic(t, k.Addr(), o.topic(name), 2, map[string]string{"max.message.bytes": itoa(limit)})
	}
	b := startBridgeIn(t, o.dir, c.Kubeconfig(), o.config())
	b.waitReady()
	began := time.Now()
	phase := func(name string) { t.Logf("%s after %s", name, time.Since(began).Round(time.Millisecond)) }
	loaded := make(chan error, 1)
	go func() { loaded <- o.load(t.Context(), cs, "a", 7) }() // received below
	eventually(t, 30*time.Second, func() error {
		if b.metric("deltabridge_refusals_total") < 40 {
			return errors.New("too little was refused for a kill to be in between")
		}
		return nil
	})
	b.kill()
	phase("killed")
	o.hidden.output(b)
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	b = startBridgeIn(t, o.dir, c.Kubeconfig(), o.config())
	b.waitReady()
	truth := configMapHistory(t, c, o.namespace)
	eventually(t, time.Minute, func() error { return b.reached(truth) })
	phase("everything delivered")

	for _, partition := range o.read("reference") {
		for _, r := range partition {
			o.reference[r.resourceVersion()] = r.data
		}
	}
	api, closeConn := js.api()
	store, err := api.ObjectStore(t.Context(), "claims")
	if err != nil {
		t.Fatal(err)
	}
	for _, broker := range []string{"n", "k"} {
		o.reduced(broker+"-metadata", truth, nil)
		o.reduced(broker+"-claim", truth, store)
		o.gaps(broker+"-gap", truth, false)
	}
	kept := deadLetters(t, k.Addr(), o.topic("dead"), "oversize")
	for id := range o.gaps("k-letter", truth, true) {
		o.whole("dead", kept[id], kept[id].data)
	}
	o.gaps("n-letter", truth, false)
	if b.metric("deltabridge_refusals_total", "sink=n-letter", "outcome=lost") < 1 {
		t.Error("an event above max_payload was kept")
	}
	closeConn()
	phase("streams and topics read")
	o.secrets(b, kept)
	phase("files searched")

	b.stop()
	o.hidden.output(b)
}

// secrets looks for values in files, claims and pages, and that fingerprints are there in their place.
func (o *oversize) secrets(b *bridge, letters map[string]received) {
	o.t.Helper()
	o.hidden.process(b)
	if found := append(o.hidden.files(o.dir), o.hidden.files(o.js.dir)...); len(found) > 0 {
		o.t.Errorf("values are in %v", found)
	}
	secrets := 0
	for id, r := range letters {
		if o.hidden.in(r.data) {
			o.t.Errorf("a value is in the dead letter %s", id)
		}
		if strings.HasPrefix(r.attributes["subject"], "secrets/") && bytes.Contains(r.data, []byte("hmac-sha256:")) {
			secrets++
		}
	}
	if secrets == 0 {
		o.t.Error("there is no Secret among the dead letters")
	}
}
