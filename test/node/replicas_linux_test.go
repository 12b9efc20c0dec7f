package node

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const stateStream = "DELTABRIDGE_STATE"

// page is a section of docs/operations.md: its values, and its commands, which run as they are printed.
type page struct {
	values string
	sh     []string
}

func documented(t *testing.T, heading string) (p page) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/operations.md"))
	must(t, err)
	_, section, ok := strings.Cut(string(text), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("docs/operations.md has no section %q", heading)
	}
	section = regexp.MustCompile(`(?m)^##`).Split(section, 2)[0]
	for _, block := range shellBlock.FindAllStringSubmatch(section, -1) {
		p.sh = append(p.sh, strings.ReplaceAll("\n"+block[1], "\n   ", "\n"))
	}
	if values := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(section); values != nil {
		p.values = values[1]
	}
	return p
}

// The three places of the state, as changes of the values of the section "Several replicas".
func onLog(map[string]any) {}

func onBoth(values map[string]any) {
	values["replicas"], values["persistence"] = 1, map[string]any{"enabled": true}
}

func onVolume(values map[string]any) {
	onBoth(values)
	delete(values["config"].(map[string]any), "state")
}

// write writes values.yaml, for a broker with one node and without TLS.
func (p page) write(t *testing.T, edit func(map[string]any)) {
	t.Helper()
	var values map[string]any
	text := strings.NewReplacer("tls://", "nats://", ", replicas: 3", "").Replace(p.values)
	must(t, yaml.Unmarshal([]byte(text), &values))
	values["image"] = map[string]any{"tag": "dev"}
	values["config"].(map[string]any)["watch"] = []map[string]any{{"resources": []string{"configmaps", "pods"}}}
	edit(values)
	out, err := yaml.Marshal(values)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(now(), "values.yaml"), out, 0o600))
}

// replicas moves an installation from a volume to two replicas and back, and breaks the replicas meanwhile.
func (n *node) replicas(t *testing.T) {
	several, forward, back := documented(t, "## Several replicas"), documented(t, "### From a volume to a log"),
		documented(t, "### From a log to a volume")
	move := func(to func(map[string]any), command string) func(*testing.T) {
		return func(t *testing.T) {
			several.write(t, to)
			n.underLoad(t, "configmaps", func() {
				pause(t, time.Second)
				shell(t, now(), command)
				pause(t, time.Second)
			})
		}
	}
	refused := func(to func(map[string]any), remedy string) func(*testing.T) {
		return func(t *testing.T) {
			several.write(t, to)
			if out, err := tryShell(t, now(), upgrade); err == nil || !strings.Contains(out, remedy) {
				t.Errorf("not refused: %v\n%s", err, out)
			}
		}
	}
	must(t, os.WriteFile(filepath.Join(now(), "values.yaml"), fmt.Appendf(nil, values, "{tag: dev}"), 0o600))
	n.installAnew(t, install+" && "+rollout)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"BothStepsAtOnce", refused(onLog, "First keep persistence.enabled: true and replicas: 1, set config.state.log")},
		{"ToVolumeAndLog", move(onBoth, several.sh[0]+forward.sh[0])},
		{"ToLog", move(onLog, forward.sh[1])},
		{"Standby", n.standby},
		{"Notes", n.notes},
		{"Commands", func(t *testing.T) { shell(t, dir, several.sh[1]) }},
		{"LeaderEvicted", n.leaderEvicted},
		{"Drained", n.drained},
		{"LeaderDeleted", n.leaderDeleted},
		{"LeaderKilled", n.leaderKilled},
		{"RollingUpdate", n.rollingUpdate},
		{"BothStepsBackAtOnce", refused(onVolume, "First keep config.state.log, set persistence.enabled: true")},
		{"BackToVolumeAndLog", move(onBoth, back.sh[0])},
		{"BackToVolume", move(onVolume, back.sh[1])},
		{"OldLog", func(t *testing.T) { several.write(t, onBoth); n.oldLog(t) }},
	} {
		if !t.Run(step.name, step.run) {
			t.FailNow() // the next step begins with what this one leaves
		}
	}
}

// installAnew removes what other steps have installed, with its streams, and installs the chart with values.yaml.
func (n *node) installAnew(t *testing.T, command string) {
	t.Helper()
	shell(t, now(), `helm uninstall deltabridge -n deltabridge --wait --ignore-not-found
kubectl delete namespace deltabridge `+loadNamespace+` --ignore-not-found
kubectl create namespace `+loadNamespace+` && kubectl create namespace deltabridge
kubectl label namespace deltabridge pod-security.kubernetes.io/enforce=restricted`)
	js, closeConn := n.jetStream(t)
	defer closeConn()
	for name := range js.StreamNames(t.Context()).Name() {
		if !strings.HasPrefix(name, "KV_") { // names of clusters are registered there
			must(t, js.DeleteStream(t.Context(), name))
		}
	}
	shell(t, now(), command)
	revision, err := n.Revision(t.Context())
	must(t, err)
	n.since, n.events, n.kept = revision+1, nil, 0
	n.underLoad(t, "configmaps", func() { pause(t, 2*time.Second) })
}

// holder returns the process that holds the Lease: the name of its Pod and a suffix.
func (n *node) holder(t *testing.T) string {
	t.Helper()
	lease, err := n.client.CoordinationV1().Leases("deltabridge").Get(t.Context(), "deltabridge", metav1.GetOptions{})
	must(t, err)
	return *cmp.Or(lease.Spec.HolderIdentity, new(string))
}

// pods returns the Pod of the leader, and the other Pods of the Deployment that are not being deleted.
func (n *node) pods(t *testing.T) (leader *corev1.Pod, standbys []*corev1.Pod) {
	t.Helper()
	holder := n.holder(t)
	ofDeployment := metav1.ListOptions{LabelSelector: "pod-template-hash"}
	list, err := n.client.CoreV1().Pods("deltabridge").List(t.Context(), ofDeployment)
	must(t, err)
	for i := range list.Items {
		switch pod := &list.Items[i]; {
		case pod.DeletionTimestamp != nil:
		case strings.HasPrefix(holder, pod.Name+"-"):
			leader = pod
		default:
			standbys = append(standbys, pod)
		}
	}
	return leader, standbys
}

// awaitReplicas waits until there are a leader and a standby, both ready.
func (n *node) awaitReplicas(t *testing.T) (leader, standby *corev1.Pod) {
	t.Helper()
	start := time.Now()
	within(t, 2*time.Minute, func() error {
		var standbys []*corev1.Pod
		if leader, standbys = n.pods(t); leader == nil || len(standbys) != 1 || !isReady(leader) || !isReady(standbys[0]) {
			return fmt.Errorf("leader %v, %d standbys; not ready", leader != nil, len(standbys))
		}
		standby = standbys[0]
		return nil
	})
	t.Logf("%5.1f s  until a leader and a standby are ready", time.Since(start).Seconds())
	return leader, standby
}

// standby checks what an operator sees of two replicas.
func (n *node) standby(t *testing.T) {
	leader, standby := n.awaitReplicas(t)
	for pod, want := range map[*corev1.Pod][2]string{
		leader:  {"200 ready\n", "\ndeltabridge_leader 1\n"},
		standby: {"200 ready\nwithout effect on readiness:\n- standby, the leader is ", "\ndeltabridge_leader 0\n"},
	} {
		if ready, metrics := get(t, pod, "/readyz"), get(t, pod, "/metrics"); !strings.HasPrefix(ready, want[0]) ||
			!strings.Contains(metrics, want[1]) {
			t.Errorf("%s, not %q: %s", pod.Name, want, ready)
		}
	}
	within(t, time.Minute, func() error { // the controller computes it
		budget, err := n.client.PolicyV1().
			PodDisruptionBudgets("deltabridge").
			Get(t.Context(), "deltabridge", metav1.GetOptions{})
		if err == nil && (budget.Status.CurrentHealthy != 2 || budget.Status.DisruptionsAllowed != 1) {
			err = fmt.Errorf("%+v", budget.Status)
		}
		return err
	})
	t.Log(shell(t, dir, "kubectl -n deltabridge get lease,pdb,pods -o wide"))
	for what, pod := range map[string]*corev1.Pod{"leader": leader, "standby": standby} {
		rss := regexp.MustCompile(`(?m)^process_resident_memory_bytes .*`).FindString(get(t, pod, "/metrics"))
		t.Log(what, rss)
	}
}

// leaderEvicted evicts the leader. The PodDisruptionBudget protects the other Pod until there is another one.
func (n *node) leaderEvicted(t *testing.T) {
	leader, standby := n.awaitReplicas(t)
	evict := func(pod *corev1.Pod) error {
		return n.client.PolicyV1().Evictions("deltabridge").
			Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "deltabridge", Name: pod.Name}})
	}
	n.underLoad(t, "configmaps", func() {
		pause(t, time.Second)
		must(t, evict(leader))
		if err := evict(standby); !apierrors.IsTooManyRequests(err) {
			t.Errorf("the second Pod can be evicted as well: %v", err)
		}
		n.awaitReplicas(t)
	})
}

// drained drains the only node, which therefore cannot succeed: one Pod stays, because the other one has no node.
func (n *node) drained(t *testing.T) {
	n.underLoad(t, "configmaps", func() {
		const drain = "kubectl drain node --pod-selector=app.kubernetes.io/name=deltabridge --delete-emptydir-data --timeout=10s"
		if out, err := tryShell(t, dir, drain); err == nil || !strings.Contains(out, "disruption budget") {
			t.Errorf("%v\n%s", err, out)
		}
		leader, standbys := n.pods(t)
		if leader == nil || !isReady(leader) || len(standbys) != 1 || isReady(standbys[0]) {
			t.Errorf("leader %v, standbys %v", leader, standbys)
		}
		shell(t, dir, "kubectl uncordon node")
		n.awaitReplicas(t)
	})
}

func (n *node) leaderDeleted(t *testing.T) {
	leader, _ := n.awaitReplicas(t)
	n.underLoad(t, "configmaps", func() {
		shell(t, dir, "kubectl -n deltabridge delete pod --grace-period=0 --force "+leader.Name)
		n.awaitReplicas(t)
	})
}

// leaderKilled kills the process of the leader. The kubelet starts it again, and it or the standby takes over.
func (n *node) leaderKilled(t *testing.T) {
	leader, _ := n.awaitReplicas(t)
	n.underLoad(t, "configmaps", func() {
		pause(t, time.Second)
		before := n.holder(t)
		killBridge(t, leader.Name)
		within(t, time.Minute, func() error {
			if n.holder(t) == before {
				return errors.New("the Lease is still held by the process that was killed")
			}
			return nil
		})
		n.awaitReplicas(t)
	})
}

// rollingUpdate replaces all Pods, and then changes the configuration. Two Pods are always ready.
func (n *node) rollingUpdate(t *testing.T) {
	for _, command := range []string{
		"kubectl -n deltabridge rollout restart deployment/deltabridge",
		upgrade + noReload + " --set config.log.level=debug,config.sinks[0].buffer.events=5000",
	} {
		n.underLoad(t, "configmaps", func() {
			deployments, done := n.client.AppsV1().Deployments("deltabridge"), make(chan struct{})
			watch, err := deployments.Watch(t.Context(), metav1.ListOptions{})
			must(t, err)
			go func() {
				defer close(done)
				for event := range watch.ResultChan() {
					if d, ok := event.Object.(*appsv1.Deployment); ok && d.Status.AvailableReplicas < 2 {
						t.Errorf("%d Pods are available", d.Status.AvailableReplicas)
					}
				}
			}()
			shell(t, now(), command+" && kubectl -n deltabridge rollout status deployment/deltabridge --timeout=2m")
			watch.Stop()
			<-done
			n.awaitReplicas(t)
		})
	}
}

// oldLog configures the log again that the bridge had before. The bridge says that it is older than the checkpoint, and
// goes on when it is removed.
func (n *node) oldLog(t *testing.T) {
	n.underLoad(t, "configmaps", func() {
		shell(t, now(), upgrade)
		within(t, time.Minute, func() error {
			log, err := n.client.CoreV1().Pods("deltabridge").GetLogs(bridgePod, &corev1.PodLogOptions{}).DoRaw(t.Context())
			if !strings.Contains(string(log), "remove its stream or topic") {
				return fmt.Errorf("the bridge does not refuse the log: %w\n%s", err, log)
			}
			return nil
		})
		js, closeConn := n.jetStream(t)
		defer closeConn()
		must(t, js.DeleteStream(t.Context(), stateStream))
		n.wait(t, func(pod *corev1.Pod) bool { return restarts(pod) > 0 })
	})
}
