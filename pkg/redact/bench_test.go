package redact

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkRedact is what each object costs where it is read.
func BenchmarkRedact(b *testing.B) {
	document := func(kind, value, annotation string) string {
		data := ""
		for n := 0; len(data) < 2200; n++ {
			data += fmt.Sprintf(`,"key-%d":%q`, n, value)
		}
		return `{"kind":"` + kind + `","apiVersion":"v1","metadata":{"name":"settings-0","namespace":"shop","annotations":{"` + annotation + `":"x"}},"data":{` + data[1:] + `}}`
	}
	file := func(line string) string {
		return `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"settings-0"},"data":{"file":"` +
			strings.Repeat(line, 2200/len(line)) + `"}}`
	}
	maps := resource("", "v1", "configmaps")
	for _, bench := range []struct {
		name, raw string
		rules     []Rule
	}{
		{"nothing", document("ConfigMap", "configuration", "team"), nil},
		{"nothing, with escapes", document("ConfigMap", "a\nb", "team"), nil},
		{"nothing, a file", file(`server.client.cache=12345\n`), nil},
		{"nothing, escaped HTML", file(`server.client.cache=12345\u003e`), nil},
		{"last applied", document("ConfigMap", "configuration", lastApplied), nil},
		{"a path", document("ConfigMap", "configuration", "team"), []Rule{{Paths: mustPaths(b, "data.key-0")}}},
		{"secret", document("Secret", strings.Repeat("c2VjcmV0", 8), "team"), nil},
	} {
		b.Run(bench.name, func(b *testing.B) {
			o, r := mustObject(b, bench.raw), New(testKey(), bench.rules...)
			b.ReportAllocs()
			b.SetBytes(int64(len(o.Raw)))
			for b.Loop() {
				if _, err := r.Redact(maps, o, o.Raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
