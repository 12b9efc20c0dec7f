package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltabridge/deltabridge/internal/control"
)

const (
	addedStream = "ADDED"
	someStream  = "SOME"

	// oneSink are values with the sink whose stream is judged. It never changes.
	oneSink = `image: {tag: dev}
config:
  cluster: node
  watch: [{resources: [configmaps]}]
  sinks:
    - {name: live, nats: {url: "nats://nats.nats:4222", stream: {name: K8S, create: true, subjects: ["k8s.>"]}}}
`
	// addedSink is a further sink, with a filter.
	addedSink = `    - name: added
      filters: [{when: %q}]
      nats: {url: "nats://nats.nats:4222", subject: "added.{resource}.{namespace}.{name}", stream: {name: ADDED, create: true, subjects: ["added.>"]}}
`
	everything = "true"
	ending     = "object.metadata.name.endsWith('1')"
	wrong      = "object.metadata.name ==" // the chart does not notice it

	helmTest = "helm test deltabridge -n deltabridge --logs"
	inPod    = "kubectl -n deltabridge exec " + bridgePod + " -- bridge "
)

// reload changes the configuration with `helm upgrade`, and lets the kubelet bring it into Pods that stay.
func (n *node) reload(t *testing.T) {
	n.configure(t)
	n.installAnew(t, install+" && "+rollout)
	n.keep(t)
	copyBridge(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"SinkAdded", n.sinkAdded},
		{"Refused", n.refused},
		{"Corrected", n.corrected},
		{"WrongAtTheStart", n.wrongAtTheStart},
		{"Replicas", n.reloadReplicas},
	} {
		if !t.Run(step.name, step.run) {
			t.FailNow() // the next step begins with what this one leaves
		}
	}
}

// configure writes values.yaml: the sink live, and for each filter a further sink.
func (n *node) configure(t *testing.T, filter ...string) {
	t.Helper()
	text := oneSink
	for _, f := range filter {
		text += fmt.Sprintf(addedSink, f)
	}
	must(t, os.WriteFile(filepath.Join(now(), "values.yaml"), []byte(text), 0o600))
}

// keep creates objects that stay.
func (n *node) keep(t *testing.T) {
	t.Helper()
	for i := range 40 {
		must(t, n.create(t.Context(), "configmaps", keptName(i)))
	}
	n.kept = 40
}

// copyBridge copies the program in the Pod, for commands that run outside of Pods.
func copyBridge(t *testing.T) {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(processOf(t, bridgePod), "exe"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "bin", "bridge"), program, 0o755))
}

// sinkAdded adds a sink under load. The sink that does not change keeps its connection.
func (n *node) sinkAdded(t *testing.T) {
	before := n.snapshot(t)
	n.underLoad(t, "configmaps", func() {
		n.configure(t, everything)
		shell(t, now(), upgrade)
		shell(t, dir, helmTest) // waits for the kubelet
		n.expectSame(t, before)
	})
	n.judgeAdded(t)
}

// refused upgrades to a filter that is wrong. Nothing changes, and everything that an operator looks at says why.
func (n *node) refused(t *testing.T) {
	before := n.snapshot(t)
	n.underLoad(t, "configmaps", func() {
		n.configure(t, wrong)
		shell(t, now(), upgrade)
		within(t, 3*time.Minute, func() error {
			pause(t, 100*time.Millisecond)
			c := n.status(t, n.pod(t)).Configuration
			if c.Error == nil || !strings.Contains(c.Error.Text, "filters[0].when") || c.Hash != before.hash {
				return fmt.Errorf("the status does not report the refusal: %+v", c)
			}
			return nil
		})
		pause(t, 6*time.Second) // the file is read once more
		n.expectSuccessful(t, 0)
		log := shell(t, dir, "kubectl -n deltabridge logs "+bridgePod)
		if strings.Count(log, "changed configuration refused") != 1 {
			t.Errorf("the log does not report the refusal once:\n%s", log)
		}
		expectFailure(t, inPod+"reload --wait --timeout=30s", "filters[0].when")
		expectFailure(t, helmTest, "filters[0].when")
		expectFailure(t, "bridge status --pod "+bridgePod, "The changed configuration was refused")
		n.expectSame(t, before)
	})
}

// expectSuccessful checks the metric that reports whether the file is in use or about to be.
func (n *node) expectSuccessful(t *testing.T, want int) {
	t.Helper()
	line := fmt.Sprintf("\ndeltabridge_config_last_reload_successful %d\n", want)
	if metrics := get(t, n.pod(t), "/metrics"); !strings.Contains(metrics, line) {
		t.Errorf("no line %q:\n%s", line, metrics)
	}
}

// corrected upgrades to another filter, which is loaded. `helm test` is not confused by the refusal of the file before.
func (n *node) corrected(t *testing.T) {
	before := n.snapshot(t)
	n.underLoad(t, "configmaps", func() {
		n.configure(t, ending)
		shell(t, now(), upgrade)
		shell(t, dir, helmTest)
		if out := shell(t, dir, inPod+"reload --wait"); !strings.Contains(out, "the configuration is in use") {
			t.Error(out)
		}
		n.expectSame(t, before)
		n.expectSuccessful(t, 1)
		n.expectDelivered(t, bridgePod)
	})
	if s := n.status(t, n.pod(t)); s.Configuration.Hash == before.hash || s.Configuration.Error != nil {
		t.Errorf("%+v", s.Configuration)
	}
}

// wrongAtTheStart replaces the Pod when its configuration is wrong. The new Pod waits, and a corrected configuration is
// enough: nothing has to replace the Pod.
func (n *node) wrongAtTheStart(t *testing.T) {
	before := n.pod(t)
	n.configure(t, wrong)
	shell(t, now(), upgrade)
	shell(t, dir, "kubectl -n deltabridge delete pod "+bridgePod)
	n.waitFor(t, "the new Pod runs", func(pod *corev1.Pod) bool {
		return pod.UID != before.UID && pod.Status.Phase == corev1.PodRunning
	})
	refused := n.pod(t)
	within(t, time.Minute, func() error {
		_, body, err := tryGet(t, "http://"+refused.Status.PodIP+":8080/readyz")
		if err == nil && !strings.Contains(string(body), "the configuration is refused") {
			err = errors.New(string(body))
		}
		return err
	})
	expectFailure(t, "bridge status --pod "+bridgePod, "The configuration is refused, so the bridge has not started")
	expectFailure(t, inPod+"doctor", "filters[0].when")
	pause(t, 30*time.Second) // longer than a probe waits
	if pod := n.pod(t); pod.UID != refused.UID || restarts(pod) > 0 || isReady(pod) {
		t.Errorf("the Pod does not wait: %+v", pod.Status)
	}
	n.configure(t, ending)
	shell(t, now(), upgrade+" --wait --timeout=3m")
	if pod := n.pod(t); pod.UID != refused.UID || restarts(pod) > 0 || !isReady(pod) {
		t.Errorf("the Pod has not started by itself: %+v", pod.Status)
	}
	n.underLoad(t, "configmaps", func() { pause(t, 2*time.Second) })
}

// snapshot is what a reload must not change, except the hash.
type snapshot struct {
	pod         *corev1.Pod
	connections string // of the sink live, as the broker has them
	hash        string // of the configuration in use
}

func (n *node) snapshot(t *testing.T) snapshot {
	t.Helper()
	pod := n.pod(t)
	s := snapshot{pod, n.connections(t, "live"), n.status(t, pod).Configuration.Hash}
	if s.connections == "" || s.hash == "" {
		t.Fatalf("%+v", s)
	}
	return s
}

func (n *node) expectSame(t *testing.T, before snapshot) {
	t.Helper()
	pod := n.pod(t)
	if pod.UID != before.pod.UID || restarts(pod) != restarts(before.pod) || !isReady(pod) {
		t.Errorf("another Pod, restarted or not ready: %+v", pod.Status)
	}
	if now := n.connections(t, "live"); now != before.connections {
		t.Errorf("connections of the sink live: %s, before %s", now, before.connections)
	}
}

// connections returns the ids of the connections of a sink, as the broker has them.
func (n *node) connections(t *testing.T, sink string) string {
	t.Helper()
	pod, err := n.client.CoreV1().Pods("nats").Get(t.Context(), "nats-0", metav1.GetOptions{})
	must(t, err)
	_, body, err := tryGet(t, "http://"+pod.Status.PodIP+":8222/connz")
	must(t, err)
	var all struct {
		Connections []struct {
			CID  uint64
			Name string
		}
	}
	must(t, json.Unmarshal(body, &all))
	ids := ""
	for _, c := range all.Connections {
		if c.Name == "deltabridge-node-"+sink {
			ids += strconv.FormatUint(c.CID, 10) + " "
		}
	}
	return ids
}

// status returns the status of the bridge in a Pod.
func (n *node) status(t *testing.T, pod *corev1.Pod) *control.Status {
	t.Helper()
	s, err := tryStatus(t, pod)
	must(t, err)
	return s
}

func tryStatus(t *testing.T, pod *corev1.Pod) (*control.Status, error) {
	t.Helper()
	_, body, err := tryGet(t, "http://"+pod.Status.PodIP+":8080"+control.StatusPath)
	if err != nil {
		return nil, err
	}
	return control.ParseStatus(bytes.NewReader(body))
}

// expectFailure runs a command that must fail and print the reason.
func expectFailure(t *testing.T, command, reason string) {
	t.Helper()
	if out, err := tryShell(t, dir, command); err == nil || !strings.Contains(out, reason) {
		t.Errorf("%s does not report %q: %v\n%s", command, reason, err, out)
	}
}

// expectDelivered waits until `bridge status --pod`, through the API server, reports that everything is delivered.
func (n *node) expectDelivered(t *testing.T, pods ...string) {
	t.Helper()
	within(t, time.Minute, func() error {
		out, err := tryShell(t, dir, "bridge status --pod "+strings.Join(pods, " --pod "))
		for _, want := range append(pods, "Everything is delivered.") {
			if err == nil && !strings.Contains(out, want) {
				err = errors.New("no " + want)
			}
		}
		if err != nil {
			pause(t, time.Second)
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
}

// judgeAdded compares the stream of the added sink with etcd: after the initial list, it has each revision once.
func (n *node) judgeAdded(t *testing.T) {
	t.Helper()
	within(t, time.Minute, func() error {
		events := n.readFrom(t, addedStream, 0)
		end := slices.IndexFunc(events, func(e received) bool { return e.kind == "dev.deltabridge.synced" })
		if end < 0 {
			return errors.New("the initial list is not complete")
		}
		listed := map[string]bool{}
		for _, e := range events[:end] {
			if strings.Contains(e.subject, "/kept-") {
				listed[e.subject] = true
			}
		}
		if len(listed) != n.kept {
			t.Fatalf("the initial list has %d of %d objects", len(listed), n.kept)
		}
		// synced.CLUSTER.RESOURCE.REVISION
		revision, err := strconv.ParseInt(events[end].id[strings.LastIndex(events[end].id, ".")+1:], 10, 64)
		must(t, err)
		want := n.wanted(t, revision+1)
		missing, wrong := compare(want, events, revision+1)
		if len(wrong) > 0 {
			t.Fatalf("%d events are wrong:\n%s", len(wrong), strings.Join(wrong[:min(len(wrong), 20)], "\n"))
		}
		if missing > 0 || len(want) == 0 {
			return fmt.Errorf("%d of %d commits since the list are missing", missing, len(want))
		}
		t.Logf("%d commits since the list of the added sink: none missing, none repeated, all in order", len(want))
		return nil
	})
}
