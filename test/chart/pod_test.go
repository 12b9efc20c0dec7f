package chart

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// The Pod has a token unless the bridge has a kubeconfig; the account itself gives none away.
func TestToken(t *testing.T) {
	for set, want := range map[string]bool{"enabled=true": true, "config.kubeconfig=/etc/deltabridge/credentials/kube/config": false} {
		spec := statefulSet(t, template(t, "--set", set)).Spec.Template.Spec
		if got := spec.AutomountServiceAccountToken; got == nil || *got != want {
			t.Errorf("%s: token mounted: %v, want %v", set, got, want)
		}
	}
}

// The state is on a claim of its own, on a given one, or in an emptyDir; the storage class is the default, a given one, or
// none.
func TestState(t *testing.T) {
	class := func(set string) *string {
		return statefulSet(t, template(t, "--set", set)).Spec.VolumeClaimTemplates[0].Spec.StorageClassName
	}
	if got := class("persistence.storageClass="); got != nil {
		t.Errorf("storage class %q, want none named", *got)
	}
	for set, want := range map[string]string{"persistence.storageClass=fast": "fast", "persistence.storageClass=-": ""} {
		if got := class(set); got == nil || *got != want {
			t.Errorf("%s: storage class %v", set, got)
		}
	}
	sts := statefulSet(t, template(t, "--set", "persistence.existingClaim=mine"))
	volumes := sts.Spec.Template.Spec.Volumes
	state := volumes[len(volumes)-1]
	if len(sts.Spec.VolumeClaimTemplates) > 0 || state.Name != "state" || state.PersistentVolumeClaim == nil ||
		state.PersistentVolumeClaim.ClaimName != "mine" {
		t.Errorf("existing claim: %+v", state)
	}
	volumes = bridgePod(t, template(t, "--values", withLog, "--set", "persistence.enabled=false")).Spec.Volumes
	state = volumes[len(volumes)-1]
	if state.Name != "state" || state.EmptyDir == nil || state.EmptyDir.SizeLimit.String() != "8Gi" {
		t.Errorf("without persistence: %+v", state)
	}
}

// The network policy opens the ports of the brokers as the configuration has them, including that of the state log, and
// the port of the metrics.
func TestPorts(t *testing.T) {
	for sink, want := range map[string][]int32{
		`{"stdout": {}}`: nil,
		`{"nats": {"url": "nats://a,nats://b:4333,tls://c:4222/"}}`:      {4222, 4333},
		`{"nats": {"url": "ws://a,wss://b,wss://c:8443"}}`:               {80, 443, 8443},
		`{"nats": {"url": "nats://[::1]:4444"}}`:                         {4444},
		`{"kafka": {"brokers": ["a:9092", "b:9093", "[fe80::1]:9094"]}}`: {9092, 9093, 9094},
		`{"oversize": "claimCheck", "claimCheck": {"bucket": "b", "nats": {"url": "nats://c:4333,nats://d"}}, "kafka": {"brokers": ["a:9092"]}}`: {4222, 4333, 9092},
		`{"kafka": {"brokers": ["a:9092"], "sasl": {"oauth": {"tokenUrl": "https://b/token"}}}}`:                                                 {443, 9092},
		`{"kafka": {"brokers": ["a:9092"], "sasl": {"oauth": {"tokenUrl": "https://b:8443/a:1/token?b=c"}}}}`:                                    {8443, 9092},
		`{"kafka": {"brokers": ["a:9092"], "schemaRegistry": {"url": "http://b:8081/apis", "format": "avro"}}}`:                                  {8081, 9092},
		`{"stdout": {}, "log": {"nats": {"url": "nats://a:4333,tls://b"}}}`:                                                                      {4222, 4333},
		`{"nats": {"url": "nats://${HOST}:4333,${URL},nats://a:${PORT}"}}`:                                                                       {4333},
		`{"kafka": {"brokers": ["${HOST}:9092", "a:${PORT}", "${ADDRESS}"]}}`:                                                                    {9092},
		`{"nats": {"url": "a"}, "log": {"kafka": {"brokers": ["b:9092"], "topic": "t"}}}`:                                                        {4222, 9092},
	} {
		var kind map[string]any
		if err := json.Unmarshal([]byte(sink), &kind); err != nil {
			t.Fatal(err)
		}
		kind["name"] = "a"
		config := map[string]any{"http": map[string]any{"listen": "0.0.0.0:9999"}, "sinks": []any{kind}}
		if log := kind["log"]; log != nil {
			delete(kind, "log")
			config["state"], config["redactionKeyFile"] = map[string]any{"log": log}, "/key"
		}
		values, err := json.Marshal(map[string]any{"config": config})
		if err != nil {
			t.Fatal(err)
		}
		out := template(
			t,
			"--set",
			"networkPolicy.enabled=true",
			"--show-only",
			"templates/networkpolicy.yaml",
			"--values",
			writeFile(t, "values.yaml", string(values)),
		)
		var policy networkingv1.NetworkPolicy
		object := objects(t, out)[0]
		object.decode(t, &policy)
		var got []int32
		if rules := policy.Spec.Egress[2:]; len(rules) > 1 { // the last one is for the other Pods
			for _, p := range rules[0].Ports {
				got = append(got, p.Port.IntVal)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: ports %v, want %v", sink, got, want)
		}
		if in := policy.Spec.Ingress[0].Ports[0].Port.IntVal; in != 9999 {
			t.Errorf("port of the metrics: %d", in)
		}
	}
}

// With MSK IAM, the network policy also opens the ways to AWS credentials, whatever the API server's address is.
func TestPortsForIAM(t *testing.T) {
	out := template(t, "--values", chartDir+"/examples/msk.yaml", "--show-only", "templates/networkpolicy.yaml",
		"--set", "networkPolicy.apiServerPeers[0].ipBlock.cidr=10.0.0.1/32")
	var policy networkingv1.NetworkPolicy
	objects(t, out)[0].decode(t, &policy)
	rules := policy.Spec.Egress[4:]
	if len(rules) != 2 || rules[0].To[0].IPBlock.CIDR != "169.254.170.23/32" || rules[0].Ports[0].Port.IntVal != 80 ||
		len(rules[1].To) != 0 || rules[1].Ports[0].Port.IntVal != 443 {
		t.Errorf("%+v", rules)
	}
}

// Other Pods reach an embedded server only if it does not listen on a loopback address.
func TestEmbeddedServer(t *testing.T) {
	for listen, want := range map[string]int{
		"127.0.0.1:4222": 0, "localhost:4222": 0, "[::1]:4222": 0, ":4222": 1, "0.0.0.0:4222": 1,
	} {
		sink := `[{"name": "a", "nats": {"embedded": {"listen": "` + listen + `"}}}]`
		out := template(t, "--set", "networkPolicy.enabled=true", "--set-json", "config.sinks="+sink)
		got := map[string]int{"container": len(statefulSet(t, out).Spec.Template.Spec.Containers[0].Ports) - 1}
		for _, o := range objects(t, out) {
			switch o.Kind {
			case "Service":
				var service corev1.Service
				o.decode(t, &service)
				got["Service"] = len(service.Spec.Ports) - 1
			case "NetworkPolicy":
				var policy networkingv1.NetworkPolicy
				o.decode(t, &policy)
				got["NetworkPolicy"] = len(policy.Spec.Ingress) - 2
			}
		}
		if diff := cmp.Diff(map[string]int{"container": want, "Service": want, "NetworkPolicy": want}, got); diff != "" {
			t.Errorf("%s: ports (-want +got):\n%s", listen, diff)
		}
	}
}

// The Pod of `helm test` is like that of the bridge: NetworkPolicies, admission and workload identity treat both alike.
// Only the Service does not select it: it would count as a replica. A failed test prints its log.
func TestTestPod(t *testing.T) {
	out := template(t, "--values", chartDir+"/examples/everything.yaml")
	bridge := statefulSet(t, out).Spec.Template
	var pod corev1.Pod
	for _, o := range objects(t, out) {
		if o.Kind == "Pod" {
			o.decode(t, &pod)
		}
	}
	for _, o := range objects(t, out) {
		var service corev1.Service
		if o.Kind != "Service" {
			continue
		}
		o.decode(t, &service)
		selector := labels.SelectorFromSet(service.Spec.Selector)
		if !selector.Matches(labels.Set(bridge.Labels)) || selector.Matches(labels.Set(pod.Labels)) {
			t.Errorf("the Service selects %v", service.Spec.Selector)
		}
	}
	const component = "app.kubernetes.io/component"
	pod.Labels[component] = bridge.Labels[component]
	if diff := cmp.Diff(bridge.Labels, pod.Labels); diff != "" {
		t.Errorf("labels: %s", diff)
	}
	for key, want := range map[string]string{
		"helm.sh/hook": "test", "helm.sh/hook-output-log-policy": "hook-failed", "example.com/pod": "yes",
	} {
		if got := pod.Annotations[key]; got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	want, got := bridge.Spec.DeepCopy(), pod.Spec.DeepCopy()
	for _, spec := range []*corev1.PodSpec{want, got} { // these differ
		c := &spec.Containers[0]
		c.Name, c.Args, c.Ports, c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = "", nil, nil, nil, nil, nil
		spec.Containers, spec.RestartPolicy, spec.TerminationGracePeriodSeconds = spec.Containers[:1], "", nil
		spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == "state" })
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-bridge +test:\n%s", diff)
	}
}

// A Pod that never became ready does not block an upgrade that repairs it.
func TestUpgradesReplaceAnyPod(t *testing.T) {
	if policy := statefulSet(t, template(t)).Spec.PodManagementPolicy; policy != appsv1.ParallelPodManagement {
		t.Errorf("podManagementPolicy is %q", policy)
	}
}
