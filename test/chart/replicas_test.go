package chart

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"

	"github.com/deltabridge/deltabridge/test/natsserver"
)

// noVolume are the arguments that move the state from the volume to the state log alone.
const noVolume = "persistence.enabled=false,replicas=2"

// Without persistence, there is a Deployment whose Pods are spread, replaced one by one, and evicted one by one.
func TestReplicas(t *testing.T) {
	out := template(t, "--values", withLog, "--set", noVolume)
	d := deployment(t, out)
	rolling := d.Spec.Strategy.RollingUpdate
	if *d.Spec.Replicas != 2 || rolling.MaxSurge.IntValue() != 1 || rolling.MaxUnavailable.IntValue() != 0 {
		t.Errorf("%d replicas, %+v", *d.Spec.Replicas, rolling)
	}
	pod := d.Spec.Template
	if len(pod.Spec.TopologySpreadConstraints) != 2 {
		t.Errorf("constraints %+v", pod.Spec.TopologySpreadConstraints)
	}
	for _, c := range pod.Spec.TopologySpreadConstraints {
		selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
		if err != nil || c.WhenUnsatisfiable != corev1.ScheduleAnyway || selector.Empty() ||
			len(c.LabelSelector.MatchLabels) != 2 || c.LabelSelector.MatchLabels["app.kubernetes.io/instance"] != "deltabridge" {
			t.Errorf("%v, %+v", err, c)
		}
	}
	if strings.Contains(out, "kind: StatefulSet") || strings.Contains(out, "hostNetwork") {
		t.Errorf("not only a Deployment, or the host's name is not that of the Pod:\n%s", out)
	}
	for set, want := range map[string]int{noVolume: 1, "podDisruptionBudget.enabled=true": 0, noVolume + ",podDisruptionBudget.enabled=true": 1} {
		var budget policyv1.PodDisruptionBudget
		out := template(t, "--values", withLog, "--set", set, "--show-only", "templates/poddisruptionbudget.yaml")
		objects(t, out)[0].decode(t, &budget)
		if got := budget.Spec.MaxUnavailable.IntValue(); got != want {
			t.Errorf("%s: at most %d unavailable, want %d", set, got, want)
		}
	}
	if strings.Contains(template(t, "--values", withLog), "PodDisruptionBudget") {
		t.Error("one replica has a PodDisruptionBudget")
	}
}

// The Lease has the name of the release and is in its namespace, unless the configuration says otherwise. The bridge may
// use this Lease and no other.
func TestLease(t *testing.T) {
	for set, want := range map[string][2]string{
		"enabled=true":                           {"streams", "deltabridge"},
		"fullnameOverride=a,namespaceOverride=b": {"b", "a"},
		"config.election.lease.name=mine":        {"streams", "mine"},
		"config.election.lease.namespace=other":  {"other", "deltabridge"},
		"config.election.leaseDuration=20s":      {"streams", "deltabridge"},
	} {
		out := template(t, "--values", withLog, "--set", set)
		var config struct {
			Election struct {
				Lease         struct{ Name, Namespace string }
				LeaseDuration string
			}
		}
		if err := yaml.Unmarshal([]byte(renderedConfig(t, out)), &config); err != nil {
			t.Fatal(err)
		}
		if lease := config.Election.Lease; lease.Namespace != want[0] || lease.Name != want[1] ||
			strings.Contains(set, "20s") != (config.Election.LeaseDuration == "20s") {
			t.Errorf("%s: %+v", set, config)
		}
		var named []string
		for _, o := range objects(t, out) {
			if o.Kind != "Role" || o.Namespace != want[0] {
				continue
			}
			var role rbacv1.Role
			o.decode(t, &role)
			for _, r := range role.Rules {
				named = append(named, r.ResourceNames...)
			}
		}
		if last := len(named) - 1; last < 0 || named[last] != want[1] {
			t.Errorf("%s: the rules in %s are about %v", set, want[0], named)
		}
	}
	if out := template(t); strings.Contains(renderedConfig(t, out), "election") {
		t.Error("without a log, there is an election")
	}
}

// Replicas know the headless Service that stands for all of them, and have a token for the leader.
func TestCommandsOfReplicas(t *testing.T) {
	for set, want := range map[string][3]string{
		noVolume: {"deltabridge.streams:8080", "true", "true"},
		noVolume + ",fullnameOverride=a,namespaceOverride=b,config.http.listen=:9": {"a.b:9", "true", "true"},
		noVolume + ",config.http.peers[0]=mine:1":                                  {"mine:1", "true", "true"},
		noVolume + ",config.kubeconfig=/k":                                         {"deltabridge.streams:8080", "false", "true"},
		"enabled=true":                                                             {"", "false", "false"},
	} {
		out := template(t, "--values", withLog, "--set", set)
		var config struct {
			HTTP struct{ Peers []string }
		}
		if err := yaml.Unmarshal([]byte(renderedConfig(t, out)), &config); err != nil {
			t.Fatal(err)
		}
		got := [3]string{
			strings.Join(config.HTTP.Peers, " "),
			fmt.Sprint(
				strings.Contains(out, "audience: deltabridge") && strings.Contains(out, "mountPath: /var/run/secrets/deltabridge"),
			),
			fmt.Sprint(strings.Contains(out, "/api/resync") && strings.Contains(out, "subjectaccessreviews")),
		}
		if got != want {
			t.Errorf("%s: %q, want %q", set, got, want)
		}
	}
	policy := template(t, "--values", withLog, "--set", noVolume+",networkPolicy.enabled=true",
		"--show-only", "templates/networkpolicy.yaml")
	if n := strings.Count(policy, "- podSelector:"); n != 2 {
		t.Errorf("the replicas can reach each other in %d directions:\n%s", n, policy)
	}
}

// The replicas, the volume and the log must fit. The message says what to do first.
func TestReplicasRefused(t *testing.T) {
	for _, tt := range []struct {
		values []string
		want   string
	}{
		{[]string{"--set", "persistence.enabled=false"}, "first set config.state.log, persistence.enabled: true and replicas: 1, upgrade"},
		{[]string{"--set", "replicas=2"}, "first set config.state.log, persistence.enabled: true and replicas: 1, upgrade"},
		{[]string{"--set", noVolume}, "config.state.log is required"},
		{[]string{"--values", withLog, "--set", "replicas=2"}, "a volume is for one Pod"},
		{[]string{"--values", withLog, "--set", "config.redactionKeyFile="}, "create secret generic deltabridge-redaction"},
		{[]string{"--values", withLog, "--set", "replicas=0"}, "/replicas"},
		{[]string{"--set", withAudit + ",persistence.enabled=false"}, "config.state.log is required"},
	} {
		_, _, err := command(t, tools.helm, append([]string{"template", "x", chartDir, "--values", minimal}, tt.values...)...)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %s", tt.values, err, tt.want)
		}
	}
}

// moves takes a release from a volume to a log and back. Each upgrade that would lose the state is refused.
func (k *kube) moves(t *testing.T) {
	upgrade := func(verb string, args ...string) error {
		t.Helper()
		args = append([]string{verb, "deltabridge", chartDir, "--values", minimal}, args...)
		_, _, err := command(t, tools.helm, append(args, "--kubeconfig", k.Kubeconfig(), "--namespace", namespace)...)
		return err
	}
	for _, step := range []struct {
		name, refusal string
		args          []string
	}{
		{"install", "", nil},
		{"to a log alone at once", "only on the volume of the StatefulSet deltabridge", []string{"--values", withLog, "--set", noVolume}},
		{"to a volume and a log", "", []string{"--values", withLog}},
		{"to a log alone, not ready", "kubectl -n streams rollout status statefulset/deltabridge", []string{"--values", withLog, "--set", noVolume}},
		{"ready", "", nil},
		{"to a log alone", "", []string{"--values", withLog, "--set", noVolume}},
		{"other values", "", []string{"--values", withLog, "--set", noVolume + ",config.log.level=debug"}},
		{"to a volume alone at once", "the state is only in the log", nil},
		{"back to a volume and a log", "", []string{"--values", withLog}},
		{"to a volume alone, not ready", "kubectl -n streams rollout status statefulset/deltabridge", nil},
		{"a volume and a log, not ready", "", []string{"--values", withLog, "--set", "config.log.level=debug"}},
		{"ready", "", nil},
		{"held by deltabridge-7d9f-x2x9k-abcde", "", nil},
		{"to a volume alone, not the leader", "kubectl -n streams get lease deltabridge", nil},
		{"held by deltabridge-0-abcde", "", nil},
		{"to a volume alone", "", nil},
	} {
		if step.name == "ready" {
			k.setReady(t)
			continue
		}
		if holder, ok := strings.CutPrefix(step.name, "held by "); ok {
			k.setHolder(t, holder)
			continue
		}
		verb := "upgrade"
		if step.name == "install" {
			verb = step.name
		}
		err := upgrade(verb, step.args...)
		if (err == nil) != (step.refusal == "") || err != nil && !strings.Contains(err.Error(), step.refusal) {
			t.Errorf("%s: %v, want %q", step.name, err, step.refusal)
		}
		k.podOf(t) // there is either a StatefulSet or a Deployment
	}
	k.helm(t, "uninstall", "deltabridge")
}

// setReady does what the controllers would do when the Pod of the StatefulSet is ready.
func (k *kube) setReady(t *testing.T) {
	t.Helper()
	sets := k.client.AppsV1().StatefulSets(namespace)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		set, err := sets.Get(t.Context(), "deltabridge", metav1.GetOptions{})
		if err != nil {
			return err
		}
		set.Status.ObservedGeneration, set.Status.Replicas, set.Status.ReadyReplicas = set.Generation, 1, 1
		set.Status.CurrentRevision, set.Status.UpdateRevision = "deltabridge-1", "deltabridge-1"
		_, err = sets.UpdateStatus(t.Context(), set, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// setHolder does what the bridge does with the Lease.
func (k *kube) setHolder(t *testing.T, holder string) {
	t.Helper()
	leases := k.client.CoordinationV1().Leases(namespace)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "deltabridge"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
	err := leases.Delete(t.Context(), lease.Name, metav1.DeleteOptions{})
	if err == nil || apierrors.IsNotFound(err) {
		_, err = leases.Create(t.Context(), lease, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// With a log, alerts fire if no replica is the leader, if the leader does not write the log, or if no standby can take
// over. The selectors match the Pods of the Deployment.
func TestAlertsOfReplicas(t *testing.T) {
	_, file := rules(t, "--values", withLog, "--set", noVolume)
	cases := `rule_files: [rules.yaml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: deltabridge_leader{namespace="streams",pod="deltabridge-6b7c8d9f5-abcde"}
        values: 1x10 0x20
      - series: deltabridge_leader{namespace="streams",pod="deltabridge-6b7c8d9f5-fghij"}
        values: 0x11 1x4 0x20
      - series: deltabridge_leader{namespace="streams",pod="deltabridge-other-6b7c8d9f5-fghij"}
        values: 1x30
    promql_expr_test:
      - {expr: 'count(ALERTS{alertname="DeltabridgeDown"})', eval_time: 14m}
      - {expr: 'count(ALERTS{alertname="DeltabridgeDown",alertstate="firing"})', eval_time: 20m, exp_samples: [{value: 1, labels: "{}"}]}
  - interval: 1m
    input_series:
      - series: deltabridge_leader{namespace="streams",pod="deltabridge-6b7c8d9f5-abcde"}
        values: 1x40
      - series: deltabridge_leader{namespace="streams",pod="deltabridge-6b7c8d9f5-fghij"}
        values: 0x40
      - series: deltabridge_state_log_last_commit_timestamp_seconds{namespace="streams",pod="deltabridge-6b7c8d9f5-abcde"}
        values: 0+60x10 600x30
      - series: deltabridge_state_log_last_commit_timestamp_seconds{namespace="streams",pod="deltabridge-6b7c8d9f5-fghij"}
        values: 0x40
    alert_rule_test:
      - {alertname: DeltabridgeStateLogSilent, eval_time: 15m}
      - alertname: DeltabridgeStateLogSilent
        eval_time: 18m
        exp_alerts:
          - exp_labels: {severity: critical, namespace: streams, pod: deltabridge-6b7c8d9f5-abcde}
            exp_annotations:
              summary: "The leader does not write the state log."
              description: "The last commit was 8m 0s ago. Events are still delivered. If the leader is lost now, a standby continues from that commit, and changes since then that the API server has forgotten are missing."
              runbook_url: https://github.com/deltabridge/deltabridge/blob/vVERSION/docs/operations.md#deltabridgestatelogsilent
  - interval: 1m
    input_series:
      - series: deltabridge_leader{namespace="streams",pod="deltabridge-6b7c8d9f5-abcde"}
        values: 1x60
      - series: deltabridge_leader{namespace="streams",pod="deltabridge-6b7c8d9f5-fghij"}
        values: 0x60
      - series: deltabridge_state_log_behind_commits{namespace="streams",pod="deltabridge-6b7c8d9f5-abcde"}
        values: 0x60
      - series: deltabridge_state_log_behind_commits{namespace="streams",pod="deltabridge-6b7c8d9f5-fghij"}
        values: 1x10 stale _x7 2x10 9x30
    alert_rule_test:
      - {alertname: DeltabridgeNoStandby, eval_time: 19m}
      - {alertname: DeltabridgeNoStandby, eval_time: 28m}
      - alertname: DeltabridgeNoStandby
        eval_time: 42m
        exp_alerts:
          - exp_labels: {severity: warning}
            exp_annotations:
              summary: "No standby of the bridge can take over."
              description: "If the leader is lost now, nothing is delivered until another replica has started and has read the state log."
              runbook_url: https://github.com/deltabridge/deltabridge/blob/vVERSION/docs/operations.md#deltabridgenostandby
`
	cases = strings.ReplaceAll(cases, "VERSION", chartVersion(t))
	tests := filepath.Join(filepath.Dir(file), "leader.test.yaml")
	if err := os.WriteFile(tests, []byte(cases), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "test", "rules", tests)
}

// With the rights and the configuration of the chart, one replica leads and another one takes over. No other Lease can be
// changed.
func TestReplicasRunWithTheirRights(t *testing.T) {
	k := startKube(t)
	dir := t.TempDir()
	kubeconfig, address := filepath.Join(dir, "kubeconfig"), natsserver.FreePort(t)
	values := fmt.Sprintf(`
replicas: 2
persistence: {enabled: false}
config:
  cluster: local
  kubeconfig: %q
  redactionKeyFile: %q
  state: {path: %q, log: {nats: {url: %q, stream: {create: true}}}}
  http: {listen: %q}
  watch:
    - resources: [configmaps]
      namespaces: [payments]
  sinks:
    - name: stdout
      stdout: {}
`, kubeconfig, writeFile(t, "key", strings.Repeat("k", 32)), dir+"/0", startNATS(t), address)
	k.helm(t, "install", "deltabridge", chartDir, "--values", writeFile(t, "values.yaml", values))
	account := k.asAccount(t, "deltabridge", kubeconfig)
	mounted, err := k.client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "deltabridge", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, second := mounted.Data["bridge.yaml"], natsserver.FreePort(t)
	file := writeFile(t, "bridge.yaml", config)
	k.expectDoctor(
		t,
		file,
		"lease streams/deltabridge: get, update, watch, create",
		"does not exist yet",
		"the bridge creates it",
	)
	first := startBridge(t, nil, []string{"run", "--config", file})
	first.waitReady(t, address)
	holder := k.leaseHolder(t)
	k.expectDoctor(
		t,
		file,
		"held by "+holder,
		`stream DELTABRIDGE_STATE: subjects ["deltabridge.state.DELTABRIDGE_STATE"]`,
	)
	config = strings.NewReplacer(dir+"/0", dir+"/1", address, second).Replace(config)
	other := startBridge(t, nil, []string{"run", "--config", writeFile(t, "bridge.yaml", config)})
	other.waitReady(t, second)
	if now := k.leaseHolder(t); holder == "" || now != holder {
		t.Errorf("%q leads, then %q", holder, now)
	}
	first.stop(t)
	eventually(t, func() error {
		if now := k.leaseHolder(t); now == "" || now == holder {
			return fmt.Errorf("%q leads", now)
		}
		return nil
	})
	other.waitReady(t, second)
	other.stop(t)
	for _, p := range []bridge{first, other} {
		if log, err := os.ReadFile(p.log); err != nil || strings.Contains(string(log), "right to use the lease") {
			t.Errorf("%v, a right is missing:\n%s", err, log)
		}
	}

	as, err := kubernetes.NewForConfig(account)
	if err != nil {
		t.Fatal(err)
	}
	leases := as.CoordinationV1().Leases(namespace)
	mine := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "another"}}
	if mine, err = leases.Create(t.Context(), mine, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := leases.Update(t.Context(), mine, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("another Lease can be updated: %v", err)
	}
	if err := leases.Delete(t.Context(), "deltabridge", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the Lease can be deleted: %v", err)
	}
}

// expectDoctor runs what `helm test` runs.
func (k *kube) expectDoctor(t *testing.T, config string, want ...string) {
	t.Helper()
	out, _, err := command(
		t,
		tools.bridge,
		append(slices.Clone(k.testPod(t).Spec.Containers[0].Args), "--config", config)...)
	if err != nil {
		t.Error(err)
	}
	for _, text := range want {
		if !strings.Contains(out, text) {
			t.Errorf("no %q in\n%s", text, out)
		}
	}
}

// leaseHolder returns the process that holds the Lease of the release.
func (k *kube) leaseHolder(t *testing.T) string {
	t.Helper()
	lease, err := k.client.CoordinationV1().Leases(namespace).Get(t.Context(), "deltabridge", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return *cmp.Or(lease.Spec.HolderIdentity, new(string))
}
