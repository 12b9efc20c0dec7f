package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/kafka"
)

// TestALostDestination: a stream and a topic are deleted under the bridge, later purged, and then the topic is deleted
// while the bridge is stopped. What comes then arrives by itself, the stream that is created again is sent what exists,
// a topic that is created again is not (it has the name that it had), and a resync brings everything back, each object
// once and none in an older state.
func TestALostDestination(t *testing.T) {
	t.Parallel()
	c, js, k := sharedCluster(t), startJetStream(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	topic := "lost-" + namespace
	m := &latestStates{
		t:         t,
		c:         c,
		cs:        cs,
		namespace: namespace,
		dir:       t.TempDir(),
		config:    toBoth(namespace, js.url(), k.Addr(), topic),
	}
	m.start()
	change := func(round, from, to int) {
		t.Helper()
		for n := from; n < to; n++ {
			if err := oneLife(t.Context(), cs, namespace, fmt.Sprintf("c-%d", n), round, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	const objects = 20
	change(0, 0, objects)
	m.settle()
	api, closeConn := js.api()
	defer closeConn()
	purge := func() {
		s, err := api.Stream(t.Context(), "E2E")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for round, lose := range []func(){
		func() {
			if err := api.DeleteStream(t.Context(), "E2E"); err != nil {
				t.Fatal(err)
			}
			kafka.DeleteTopic(t, k.Addr(), topic)
		},
		func() {
			purge()
			kafka.Purge(t, k.Addr(), topic)
		},
		func() {
			m.b.stop()
			purge()
			kafka.DeleteTopic(t, k.Addr(), topic)
			m.start()
		},
	} {
		lose()
		before := len(configMapHistory(t, c, namespace))
		change(round+1, 0, 5)
		m.settle()
		changes := configMapHistory(t, c, namespace)[before:]
		if round == 0 { // a stream that is created again is another destination, which is sent what exists
			eventually(t, 20*time.Second, func() error {
				if n := len(js.read("E2E")) - len(notInitial(js.read("E2E"))); n < objects {
					return fmt.Errorf("%d of %d objects are in the new stream", n, objects)
				}
				return nil
			})
		}
		for broker, partitions := range map[string][][]received{"JetStream": {notInitial(js.read("E2E"))}, "Kafka": readKafka(t, k.Addr(), topic)} {
			judge(
				t,
				fmt.Sprintf("%s, round %d, what came after the loss", broker, round),
				changes,
				"configmaps/"+namespace+"/",
				partitions...)
		}
		m.resync()
		m.settle()
		judgeResync(t, "JetStream", objects, js.read("E2E"))
		judgeResync(t, "Kafka", objects, readKafka(t, k.Addr(), topic)...)
	}
	m.b.stop()
}

// notInitial gives the events that are not of an initial list.
func notInitial(events []received) (rest []received) {
	for _, r := range events {
		if r.attributes["initiallist"] != "true" {
			rest = append(rest, r)
		}
	}
	return rest
}

// judgeResync expects each object once among what was restated, behind its last change.
func judgeResync(t *testing.T, broker string, objects int, partitions ...[]received) {
	t.Helper()
	restated, last := map[string]int{}, map[string]int64{}
	for _, partition := range partitions {
		for _, r := range partition {
			if !r.object() {
				continue
			}
			if r.attributes["operation"] == "restated" {
				restated[r.subject()]++
			}
			at := revision(t, r.resourceVersion())
			if at < last[r.subject()] {
				t.Errorf("%s: %s at %d came after %d", broker, r.subject(), at, last[r.subject()])
			}
			last[r.subject()] = at
		}
	}
	for subject, n := range restated {
		if n != 1 {
			t.Errorf("%s: %s was restated %d times", broker, subject, n)
		}
	}
	if len(restated) != objects {
		t.Errorf("%s: %d objects were restated, want %d", broker, len(restated), objects)
	}
}
