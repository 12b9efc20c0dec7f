package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/twmb/franz-go/pkg/kgo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	natsgo "github.com/nats-io/nats.go"

	"github.com/deltabridge/deltabridge/docs/schemas"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/observe"
	"github.com/deltabridge/deltabridge/test/process"
)

// exampleConsumer is a program of examples/consumers.
type exampleConsumer struct {
	t     *testing.T
	name  string
	args  []string // to run
	show  []string // to print its state
	cmd   *exec.Cmd
	out   *observe.LogBuffer // of its present life
	said  string             // of its earlier lives
	ended chan error
}

func (c *exampleConsumer) start() {
	c.t.Helper()
	c.out, c.ended = &observe.LogBuffer{}, make(chan error, 1)
	c.cmd = exec.Command(c.args[0], c.args[1:]...)
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.SysProcAttr = c.out, c.out, process.Attr()
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	cmd, ended := c.cmd, c.ended
	go func() { ended <- cmd.Wait(); close(ended) }() // ends with the process, which end or the clean-up ends
}

// end ends it: by SIGKILL at any moment, by SIGTERM in good order.
func (c *exampleConsumer) end(how syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(how); err != nil {
		c.t.Fatalf("%s: %v\n%s", c.name, err, c.out)
	}
	select {
	case err := <-c.ended:
		if how == syscall.SIGTERM && err != nil {
			c.t.Errorf("%s ended with %v:\n%s", c.name, err, c.out)
		}
	case <-time.After(patience(20 * time.Second)):
		c.t.Errorf("%s did not end:\n%s", c.name, c.out)
	}
	c.said += c.out.String()
}

var (
	batchLine = regexp.MustCompile(`(?m)^\d+ messages, (\d+) of them repeated$`)
	skipLine  = regexp.MustCompile(`is skipped`)
)

// atWork waits for the first batch of its present life. Then it has been applied, and not been acknowledged yet, or
// just so.
func (c *exampleConsumer) atWork() {
	c.t.Helper()
	deadline := time.Now().Add(patience(time.Minute))
	for !batchLine.MatchString(c.out.String()) { // without a pause: it is to be met between two steps
		if time.Now().After(deadline) {
			c.t.Fatalf("%s does not work:\n%s", c.name, c.out)
		}
	}
}

// repeated is how many events it took for repetitions, over all its lives.
func (c *exampleConsumer) repeated() (sum int) {
	for _, m := range batchLine.FindAllStringSubmatch(c.said, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			c.t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// known is an object as the examples know it.
type known struct {
	Object          string
	UID             string
	ResourceVersion int64
	Deleted         bool
	Changes         int
	Data            *struct {
		Metadata struct{ ResourceVersion string }
	}
}

func (c *exampleConsumer) state() (objects map[string]known) {
	c.t.Helper()
	var errs bytes.Buffer
	cmd := exec.Command(c.show[0], c.show[1:]...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("%s: %v: %s", c.name, err, errs.String())
	}
	objects = map[string]known{}
	for line := range bytes.Lines(out) {
		var o known
		if err := json.Unmarshal(line, &o); err != nil {
			c.t.Fatalf("%s: %v: %s", c.name, err, line)
		}
		objects[strings.TrimPrefix(o.Object, "/clusters/e2e/")] = o
	}
	return objects
}

// check compares what it knows with etcd's history: each revision is one change that it counted once, and the last one
// is the state.
func (c *exampleConsumer) check(truth []change) error {
	want := map[string]known{}
	for _, revision := range truth {
		rv, err := strconv.ParseInt(revision.rv, 10, 64)
		if err != nil {
			return err
		}
		o := want[revision.subject]
		o.Changes++
		o.ResourceVersion, o.Deleted = rv, revision.deleted
		want[revision.subject] = o
	}
	got := map[string]known{}
	for subject, o := range c.state() {
		if o.Deleted == (o.Data != nil) ||
			o.Data != nil && o.Data.Metadata.ResourceVersion != strconv.FormatInt(o.ResourceVersion, 10) {
			return fmt.Errorf("%s: its data is that of another state: %+v", subject, o)
		}
		got[subject] = known{ResourceVersion: o.ResourceVersion, Deleted: o.Deleted, Changes: o.Changes}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return errors.New(tail(diff, 40))
	}
	return nil
}

// goExample builds one of the examples.
func goExample(t *testing.T, name string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), name)
	out, err := exec.Command("go", "run", "-exec=cp", "github.com/deltabridge/deltabridge/examples/consumers/"+name, binary).
		CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

// TestExampleConsumers: the examples are killed in the middle of their work, again and again, and are sent repetitions,
// tombstones and control events. Each counts each change once, and knows the current state in the end.
func TestExampleConsumers(t *testing.T) {
	t.Parallel()
	c, js, k := sharedCluster(t), startJetStream(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	topic := "consumers-" + namespace
	dir := t.TempDir()
	b := startBridgeIn(
		t,
		dir,
		c.Kubeconfig(),
		strings.Replace(toBoth(namespace, js.url(), k.Addr(), topic), "createTopics:", "tombstones: true, createTopics:", 1),
	)
	b.waitReady()

	file := func(name string) string { return filepath.Join(dir, name) }
	fromJetStream, fromKafka := goExample(t, "jetstream"), goExample(t, "kafka")
	consumers := []*exampleConsumer{
		{
			name: "Go, JetStream",
			args: []string{fromJetStream, "-nats", js.url(), "-stream", "E2E", "-ack-wait", "2s", "-state", file("js.db")},
			show: []string{fromJetStream, "-show", "-state", file("js.db")},
		},
		{
			name: "Go, Kafka",
			args: []string{
				fromKafka,
				"-brokers",
				k.Addr(),
				"-topics",
				topic,
				"-group",
				"go-" + topic,
				"-state",
				file("kafka.db"),
			},
			show: []string{fromKafka, "-show", "-state", file("kafka.db")},
		},
	}
	t.Run("python", func(t *testing.T) {
		python := pythonForExamples(t)
		script := func(name string, args ...string) []string {
			return append([]string{python, filepath.Join(pythonExamples, name)}, args...)
		}
		consumers = append(
			consumers,
			&exampleConsumer{
				name: "Python, JetStream",
				args: script(
					"from_jetstream.py",
					"--nats",
					js.url(),
					"--stream",
					"E2E",
					"--ack-wait",
					"2",
					"--state",
					file("js.sqlite"),
				),
				show: script("state.py", file("js.sqlite")),
			},
			&exampleConsumer{
				name: "Python, Kafka",
				args: script(
					"from_kafka.py",
					"--brokers",
					k.Addr(),
					"--topics",
					topic,
					"--group",
					"python-"+topic,
					"--state",
					file("kafka.sqlite"),
				),
				show: script("state.py", file("kafka.sqlite")),
			},
		)
	})
	for _, consumer := range consumers {
		consumer.t = t
		consumer.start()
		t.Cleanup(func() {
			_ = consumer.cmd.Process.Kill() // if it has ended, that is as well
			if t.Failed() {
				t.Logf("%s:\n%s%s", consumer.name, consumer.said, consumer.out)
			}
		})
	}
	for round := range 2 {
		if err := churn(t.Context(), cs, namespace, "round-"+itoa(round), 60, 3); err != nil {
			t.Fatal(err)
		}
		for _, consumer := range consumers {
			if round > 0 && consumer.name == "Go, Kafka" {
				continue // the group waits six seconds for a member that is gone: once is enough
			}
			consumer.atWork()
			consumer.end(syscall.SIGKILL)
			consumer.start()
		}
	}
	truth := configMapHistory(t, c, namespace)
	settled(t, b, len(truth), "jetstream", "kafka")
	repeatAndGap(t, js, k.Addr(), topic)
	for _, consumer := range consumers {
		gaps := 1
		if strings.HasSuffix(consumer.name, "Kafka") {
			gaps = 3 // one at the end of each partition
		}
		eventually(t, time.Minute, func() error {
			if n := strings.Count(consumer.out.String(), `"message":"made up"`); n < gaps {
				return fmt.Errorf("%s has seen %d of %d gaps", consumer.name, n, gaps)
			}
			return nil
		})
		consumer.end(syscall.SIGTERM)
		if err := consumer.check(truth); err != nil {
			t.Errorf("%s (-etcd +consumer):\n%v", consumer.name, err)
		}
		n := consumer.repeated()
		t.Logf("%s recognized %d repetitions", consumer.name, n)
		if n < 20 || !strings.Contains(consumer.said, "synced: {") || skipLine.MatchString(consumer.said) {
			t.Errorf("%s took %d events for repetitions:\n%s", consumer.name, n, consumer.said)
		}
	}
	healed(t, js, b, filepath.Join(dir, "bridge.yaml"), consumers, func() []change {
		if err := churn(t.Context(), cs, namespace, "round-0", 20, 1); err != nil { // objects that exist, and others
			t.Fatal(err)
		}
		for _, name := range []string{"round-1-1", "round-1-3"} {
			if err := cs.CoreV1().ConfigMaps(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		return configMapHistory(t, c, namespace)
	})
	validStream(t, js.read("E2E"))
	for _, partition := range readKafka(t, k.Addr(), topic) {
		validStream(t, partition)
	}
}

// healed takes changes out of the stream, asks for a resync, and expects those who read it in its order to know the
// current state.
func healed(
	t *testing.T,
	js *jetStream,
	b *bridge,
	config string,
	consumers []*exampleConsumer,
	changes func() []change,
) {
	t.Helper()
	truth := changes()
	settled(t, b, len(truth), "jetstream")
	api, closeConn := js.api()
	defer closeConn()
	stream, err := api.Stream(t.Context(), "E2E")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, errs, err := runBridge(t, "resync", "-c", config, "--sink", "jetstream"); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	want := map[string]int64{}
	for _, revision := range truth {
		if want[revision.subject], err = strconv.ParseInt(revision.rv, 10, 64); err != nil {
			t.Fatal(err)
		}
		if revision.deleted {
			delete(want, revision.subject)
		}
	}
	for _, consumer := range consumers {
		if strings.HasSuffix(consumer.name, "Kafka") {
			continue
		}
		consumer.start()
		eventually(t, time.Minute, func() error {
			if !strings.Contains(consumer.out.String(), `"resync":true`) {
				return fmt.Errorf("%s has not seen the end of the resync", consumer.name)
			}
			return nil
		})
		consumer.end(syscall.SIGTERM)
		got := map[string]int64{}
		for subject, o := range consumer.state() {
			if !o.Deleted {
				got[subject] = o.ResourceVersion
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || strings.Count(consumer.out.String(), "gone: ") != 2 {
			t.Errorf("%s, what exists after a resync (-etcd +consumer):\n%s\n%s", consumer.name, tail(diff, 40), consumer.out)
		}
	}
}

// repeatAndGap appends to the stream and to each partition of the topic some events that they hold already, as a bridge
// does that was killed and cannot read back, and then a gap.
func repeatAndGap(t *testing.T, js *jetStream, kafkaAddr, topic string) {
	t.Helper()
	gap := func(n int) *event.Message {
		info := &event.GapInfo{Resource: "configmaps", From: "1", To: itoa(n), Reason: event.ReasonRelist, Message: "made up"}
		m, err := (&event.Encoder{Cluster: "e2e"}).Encode(event.Event{
			Type:     event.Gap,
			Time:     time.Now(),
			GapInfo:  info,
			Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	api, closeConn := js.api()
	defer closeConn()
	stream, err := api.Stream(t.Context(), "E2E")
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := consumer.Fetch(25)
	if err != nil {
		t.Fatal(err)
	}
	var again []*natsgo.Msg
	for m := range batch.Messages() {
		headers := natsgo.Header{}
		for name, values := range m.Headers() {
			if strings.HasPrefix(name, "ce-") {
				headers[name] = values
			}
		}
		again = append(again, &natsgo.Msg{Subject: m.Subject(), Header: headers, Data: m.Data()})
	}
	last := &natsgo.Msg{Subject: "k8s.e2e.core.configmaps._._gap", Header: natsgo.Header{}, Data: gap(1).Data}
	for name, value := range gap(1).Attributes {
		last.Header["ce-"+name] = []string{value}
	}
	for _, m := range append(again, last) {
		if _, err := api.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}

	client, err := kgo.NewClient(kgo.SeedBrokers(kafkaAddr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for n, records := range kafka.ReadAll(t, kafkaAddr, topic) {
		last := &kgo.Record{Topic: topic, Partition: int32(n), Key: []byte("configmaps"), Value: gap(n).Data}
		for name, value := range gap(n).Attributes {
			last.Headers = append(last.Headers, kgo.RecordHeader{Key: "ce_" + name, Value: []byte(value)})
		}
		var again []*kgo.Record
		for _, r := range records[:min(20, len(records))] {
			again = append(
				again,
				&kgo.Record{Topic: topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: r.Headers},
			)
		}
		if err := client.ProduceSync(t.Context(), append(again, last)...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// validStream checks each event by its schemas: that of its data, and that of the structured form.
func validStream(t *testing.T, events []received) {
	t.Helper()
	compiled := map[string]*jsonschema.Schema{}
	for _, name := range schemas.Names() {
		text, _ := schemas.Get(name)
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		compiler := jsonschema.NewCompiler()
		compiler.AssertFormat()
		if err := compiler.AddResource(name, document); err != nil {
			t.Fatal(err)
		}
		if compiled[name], err = compiler.Compile(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range events {
		if r.data == nil {
			continue // a tombstone
		}
		attributes := map[string]string{"datacontenttype": "application/json"} // on Kafka its header has another name
		maps.Copy(attributes, r.attributes)
		whole := event.Received{Attributes: attributes, Data: r.data}
		data := "object"
		if !r.object() {
			data = strings.TrimPrefix(r.attributes["type"], "dev.deltabridge.")
		}
		for name, text := range map[string][]byte{data: r.data, "cloudevent": whole.AppendStructured(nil)} {
			document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
			if err == nil {
				err = compiled[name].Validate(document)
			}
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, text)
			}
		}
	}
}
