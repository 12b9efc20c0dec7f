package chart

import (
	"encoding/json"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
)

// The Pod has a token unless the bridge has a kubeconfig; the account itself gives none away.
func TestToken(t *testing.T) {
	for set, want := range map[string]bool{"tests.enabled=true": true, "config.kubeconfig=/etc/deltabridge/credentials/kube/config": false} {
		spec := statefulSet(t, template(t, "--set", set)).Spec.Template.Spec
		if got := spec.AutomountServiceAccountToken; got == nil || *got != want {
			t.Errorf("%s: token mounted: %v, want %v", set, got, want)
		}
	}
}

// The state is on a claim of its own, on a given one, or on none; the storage class is the default, a given one, or
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
	for set, want := range map[string]string{"persistence.existingClaim=mine": "mine", "persistence.enabled=false": ""} {
		sts := statefulSet(t, template(t, "--set", set))
		volumes, got := sts.Spec.Template.Spec.Volumes, ""
		state := volumes[len(volumes)-1]
		if state.PersistentVolumeClaim != nil {
			got = state.PersistentVolumeClaim.ClaimName
		}
		if len(sts.Spec.VolumeClaimTemplates) > 0 || state.Name != "state" || got != want ||
			(state.EmptyDir != nil) != (want == "") {
			t.Errorf("%s: %+v", set, state)
		}
	}
}

// The network policy opens the ports of the brokers as the configuration has them, and the port of the metrics.
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
	} {
		var kind map[string]any
		if err := json.Unmarshal([]byte(sink), &kind); err != nil {
			t.Fatal(err)
		}
		kind["name"] = "a"
		values, err := json.Marshal(
			map[string]any{"config": map[string]any{"http": map[string]any{"listen": "0.0.0.0:9999"}, "sinks": []any{kind}}},
		)
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
		if rules := policy.Spec.Egress[2:]; len(rules) > 0 {
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
