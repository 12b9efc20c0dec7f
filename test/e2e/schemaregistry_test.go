package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/process"
	"github.com/deltabridge/deltabridge/test/registry"
)

// TestSchemaInHeader: Confluent's deserializer finds the schema of each record of a sink with the format json in its
// header, and accepts its value, also those of control events. The bridge is killed in the middle.
func TestSchemaInHeader(t *testing.T) {
	t.Parallel()
	python := pythonWith(t, "testdata/schemaregistry/requirements.txt")
	c, k, schemas := sharedCluster(t), kafka.ForTest(t), registry.NewForTest(t)
	schemas.Start(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	topic := "schema-" + namespace
	config, dir := fmt.Sprintf(`
watch: [{resources: [configmaps], namespaces: [%s]}]
sinks:
  - name: kafka
    content: structured
    progress: 1s
    kafka:
      brokers: [%q]
      topic: %q
      tombstones: true
      createTopics: {partitions: 3, config: {min.compaction.lag.ms: 86400000}}
      schemaRegistry: {url: %q, format: json}
`, namespace, k.Addr(), topic, schemas.URL()), t.TempDir()
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	changes := startChanges(t, cs, namespace, 30, 60)
	pause(t, 3*time.Second)
	b.kill()
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	pause(t, 2*time.Second)
	changes.stop()
	truth := upTo(t, b, c, namespace)
	b.waitCommitted(truth, "kafka")
	b.stop()

	records, tombstones := deserialized(t, python, k.Addr(), schemas.URL(), topic)
	judge(t, "Kafka", truth, "configmaps/"+namespace+"/", records...)
	deletions, types := 0, map[string]int{}
	for _, c := range truth {
		if c.deleted {
			deletions++
		}
	}
	for _, partition := range records {
		for _, r := range partition {
			types[r.attributes["type"]]++
		}
	}
	if tombstones != deletions || types["dev.deltabridge.synced"] == 0 || types["dev.deltabridge.progress"] == 0 {
		t.Errorf("%d tombstones of %d deletions, and the types are %v", tombstones, deletions, types)
	}
}

// deserialized returns what Confluent's deserializer makes of the values in a topic, by partition, and the number of
// tombstones.
func deserialized(t *testing.T, python, broker, url, topic string) (partitions [][]received, tombstones int) {
	t.Helper()
	cmd := exec.Command(python, "testdata/schemaregistry/consumer.py", broker, url, topic)
	var errs bytes.Buffer
	cmd.Stderr, cmd.SysProcAttr = &errs, process.Attr()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	structured := []kgo.RecordHeader{{Key: "content-type", Value: []byte("application/cloudevents+json")}}
	for line := range bytes.Lines(out) {
		var record struct {
			Partition int
			Event     json.RawMessage
		}
		if err := json.Unmarshal(line, &record); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		for len(partitions) <= record.Partition {
			partitions = append(partitions, nil)
		}
		if string(record.Event) == "null" {
			tombstones++
			continue
		}
		r := receivedFrom(t, &kgo.Record{Partition: int32(record.Partition), Value: record.Event, Headers: structured})
		partitions[record.Partition] = append(partitions[record.Partition], r)
	}
	return partitions, tombstones
}
