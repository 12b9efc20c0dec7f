package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	bridgePod = "deltabridge-0"
	image     = "ghcr.io/deltabridge/deltabridge:dev" // the name that the image contains
	values    = `image: %s
config:
  cluster: node
  watch: [{resources: [configmaps, serviceaccounts, pods]}]
  sinks: [{name: live, nats: {url: "nats://nats.nats:4222", stream: {name: K8S, create: true, subjects: ["k8s.>"]}}}]
`
	// The chart's README prints these. They run in a directory with the chart and values.yaml.
	install = "helm install deltabridge charts/deltabridge -n deltabridge --create-namespace -f values.yaml"
	upgrade = "helm upgrade deltabridge charts/deltabridge -n deltabridge -f values.yaml"
	orphan  = "kubectl -n deltabridge delete statefulset deltabridge --cascade=orphan"
	restart = "kubectl -n deltabridge rollout restart statefulset/deltabridge"

	rollout  = "kubectl -n deltabridge rollout status statefulset/deltabridge --timeout=2m"
	noBroker = " --set config.sinks[0].nats.url=nats://nowhere.nats:4222"
	noReload = " --set reloadConfig=false"
)

// now is the directory with this version's chart.
func now() string { return filepath.Join(dir, "now") }

// TestNode is one story: each step begins with what the one before left.
func TestNode(t *testing.T) {
	n := startNode(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"GettingStarted", n.gettingStarted},
		{"InstallRestricted", n.installRestricted},
		{"UpgradeFromEarlier", n.upgradeFromEarlier},
		{"Notes", n.notes},
		{"BrokerAway", n.brokerAway},
		{"Restarted", n.restarted},
		{"PodDeleted", n.podDeleted},
		{"ContainerKilled", n.containerKilled},
		{"Evicted", n.evicted},
		{"OOMKilled", n.oomKilled},
		{"WrongImage", n.wrongImage},
		{"WrongBroker", n.wrongBroker},
		{"RollbackOnFailure", n.rollbackOnFailure},
		{"KubeletStopped", n.kubeletStopped},
		{"VolumeKept", n.volumeKept},
		{"Replicas", n.replicas},
		{"Reload", n.reload},
	} {
		if !t.Run(step.name, step.run) {
			n.explain(t)
			if step.name == "InstallRestricted" || step.name == "UpgradeFromEarlier" {
				t.FailNow() // nothing else can work
			}
		}
	}
}

// explain logs what a person would look at.
func (n *node) explain(t *testing.T) {
	t.Helper()
	out, _ := tryShell(t, dir, `kubectl get pods -A -o wide
kubectl -n deltabridge describe pods | tail -40
kubectl -n deltabridge logs -l app.kubernetes.io/name=deltabridge --prefix --tail=30
helm -n deltabridge history deltabridge`) // what can be had
	t.Log(out)
}

var shellBlock = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```")

// gettingStarted runs the steps of docs/getting-started.md as they are printed, after the broker is installed.
func (n *node) gettingStarted(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/getting-started.md"))
	must(t, err)
	_, text, ok := strings.Cut(string(page), "3. Write the values")
	text, _, ok2 := strings.Cut(text, "If a step fails")
	blocks := shellBlock.FindAllStringSubmatch(text, -1)
	if !ok || !ok2 || len(blocks) < 4 {
		t.Fatalf("steps 3 to 6 of docs/getting-started.md are not there: %d blocks", len(blocks))
	}
	var out string
	for _, block := range blocks {
		out += shell(t, now(), strings.ReplaceAll("\n"+block[1], "\n   ", "\n"))
	}
	for _, want := range []string{`added +configmaps +default/hello `, `updated +configmaps +default/hello `, `deleted +configmaps +default/goodbye `} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no line %q:\n%s", want, out)
		}
	}
	shell(t, now(), "helm uninstall deltabridge -n deltabridge --wait && kubectl delete namespace deltabridge --wait")
	js, closeConn := n.jetStream(t)
	defer closeConn()
	must(t, js.DeleteStream(t.Context(), stream))
}

// installRestricted installs the earlier version in a namespace that requires the restricted Pod Security Standard.
func (n *node) installRestricted(t *testing.T) {
	shell(t, dir, "kubectl create namespace "+loadNamespace+` && kubectl create namespace deltabridge &&
kubectl label namespace deltabridge pod-security.kubernetes.io/enforce=restricted`)
	if out, err := tryShell(t, dir, "kubectl -n deltabridge run other --image="+image); err == nil ||
		!strings.Contains(out, "violates PodSecurity") {
		t.Errorf("the namespace admits any Pod: %v\n%s", err, out)
	}
	for name, image := range map[string]string{"earlier": "{repository: deltabridge, tag: earlier}", "now": "{tag: dev}"} {
		must(t, os.WriteFile(filepath.Join(dir, name, "values.yaml"), fmt.Appendf(nil, values, image), 0o600))
	}
	if out := shell(t, filepath.Join(dir, "earlier"), install+" && "+rollout); strings.Contains(out, "would violate") {
		t.Error(out)
	}
	var err error
	n.since, err = n.Revision(t.Context())
	must(t, err)
	n.since++
	n.underLoad(t, "configmaps", func() { pause(t, 3*time.Second) })
}

// upgradeFromEarlier upgrades under load, with the one manual step that is documented.
func (n *node) upgradeFromEarlier(t *testing.T) {
	readme, err := os.ReadFile("../../charts/deltabridge/README.md")
	must(t, err)
	for _, command := range []string{install, upgrade, orphan, restart} {
		if !bytes.Contains(readme, []byte(command)) {
			t.Errorf("the chart's README does not print %q", command)
		}
	}
	n.underLoad(t, "configmaps", func() {
		if out, err := tryShell(t, now(), upgrade); err == nil || !strings.Contains(out, "StatefulSet") {
			t.Errorf("an upgrade without the manual step: %v\n%s", err, out)
		}
		shell(t, now(), orphan+" && "+upgrade+" --wait")
		n.wait(t, func(pod *corev1.Pod) bool { return pod.Spec.Containers[0].Image == image })
	})
	shell(t, now(), upgrade+" --wait") // later upgrades require no manual step
}

// notes runs the commands of NOTES.txt as they are printed, in a terminal.
func (n *node) notes(t *testing.T) {
	notes := shell(t, dir, "helm get notes deltabridge -n deltabridge")
	commands := regexp.MustCompile(`(?m)^  ((kubectl|helm) .*)$`).FindAllStringSubmatch(notes, -1)
	if len(commands) < 5 {
		t.Fatalf("%d commands in the notes:\n%s", len(commands), notes)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	followed, ended := &bytes.Buffer{}, make(chan error, 1)
	for _, command := range commands {
		command := command[1]
		if strings.Contains(command, "bridge tail") { // until Ctrl-C
			tail := exec.CommandContext(ctx, "script", "-qefc", command, "/dev/null")
			tail.Stdout, tail.Stderr, tail.WaitDelay = followed, followed, time.Second
			must(t, tail.Start())
			go func() { ended <- tail.Wait() }()
			pause(t, 5*time.Second) // it shows events from its start on
			continue
		}
		out := shell(t, dir, command)
		if strings.Contains(command, "doctor") && !strings.Contains(out, "checkpoint") { // N9
			t.Errorf("%s does not test the state:\n%s", command, out)
		}
		if strings.HasPrefix(command, "helm test") &&
			(!strings.Contains(out, "Succeeded") || strings.Contains(out, "there is none")) { // N5
			t.Errorf("%s:\n%s", command, out)
		}
	}
	stop()
	<-ended //nolint:errcheck // it was killed
	if !regexp.MustCompile(`deleted.* default/hello-deltabridge`).Match(followed.Bytes()) {
		t.Errorf("bridge tail does not show the events of the next command:\n%s", followed)
	}
}

// brokerAway stops the broker, replaces the Pod in the outage, and starts the broker again. No ServiceAccounts were
// written before, so the API server's history of them is short: what has waited in memory since its beginning would be
// lost (N2).
func (n *node) brokerAway(t *testing.T) {
	const nats = "kubectl -n nats "
	shell(t, dir, nats+"scale statefulset/nats --replicas=0 && "+nats+"wait --for=delete pod/nats-0 --timeout=1m")
	must(t, n.create(t.Context(), "serviceaccounts", "first"))
	start := time.Now()
	within(t, time.Minute, func() error { // N8
		metrics, ready := get(t, n.pod(t), "/metrics"), get(t, n.pod(t), "/readyz")
		if !strings.Contains(metrics, `deltabridge_sink_connected{sink="live"} 0`) ||
			!strings.Contains(ready, "200 ready") || !strings.Contains(ready, "sink live: retrying since") {
			return errors.New("the bridge does not report the outage: " + ready)
		}
		return nil
	})
	t.Logf("%5.1f s  until the outage is reported", time.Since(start).Seconds())
	pause(t, 80*time.Second-time.Since(start))
	n.underLoad(t, "serviceaccounts", func() {
		pause(t, 10*time.Second)
		deleted := time.Now()
		shell(t, dir, "kubectl -n deltabridge delete pod "+bridgePod)
		if took := time.Since(deleted); took > 15*time.Second { // N6
			t.Errorf("the Pod took %.1f s to end while the broker was away", took.Seconds())
		}
		pause(t, 30*time.Second)
		shell(t, dir, nats+"scale statefulset/nats --replicas=1 && "+nats+"rollout status statefulset/nats --timeout=1m")
		n.wait(t, func(*corev1.Pod) bool { return true })
	})
}

func (n *node) restarted(t *testing.T) {
	before := n.pod(t)
	n.underLoad(t, "configmaps", func() {
		shell(t, dir, restart+" && "+rollout)
		n.wait(t, func(pod *corev1.Pod) bool { return pod.UID != before.UID })
	})
}

func (n *node) podDeleted(t *testing.T) {
	before := n.pod(t)
	n.underLoad(t, "configmaps", func() {
		shell(t, dir, "kubectl -n deltabridge delete pod "+bridgePod)
		n.wait(t, func(pod *corev1.Pod) bool { return pod.UID != before.UID })
	})
}

func (n *node) evicted(t *testing.T) {
	before := n.pod(t)
	n.underLoad(t, "configmaps", func() {
		must(t, n.client.PolicyV1().Evictions("deltabridge").
			Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "deltabridge", Name: bridgePod}}))
		n.wait(t, func(pod *corev1.Pod) bool { return pod.UID != before.UID })
	})
}

// containerKilled kills the process. The kubelet starts it again in the same Pod.
func (n *node) containerKilled(t *testing.T) {
	before := n.pod(t)
	n.underLoad(t, "configmaps", func() {
		pause(t, 2*time.Second)
		killBridge(t, bridgePod)
		n.wait(t, func(pod *corev1.Pod) bool {
			return pod.UID == before.UID && restarts(pod) > restarts(before)
		})
	})
}

// killBridge kills the process of the bridge in a Pod.
func killBridge(t *testing.T, pod string) {
	t.Helper()
	pid, err := strconv.Atoi(filepath.Base(processOf(t, pod)))
	must(t, err)
	must(t, syscall.Kill(pid, syscall.SIGKILL))
}

// processOf returns the directory in /proc of the process of the bridge in a Pod.
func processOf(t *testing.T, pod string) string {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	must(t, err)
	found := slices.DeleteFunc(processes, func(path string) bool {
		line, _ := os.ReadFile(filepath.Join(path, "cmdline")) // other processes end meanwhile
		environment, _ := os.ReadFile(filepath.Join(path, "environ"))
		return !bytes.HasPrefix(line, []byte("/usr/bin/bridge\x00run\x00")) ||
			!bytes.Contains(append([]byte{0}, environment...), []byte("\x00HOSTNAME="+pod+"\x00"))
	})
	if len(found) != 1 {
		t.Fatalf("%d processes of the bridge in %s", len(found), pod)
	}
	return found[0]
}

// oomKilled lowers the memory limit so far that the bridge cannot run, and corrects it.
func (n *node) oomKilled(t *testing.T) {
	n.underLoad(t, "configmaps", func() {
		shell(t, now(), upgrade+" --set resources.requests.memory=7Mi,resources.limits.memory=7Mi")
		n.waitFor(t, "the container is OOM-killed", func(pod *corev1.Pod) bool {
			return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
				last := s.LastTerminationState.Terminated
				return last != nil && last.Reason == "OOMKilled"
			})
		})
		n.repair(t, upgrade)
	})
}

func (n *node) wrongImage(t *testing.T) {
	n.underLoad(t, "configmaps", func() {
		shell(t, now(), upgrade+" --set image.tag=nope")
		n.waitFor(t, "the image cannot be pulled", func(pod *corev1.Pod) bool {
			return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
				return s.State.Waiting != nil && strings.Contains(s.State.Waiting.Reason, "Pull")
			})
		})
		n.repair(t, upgrade)
	})
}

// wrongBroker upgrades to a broker that does not exist, and lets `helm test` name it. The bridge loads the wrong address
// and the corrected one; or, with reloadConfig: false, a new Pod has the wrong address, and a rollback replaces it.
func (n *node) wrongBroker(t *testing.T) {
	for _, c := range []struct {
		mistake, cure string
		replaced      bool
	}{
		{upgrade + noBroker, upgrade, false},
		{upgrade + noBroker + noReload, "helm rollback deltabridge -n deltabridge", true},
	} {
		n.underLoad(t, "configmaps", func() {
			before := n.pod(t)
			shell(t, now(), c.mistake)
			n.waitFor(t, "a Pod runs and is not ready", func(pod *corev1.Pod) bool {
				return (pod.UID != before.UID) == c.replaced && pod.Status.Phase == corev1.PodRunning && !isReady(pod)
			})
			if out, err := tryShell(t, dir, "helm test deltabridge -n deltabridge --logs"); err == nil ||
				!regexp.MustCompile(`(?s)FAILED.*nowhere\.nats.*-> `).MatchString(out) { // N4
				t.Errorf("helm test does not name what failed: %v\n%s", err, out)
			}
			if c.replaced {
				n.repair(t, c.cure)
				return
			}
			shell(t, now(), c.cure)
			n.wait(t, func(pod *corev1.Pod) bool { return pod.UID == before.UID && restarts(pod) == restarts(before) })
		})
	}
}

// rollbackOnFailure lets Helm itself notice the mistake and undo it, which requires that a new Pod has the mistake.
func (n *node) rollbackOnFailure(t *testing.T) {
	n.underLoad(t, "configmaps", func() {
		out, err := tryShell(t, now(), upgrade+noBroker+noReload+" --rollback-on-failure --wait --timeout 1m")
		if err == nil || !strings.Contains(out, "rolled back") {
			t.Errorf("the upgrade should be rolled back: %v\n%s", err, out)
		}
		shell(t, dir, rollout)
		n.wait(t, func(*corev1.Pod) bool { return true })
	})
}

// repair runs a command that has to replace a Pod that is not ready (N1).
func (n *node) repair(t *testing.T, command string) {
	t.Helper()
	broken, start := n.pod(t), time.Now()
	shell(t, now(), command)
	n.wait(t, func(pod *corev1.Pod) bool { return pod.UID != broken.UID })
	t.Logf("%5.1f s  until the next Pod is ready", time.Since(start).Seconds())
}

// kubeletStopped stops the kubelet for as long as the control plane needs to notice it. The Pod goes on.
func (n *node) kubeletStopped(t *testing.T) {
	before := n.pod(t)
	n.underLoad(t, "configmaps", func() {
		must(t, n.kubelet.Process.Signal(syscall.SIGTERM))
		_ = n.kubelet.Wait() // it was told to end
		shell(t, dir, "kubectl wait --for=condition=Ready=Unknown node/node --timeout=3m")
		pause(t, 10*time.Second)
		n.startKubelet(t)
		shell(t, dir, "kubectl wait --for=condition=Ready node/node --timeout=1m")
		n.wait(t, func(pod *corev1.Pod) bool { return pod.UID == before.UID && restarts(pod) == restarts(before) })
	})
}

// volumeKept uninstalls and installs the chart. The bridge resumes from the checkpoint on the volume.
func (n *node) volumeKept(t *testing.T) {
	n.underLoad(t, "configmaps", func() {
		shell(t, now(), "helm uninstall deltabridge -n deltabridge --wait && "+
			"kubectl -n deltabridge wait --for=delete pod/"+bridgePod+" --timeout=1m && "+install+" --wait")
	})
	log := shell(t, dir, "kubectl -n deltabridge logs "+bridgePod)
	if !strings.Contains(log, "resumed from the checkpoint") {
		t.Errorf("the bridge has not resumed:\n%s", log)
	}
}
