package config

import (
	"fmt"
	"strings"
	"testing"
)

// Entries that may select the same objects must have the same selectors.
func TestOverlaps(t *testing.T) {
	for _, tt := range []struct {
		name, a, b string
		conflict   bool
	}{
		{"labels", "{resources: [pods], labelSelector: app=x}", "{resources: [pods], labelSelector: app=y}", true},
		{"fields", "{resources: [pods], fieldSelector: a=b}", "{resources: [pods], fieldSelector: a=c}", true},
		{"fields and labels", "{resources: [pods], fieldSelector: a=b}", "{resources: [pods], labelSelector: app=x}", true},
		{"labels, and all", "{resources: [pods], labelSelector: app=x}", "{resources: [nodes, pods]}", true},
		{"no selectors", "{resources: [pods]}", "{resources: ['*'], namespaces: [a]}", false},
		{
			"the same in another order", "{resources: [pods], labelSelector: 'x,a in (c,b)', fieldSelector: 'a=b,c=d'}",
			"{resources: [pods], labelSelector: 'a in (b, c),x', fieldSelector: 'c=d,a==b'}", false,
		},
		{"other resources", "{resources: [pods]}", "{resources: [nodes, 'pods.metrics.k8s.io'], labelSelector: x}", false},
		{"a wildcard", "{resources: ['p*']}", "{resources: [pods], labelSelector: x}", true},
		{"another wildcard", "{resources: ['n*']}", "{resources: [pods], labelSelector: x}", false},
		{"excluded", "{resources: ['*'], exclude: [pods]}", "{resources: [pods], labelSelector: x}", false},
		{"excluded by a wildcard", "{resources: ['*'], exclude: ['p*.?*', 'po*']}", "{resources: [pods], labelSelector: x}", false},
		{"excluded in the other entry", "{resources: [pods]}", "{resources: ['*'], exclude: [pods], labelSelector: x}", false},
		{"another is excluded", "{resources: ['*'], exclude: [pods.v1.apps]}", "{resources: [pods], labelSelector: x}", true},
		{"a version is excluded", "{resources: ['*'], exclude: [jobs.v1.batch]}", "{resources: [jobs.batch], labelSelector: x}", true},
		{"its version is excluded", "{resources: ['*'], exclude: [jobs.v1.batch]}", "{resources: [jobs.v1.batch], labelSelector: x}", false},
		{"an excluded group", "{resources: ['*'], exclude: ['*.example.com']}", "{resources: ['*.example.com'], labelSelector: x}", false},
		{"another group", "{resources: ['*'], exclude: ['*.example.com']}", "{resources: ['*.example.org'], labelSelector: x}", true},
		{"wildcards", "{resources: ['*.apps']}", "{resources: ['d*'], labelSelector: x}", true},
		{"wildcards of other groups", "{resources: ['*.apps']}", "{resources: ['*.batch'], labelSelector: x}", false},
		{"versions", "{resources: [jobs.v1.batch]}", "{resources: [jobs.batch], labelSelector: x}", true},
		{"other versions", "{resources: [jobs.v1.batch]}", "{resources: [jobs.v1beta1.batch], labelSelector: x}", false},
		{"other namespaces", "{resources: [pods], namespaces: [a]}", "{resources: [pods], namespaces: [b], labelSelector: x}", false},
		{"a namespace of both", "{resources: [pods], namespaces: [a, b]}", "{resources: [pods], namespaces: [b], labelSelector: x}", true},
		{"a namespace within", "{resources: [pods], namespaces: ['a*']}", "{resources: [pods], namespaces: [b, ab], labelSelector: x}", true},
		{"a namespace outside", "{resources: [pods], namespaces: ['a*']}", "{resources: [pods], namespaces: [b], labelSelector: x}", false},
		{"an excluded namespace", "{resources: [pods], namespaces: ['!a']}", "{resources: [pods], namespaces: [a], labelSelector: x}", false},
		{"all namespaces", "{resources: [pods]}", "{resources: [pods], namespaces: [a], labelSelector: x}", true},
		{"globs share a watch", "{resources: [pods], namespaces: ['a*']}", "{resources: [pods], namespaces: ['b*'], labelSelector: x}", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, entries := range [][2]string{{tt.a, tt.b}, {tt.b, tt.a}} {
				text := fmt.Sprintf("watch:\n  - %s\n  - %s\nsinks: [{name: out, stdout: {}}]\n", entries[0], entries[1])
				_, err := Parse("f.yaml", []byte(text))
				const want = "f.yaml:3:5: watch[1]: may select the same objects as watch[0] (line 2, column 5)"
				if (err != nil) != tt.conflict || tt.conflict && !strings.Contains(err.Error(), want) {
					t.Error(err)
				}
			}
		})
	}
}

// What only enrichment reads has no selectors, and is exempt.
func TestAuxiliaryOverlaps(t *testing.T) {
	if _, err := Parse("f.yaml", []byte(`
watch: [{resources: [pods, deployments.apps, namespaces], labelSelector: app=x}]
sinks: [{name: out, stdout: {}, enrich: {owner: true, involvedObject: true, namespaceLabels: true}}]
`)); err != nil {
		t.Error(err)
	}
}
