package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/pkg/checkpoint"
)

// epochs is a bridge whose stream remembers all ids, and one ConfigMap.
type epochs struct {
	t         *testing.T
	js        *jetStream
	cs        kubernetes.Interface
	namespace string
	dir       string
	start     func(resource, when, overflow string) *bridge // and waits until it is ready
}

func newEpochs(t *testing.T) *epochs {
	c := sharedCluster(t)
	e := &epochs{t: t, js: startJetStream(t), cs: clientset(t, c), dir: t.TempDir()}
	e.namespace = newNamespace(t, e.cs)
	e.start = func(resource, when, overflow string) *bridge {
		t.Helper()
		b := startBridgeIn(t, e.dir, c.Kubeconfig(), fmt.Sprintf(`
watch: [{resources: [%s], namespaces: [%s]}]
sinks:
  - name: jetstream
    filters: [{when: %q}]
    buffer: {overflow: %s}
    nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}
`, resource, e.namespace, when, overflow, e.js.url()))
		b.waitReady()
		return b
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Data: map[string]string{"color": "blue"}}
	if _, err := e.cs.CoreV1().ConfigMaps(e.namespace).Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return e
}

// sent waits until the last event of the ConfigMap is want: its operation and what its data has to contain.
func (e *epochs) sent(want, data string) {
	e.t.Helper()
	eventually(e.t, 20*time.Second, func() error {
		var all []string
		last := received{}
		for _, r := range e.js.read("E2E") {
			if r.object() && r.attributes["name"] == "x" {
				all, last = append(all, r.attributes["operation"]+" "+r.id()), r
			}
		}
		if last.attributes["operation"] != want || !strings.Contains(string(last.data), data) {
			return fmt.Errorf("the last event is not %s with %s: %q", want, data, all)
		}
		return nil
	})
}

// paintRed changes the ConfigMap, waits until that is sent, and returns the new state.
func (e *epochs) paintRed() *corev1.ConfigMap {
	e.t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Data: map[string]string{"color": "red"}}
	cm, err := e.cs.CoreV1().ConfigMaps(e.namespace).Update(e.t.Context(), cm, metav1.UpdateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	e.sent("updated", "red")
	return cm
}

// committed reports whether the checkpoint of a killed bridge has the state of an object.
func (e *epochs) committed(cm *corev1.ConfigMap) bool {
	e.t.Helper()
	summary, err := checkpoint.Peek(filepath.Join(e.dir, "state"))
	if err != nil || len(summary.States) != 1 {
		e.t.Fatal(summary, err)
	}
	order, err := resourceversion.CompareResourceVersion(summary.States[0].ResourceVersion, cm.ResourceVersion)
	if err != nil {
		e.t.Fatal(err)
	}
	return order >= 0
}

// TestEpochsOfLossySinks: after a kill, what a queue dropped or merged can be sent behind newer events. These then have
// to be stored again, so they need another epoch.
func TestEpochsOfLossySinks(t *testing.T) {
	t.Parallel()
	for overflow, changes := range map[string]bool{"block": false, "compact": true, "drop-oldest": true} {
		t.Run(overflow, func(t *testing.T) {
			e := newEpochs(t)
			b := e.start("configmaps", "true", overflow)
			e.sent("added", "blue")
			b.stop()
			b = e.start("configmaps", "true", overflow)
			e.paintRed()
			b.stop()
			var epochs []string
			for _, r := range e.js.read("E2E") {
				if r.object() && r.attributes["name"] == "x" {
					epochs = append(epochs, strings.TrimPrefix(r.messageID, "e2e/"+r.id()+"."))
				}
			}
			if len(epochs) != 2 || epochs[0] == "" || (epochs[0] != epochs[1]) != changes {
				t.Errorf("the epochs are %q", epochs)
			}
		})
	}
}

// TestAnotherFilterAfterAKill: what was sent since the last commit is found in the stream by a process with another
// filter. It counts as sent: if it passes that filter, nothing follows it, and otherwise a leave does.
func TestAnotherFilterAfterAKill(t *testing.T) {
	t.Parallel()
	for _, color := range []string{"red", "blue"} {
		t.Run(color, func(t *testing.T) {
			e := newEpochs(t)
			b := e.start("configmaps", "true", "block")
			e.sent("added", "blue")
			b.waitCommits()
			red := e.paintRed()
			b.kill()
			want := []string{"added blue", "updated red"}
			switch committed := e.committed(red); {
			case color == "red":
			case committed: // between the change and the kill: the last state that passed is in the checkpoint
				want = append(want, "deleted red")
			default:
				want = append(want, "deleted blue")
			}
			b = e.start("configmaps", fmt.Sprintf("object.data.color == '%s'", color), "block")
			sent := func() (got []string) {
				for _, r := range e.js.read("E2E") {
					if r.object() && r.attributes["name"] == "x" {
						painted := map[bool]string{true: "red", false: "blue"}[strings.Contains(string(r.data), "red")]
						got = append(got, r.attributes["operation"]+" "+painted)
					}
				}
				return got
			}
			eventually(t, 20*time.Second, func() error {
				if got := sent(); len(got) < len(want) {
					return fmt.Errorf("%q", got)
				}
				return nil
			})
			pause(t, 2*time.Second) // for what may follow
			b.stop()
			if diff := cmp.Diff(want, sent()); diff != "" {
				t.Errorf("the events of the object (-want +got):\n%s", diff)
			}
		})
	}
}

// TestALostCheckpointAfterALeave: the initial list that follows has the ids of events from before the leave.
func TestALostCheckpointAfterALeave(t *testing.T) {
	t.Parallel()
	e := newEpochs(t)
	b := e.start("configmaps", "true", "block")
	e.sent("added", "blue")
	b.stop()
	b = e.start("services", "true", "block")
	e.sent("deleted", "blue")
	b.stop()
	if err := os.Remove(filepath.Join(e.dir, "state", "checkpoint.db")); err != nil {
		t.Fatal(err)
	}
	b = e.start("configmaps", "true", "block")
	e.sent("added", "blue")
	b.stop()
}
