package config

import (
	"strings"
	"testing"
)

// Entries that overlap are refused only where they select by fields that can't be looked at here.
func TestOverlaps(t *testing.T) {
	for _, tt := range []struct{ name, a, b, at string }{
		{"different nodes", "{resources: [pods], fieldSelector: spec.nodeName=a}", "{resources: [pods], fieldSelector: spec.nodeName=b}", "watch[1].fieldSelector"},
		{"the same in another order", "{resources: [pods], fieldSelector: 'a=b,c=d'}", "{resources: [pods], labelSelector: x, fieldSelector: 'c=d,a==b'}", ""},
		{"fields and labels", "{resources: [pods], fieldSelector: spec.nodeName=a}", "{resources: [pods], labelSelector: app=x}", "watch[0].fieldSelector"},
		{"fields, and all", "{resources: [pods], fieldSelector: spec.nodeName=a}", "{resources: [pods]}", ""},
		{"labels", "{resources: [pods], labelSelector: app=x}", "{resources: [pods], labelSelector: app=y}", ""},
		{"names", "{resources: [pods], fieldSelector: metadata.name=a}", "{resources: [pods], fieldSelector: metadata.name=b}", ""},
		{"a name and a node", "{resources: [pods], fieldSelector: metadata.name=a}", "{resources: [pods], fieldSelector: spec.nodeName=b}", "watch[1].fieldSelector"},
		{"other resources", "{resources: [pods], fieldSelector: spec.nodeName=a}", "{resources: [nodes, 'pods.metrics.k8s.io'], fieldSelector: spec.x=b}", ""},
		{"a wildcard", "{resources: ['p*'], fieldSelector: a=b}", "{resources: [pods], fieldSelector: c=d}", "watch[1].fieldSelector"},
		{"a wildcard without it", "{resources: ['*'], exclude: [pods], fieldSelector: a=b}", "{resources: [pods], fieldSelector: c=d}", ""},
		{"wildcards", "{resources: ['*.apps'], fieldSelector: a=b}", "{resources: ['d*'], fieldSelector: c=d}", "watch[1].fieldSelector"},
		{"wildcards of other groups", "{resources: ['*.apps'], fieldSelector: a=b}", "{resources: ['*.batch'], fieldSelector: c=d}", ""},
		{"versions", "{resources: [jobs.v1.batch], fieldSelector: a=b}", "{resources: [jobs.batch], fieldSelector: c=d}", "watch[1].fieldSelector"},
		{"other namespaces", "{resources: [pods], namespaces: [a], fieldSelector: a=b}", "{resources: [pods], namespaces: [b], fieldSelector: c=d}", ""},
		{"a namespace of both", "{resources: [pods], namespaces: [a, b], fieldSelector: a=b}", "{resources: [pods], namespaces: [b], fieldSelector: c=d}", "watch[1].fieldSelector"},
		{"a namespace within", "{resources: [pods], namespaces: ['a*'], fieldSelector: a=b}", "{resources: [pods], namespaces: [b, ab], fieldSelector: c=d}", "watch[1].fieldSelector"},
		{"a namespace outside", "{resources: [pods], namespaces: ['a*'], fieldSelector: a=b}", "{resources: [pods], namespaces: [b], fieldSelector: c=d}", ""},
		{"all of a namespace", "{resources: [pods], namespaces: [a]}", "{resources: [pods], fieldSelector: c=d}", ""},
		{"all of some namespaces", "{resources: [pods], namespaces: ['a*']}", "{resources: [pods], fieldSelector: c=d}", "watch[1].fieldSelector"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("f.yaml", []byte("watch:\n  - "+tt.a+"\n  - "+tt.b+"\nsinks: [{name: out, stdout: {}}]\n"))
			switch {
			case tt.at == "" && err != nil:
				t.Error(err)
			case tt.at != "" && (err == nil || !strings.Contains(err.Error(), tt.at)):
				t.Errorf("want a mistake at %s, got %v", tt.at, err)
			}
		})
	}
}
