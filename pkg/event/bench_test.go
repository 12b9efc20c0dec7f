package event

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/redact"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// BenchmarkEncode is one change for one sink: from the event to the message.
func BenchmarkEncode(b *testing.B) {
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	plain := benchObject(b, "ConfigMap", "configuration")
	secret := benchObject(b, "Secret", strings.Repeat("c2VjcmV0", 8))
	key, err := ParseTemplate("{group}/{resource}/{namespace}/{name}", EscapeNone)
	if err != nil {
		b.Fatal(err)
	}
	redactor := redact.New([]byte(strings.Repeat("k", 32)))
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	before, after := mustObject(b, deploymentBefore), withManagers(b, deploymentAfter)
	for _, bench := range []struct {
		name     string
		encoder  *Encoder
		resource schema.GroupVersionResource
		object   *object.Object
		old      *object.Object
	}{
		{"object", &Encoder{Redactor: redactor}, configMaps, plain, plain},
		{"object with a key", &Encoder{Redactor: redactor, PartitionKey: key}, configMaps, plain, plain},
		{"metadata", &Encoder{Redactor: redactor, Payload: PayloadMetadata}, configMaps, plain, plain},
		{"secret", &Encoder{Redactor: redactor}, secrets, secret, secret},
		{"change", &Encoder{Redactor: redactor, Payload: PayloadChange}, configMaps, plain, plain},
		{"change with a patch", &Encoder{Redactor: redactor, Payload: PayloadChange}, deployments, after, before},
		{"debezium", &Encoder{Redactor: redactor, Payload: PayloadDebezium}, configMaps, plain, plain},
	} {
		b.Run(bench.name, func(b *testing.B) {
			bench.encoder.Cluster = "prod-eu-1"
			ev := Event{Type: Updated, Time: seen, Resource: bench.resource, Object: bench.object, Old: bench.old}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := bench.encoder.Encode(ev); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAttributes is what a sink does with a message before it is sent.
func BenchmarkAttributes(b *testing.B) {
	encoder := Encoder{Cluster: "prod-eu-1"}
	m, err := encoder.Encode(
		Event{Type: Updated, Time: seen, Resource: pods, Object: benchObject(b, "Pod", "configuration")},
	)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("binary", func(b *testing.B) {
		b.ReportAllocs()
		size := 0
		for b.Loop() {
			m.Headers(func(name, value string) bool { size += len(name) + len(value); return true })
		}
	})
	b.Run("structured", func(b *testing.B) {
		b.ReportAllocs()
		var buf []byte
		for b.Loop() {
			buf = m.AppendStructured(buf[:0])
		}
	})
}

// benchObject is an object of 2.6 KB.
func benchObject(b *testing.B, kind, value string) *object.Object {
	b.Helper()
	data := ""
	for n := 0; len(data) < 2200; n++ {
		data += fmt.Sprintf(`,"key-%d":%q`, n, value)
	}
	return mustObject(
		b,
		`{"kind":"`+kind+`","apiVersion":"v1","metadata":{"name":"settings-0","namespace":"shop","uid":"5e0c4f3a-8d21-4b7e-9c55-000000000001",`+
			`"resourceVersion":"123456","creationTimestamp":"2026-03-01T08:00:00Z","labels":{"app.kubernetes.io/name":"shop","tier":"backend"}},"data":{`+data[1:]+`}}`,
	)
}
