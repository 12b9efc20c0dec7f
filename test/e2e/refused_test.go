package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltabridge/deltabridge/test/kafka"
)

// TestRefusedEvents: events that Kafka never takes, for the names of their topics cannot be. A gap event with the
// reason "refused" takes the place of each, or the event is a dead letter as well; all others arrive, once, also over a
// kill -9.
func TestRefusedEvents(t *testing.T) {
	t.Parallel()
	c, k := sharedCluster(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	topic := func(sink string) string { return "refused." + sink + "." + namespace }
	config := fmt.Sprintf("watch: [{resources: [configmaps], namespaces: [%s]}]\nsinks:\n", namespace)
	letters := map[string]string{"gaps": "", "letters": "    deadLetter: {topic: " + topic("dead") + "}\n"}
	for sink, more := range letters {
		config += fmt.Sprintf(
			"  - name: %s\n%s    kafka: {brokers: [%q], topic: \"%s.{name}\", createTopics: {partitions: 1, replicationFactor: 1}}\n",
			sink,
			more,
			k.Addr(),
			topic(sink),
		)
	}
	dir := t.TempDir()
	b := startBridgeIn(t, dir, c.Kubeconfig(), config)
	b.waitReady()
	impossible := strings.Repeat("a", 253)
	life := func(names ...string) {
		for _, name := range names {
			if err := oneLife(t.Context(), cs, namespace, name, 2, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	life("fine", impossible, "also")
	truth := upTo(t, b, c, namespace)
	b.waitCommitted(truth, "gaps", "letters")
	b.kill()
	b = startBridgeIn(t, dir, c.Kubeconfig(), config)
	life("fine")
	if err := cs.CoreV1().ConfigMaps(namespace).Delete(t.Context(), impossible, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	truth = upTo(t, b, c, namespace)
	b.stop()
	kept := deadLetters(t, k.Addr(), topic("dead"), "refused")
	for sink, more := range letters {
		var events []received
		missing := map[string]change{}
		for _, c := range truth {
			missing[c.rv] = c
		}
		for _, name := range []string{"fine", "also", "_gap"} {
			part := readKafka(t, k.Addr(), topic(sink)+"."+name)
			once(t, sink, part...)
			events = append(events, part[0]...)
		}
		for _, r := range events {
			var info struct{ Reason, Event, Subject, From, DeadLetter string }
			switch {
			case r.object():
				delete(missing, r.resourceVersion())
			case r.attributes["type"] == "dev.deltabridge.gap":
				err := json.Unmarshal(r.data, &info)
				if err != nil || info.Reason != "refused" || !strings.HasSuffix(info.Subject, impossible) ||
					(info.DeadLetter != "") != (more != "") {
					t.Errorf("%s: %v, %s", sink, err, r.data)
				}
				if more != "" && kept[info.Event].id() == "" {
					t.Errorf("%s: %s is not among the dead letters", sink, info.Event)
				}
				delete(missing, info.From)
			}
		}
		for _, c := range missing {
			t.Errorf("%s: of %s@%s there is neither the event nor a gap", sink, c.subject, c.rv)
		}
	}
	if len(kept) != 4 {
		t.Errorf("%d dead letters, want 4: %v", len(kept), kept)
	}
}
