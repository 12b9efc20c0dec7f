package enrich

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// podJSON is a Pod of 4 KB, with the labels and the owner that one has.
func podJSON(n int) string {
	return fmt.Sprintf(
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-%[1]d-%05[2]d","generateName":"web-%[1]d-","namespace":"shop","uid":"6f0c7a52-1d0e-4c77-9a3c-%012[2]d","resourceVersion":"48213",`+
			`"creationTimestamp":"2026-11-20T12:25:53Z","labels":{"app":"web","app.kubernetes.io/part-of":"shop","pod-template-hash":"%[1]d"},`+
			`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-%[1]d","uid":"7a0c7a52-1d0e-4c77-9a3c-%012[1]d","controller":true,"blockOwnerDeletion":true}]},`+
			`"spec":{"containers":[{"name":"web","image":"web:2","args":[%[3]q]}]}}`,
		n/10,
		n,
		strings.Repeat("x", 3500),
	)
}

func setJSON(n int) string {
	return fmt.Sprintf(
		`{"kind":"ReplicaSet","apiVersion":"apps/v1","metadata":{"name":"web-%[1]d","namespace":"shop","uid":"7a0c7a52-1d0e-4c77-9a3c-%012[1]d","resourceVersion":"1",`+
			`"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web-%[1]d","uid":"8b0c7a52-1d0e-4c77-9a3c-%012[1]d","controller":true}]}}`,
		n,
	)
}

// BenchmarkUpdate is what an update of a Pod costs: to learn of it, and the context of its event.
func BenchmarkUpdate(b *testing.B) {
	for _, c := range []struct {
		name  string
		needs Needs
	}{{"owner", Needs{Owner: true}}, {"namespaceLabels", Needs{NamespaceLabels: true}}, {"all", all}} {
		b.Run(c.name, func(b *testing.B) {
			x := New(Options{Needs: c.needs})
			handlerOf(
				x,
				"namespaces",
			).OnAdd(parsed(b, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"shop","uid":"n","labels":{"team":"shop","kubernetes.io/metadata.name":"shop"}}}`), true)
			handlerOf(x, "replicasets.apps").OnAdd(parsed(b, setJSON(1)), true)
			pods, pod := handlerOf(x, "pods"), parsed(b, podJSON(12))
			pods.OnAdd(pod, true)
			b.ReportAllocs()
			for b.Loop() {
				pods.OnUpdate(pod, pod)
				if *x.Context(gvr("pods"), pod, c.needs) == (event.Context{}) {
					b.Fatal("nothing is known")
				}
			}
		})
	}
}

// BenchmarkEvent is what a Kubernetes Event of a Pod costs.
func BenchmarkEvent(b *testing.B) {
	x := New(Options{Needs: all})
	handlerOf(x, "replicasets.apps").OnAdd(parsed(b, setJSON(1)), true)
	handlerOf(x, "pods").OnAdd(parsed(b, podJSON(12)), true)
	events := handlerOf(x, "events")
	ev := parsed(
		b,
		`{"kind":"Event","apiVersion":"v1","metadata":{"name":"web-1-abcde.17","namespace":"shop","uid":"e","resourceVersion":"48214","creationTimestamp":"2026-11-20T12:25:53Z"},`+
			`"involvedObject":{"kind":"Pod","namespace":"shop","name":"web-1-abcde","uid":"6f0c7a52-1d0e-4c77-9a3c-000000000012","apiVersion":"v1","fieldPath":"spec.containers{web}"},`+
			`"reason":"Started","message":"Started container web","source":{"component":"kubelet"},"type":"Normal"}`,
	)
	b.ReportAllocs()
	for b.Loop() {
		events.OnAdd(ev, false)
		if c := x.Context(gvr("events"), ev, all); c.Owner.Kind != "Deployment" || c.InvolvedLabels == "" {
			b.Fatal(c)
		}
	}
}

// BenchmarkMemory tells what a Pod's fact takes, with ten Pods to a ReplicaSet.
func BenchmarkMemory(b *testing.B) {
	for _, c := range []struct {
		name  string
		needs Needs
	}{{"owner", Needs{Owner: true}}, {"all", all}} {
		b.Run(c.name, func(b *testing.B) {
			const objects = 50_000
			for b.Loop() {
				if bytes := factBytes(b, c.needs, objects); bytes > 400 {
					b.Errorf("%d bytes", bytes)
				} else {
					b.ReportMetric(float64(bytes), "bytes/fact")
				}
			}
		})
	}
}

func factBytes(t testing.TB, needs Needs, objects int) int {
	x := New(Options{Needs: needs})
	pods := handlerOf(x, "pods")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for n := range objects {
		o := parsed(t, podJSON(n))
		pods.OnAdd(o, true)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if facts(x) != objects {
		t.Fatalf("%d facts", facts(x))
	}
	runtime.KeepAlive(x)
	return int(after.HeapAlloc-before.HeapAlloc) / objects
}

// A fact is small, and holds nothing of its object.
func TestMemory(t *testing.T) {
	if bytes := factBytes(t, all, 5000); bytes > 400 {
		t.Errorf("a fact takes %d bytes", bytes)
	}
}
