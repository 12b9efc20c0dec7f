package filter

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// benchPod is a Pod of about 5 KB as an API server sends it, compact, without managedFields.
func benchPod(tb testing.TB, phase string) []byte {
	tb.Helper()
	container := func(name string) map[string]any {
		env := []any{}
		for i := range 8 {
			env = append(
				env,
				map[string]any{"name": fmt.Sprintf("SETTING_%d", i), "value": fmt.Sprintf("value %d of the container %q", i, name)},
			)
		}
		return map[string]any{
			"name":            name,
			"image":           "registry.example.com/shop/" + name + ":v1.2.3",
			"imagePullPolicy": "IfNotPresent",
			"env":             env,
			"resources": map[string]any{
				"limits":   map[string]any{"cpu": "500m", "memory": "512Mi"},
				"requests": map[string]any{"cpu": "100m", "memory": "128Mi"},
			},
			"readinessProbe": map[string]any{
				"httpGet":        map[string]any{"path": "/ready", "port": 8080, "scheme": "HTTP"},
				"periodSeconds":  10,
				"timeoutSeconds": 1,
			},
			"terminationMessagePath":   "/dev/termination-log",
			"terminationMessagePolicy": "File",
			"volumeMounts": []any{
				map[string]any{
					"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
					"name":      "kube-api-access",
					"readOnly":  true,
				},
			},
		}
	}
	conditions := []any{}
	for _, kind := range []string{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		conditions = append(
			conditions,
			map[string]any{
				"type":               kind,
				"status":             "True",
				"lastProbeTime":      nil,
				"lastTransitionTime": "2026-05-04T03:02:01Z",
				"observedGeneration": 1,
			},
		)
	}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "v1",
		"kind":       "Pod",
		"metadata": map[string]any{
			"name":              "web-7d4b9c6f5-x2x4z",
			"generateName":      "web-7d4b9c6f5-",
			"namespace":         "team-a",
			"generation":        1,
			"uid":               "5c9a4a1e-4a3e-4e0b-9b1f-2f6a1c7d8e90",
			"resourceVersion":   "123456",
			"creationTimestamp": "2026-05-04T03:02:00Z",
			"labels": map[string]any{
				"app.kubernetes.io/name":    "web",
				"app.kubernetes.io/part-of": "shop",
				"pod-template-hash":         "7d4b9c6f5",
			},
			"annotations": map[string]any{"example.com/config": `{"a":"b \"c\" [d] {e}"}`, "prometheus.io/scrape": "true"},
			"ownerReferences": []any{
				map[string]any{
					"apiVersion": "apps/v1",
					"kind":       "ReplicaSet",
					"name":       "web-7d4b9c6f5",
					"uid":        "0b0e8d5c-8f7a-4b47-93c9-1d2e3f4a5b6c",
					"controller": true,
				},
			},
		},
		"spec": map[string]any{
			"containers": []any{
				container("web"),
				container("proxy"),
			},
			"nodeName":                      "node-17",
			"dnsPolicy":                     "ClusterFirst",
			"priority":                      0,
			"serviceAccountName":            "web",
			"terminationGracePeriodSeconds": 30,
			"restartPolicy":                 "Always",
			"schedulerName":                 "default-scheduler",
			"tolerations": []any{
				map[string]any{
					"effect":            "NoExecute",
					"key":               "node.kubernetes.io/not-ready",
					"operator":          "Exists",
					"tolerationSeconds": 300,
				},
			},
		},
		"status": map[string]any{
			"phase":      phase,
			"podIP":      "10.244.3.17",
			"hostIP":     "192.168.1.17",
			"qosClass":   "Burstable",
			"startTime":  "2026-05-04T03:02:00Z",
			"conditions": conditions,
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

// BenchmarkFilter is one update through a sink's filter: the new state's membership, and whether the change is sent.
// The old state was decided before, as in the running bridge.
func BenchmarkFilter(b *testing.B) {
	const ops = "updated"
	before, after := benchPod(b, "Pending"), benchPod(b, "Running")
	b.Logf("a Pod of %d bytes", len(after))
	for _, bench := range []struct {
		name string
		rule Rule
	}{
		{"none", Rule{}},
		{"namespace", Rule{Namespaces: []string{"team-*", "!team-b"}}},
		{"namespace and operation", Rule{Namespaces: []string{"team-*", "!team-b"}, Operations: []string{ops}}},
		{"field", Rule{When: "object.status.phase == 'Running'"}},
		{"optional field", Rule{When: "object.?metadata.?labels['app.kubernetes.io/name'].orValue('') == 'web'"}},
		{"three fields", Rule{When: "has(object.status.phase) && object.status.phase == 'Running' && object.spec.nodeName != ''"}},
		{"loop", Rule{When: "object.spec.containers.exists(c, c.image.startsWith('registry.example.com/'))"}},
		{"field of both", Rule{When: "old == null || object.status.phase != old.status.phase"}},
		{"whole spec of both", Rule{When: "old == null || object.spec == old.spec"}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			r := mustCompile(
				b,
				[]Rule{bench.rule},
				Options{OnError: func(_ int, err error) { b.Error(err) }},
			).For(gvr(b, "/v1/pods"))
			b.ReportAllocs()
			for b.Loop() {
				old := &object.Object{Identity: object.Identity{Namespace: "team-a"}, Raw: before}
				o := &object.Object{Identity: object.Identity{Namespace: "team-a"}, Raw: after}
				if !r.Belongs(o) || !r.Sends(event.Updated, old, o) {
					b.Fatal("refused")
				}
			}
		})
	}
}

// BenchmarkDecode is what an expression would pay first if it had no view of the JSON.
func BenchmarkDecode(b *testing.B) {
	raw := benchPod(b, "Running")
	b.ReportAllocs()
	for b.Loop() {
		var view map[string]any
		if err := utiljson.Unmarshal(raw, &view); err != nil {
			b.Fatal(err)
		}
	}
}
