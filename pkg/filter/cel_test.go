package filter

import "testing"

// Whether an expression is a condition on the change depends on what it speaks of, not on what words are in it.
func TestWhatAnExpressionSpeaksOf(t *testing.T) {
	env, err := newEnv(varObject)
	if err != nil {
		t.Fatal(err)
	}
	for text, onChange := range map[string]bool{
		"true":                                                     false,
		"object.kind == 'Pod'":                                     false,
		"object.old == 1":                                          false,
		"object['operation'] == 'old'":                             false,
		"has(object.old) && object.old.x == 1":                     false,
		"object.?old.?operation.orValue(true)":                     false,
		"object.a.all(old, old == 1)":                              false,
		"object.a.exists_one(operation, true)":                     false,
		"object.a.all(i, old, old == i)":                           false,
		"object.a.map(old, old + 1) == [1]":                        false,
		"cel.bind(old, object.a, old == 1)":                        false,
		"{'old': object.a}.old == 1":                               false,
		"old == null":                                              true,
		"has(old.x)":                                               true,
		"old.?x.orValue(true)":                                     true,
		"operation == 'added'":                                     true,
		"object[operation] == 1":                                   true,
		"object.a == 1 || operation == 'added'":                    true,
		"{'a': old}.size() == 1":                                   true,
		"{operation: 1}.size() == 1":                               true,
		"[old].size() == 1":                                        true,
		"old.a.all(x, x == 1)":                                     true,
		"object.a.all(x, x == old.a)":                              true,
		"old.a.all(old, old == 1)":                                 true,
		"object.a.all(old, .old.a == old)":                         true,
		"object.a.all(x, true) && old.a == 1":                      true,
		"object.a.all(old, true) && old.a == 1":                    true,
		"cel.bind(old, old, old == null)":                          true,
		"cel.bind(x, operation, x == 'deleted')":                   true,
		"cel.bind(x, 1, old == x)":                                 true,
		"optional.of(old).hasValue()":                              true,
		"size(operation) == 1":                                     true,
		"operation.startsWith('add')":                              true,
		"object.a.filter(x, [1].exists(y, y == old.b)).size() > 0": true,
	} {
		t.Run(text, func(t *testing.T) {
			_, got := env.compile(text, func(line, column int, err error) { t.Fatalf("%d:%d: %v", line, column, err) })
			if got != onChange {
				t.Errorf("a condition on the change: %v", got)
			}
		})
	}
}

// The idioms that the package comment shows, and one function of each library. All are true of the object.
func TestLanguage(t *testing.T) {
	o := newObject("default", "web-1", `{
		"kind": "Pod",
		"metadata": {"name": "web-1", "labels": {"app.kubernetes.io/name": "web"}, "creationTimestamp": "2026-01-02T03:04:05Z"},
		"spec": {"replicas": 3, "ratio": 0.5, "containers": [{"image": "docker.io/nginx"}, {"image": "ghcr.io/x"}], "ip": "10.1.2.3"}
	}`)
	for _, text := range []string{
		"!(has(object.status) && has(object.status.phase) && object.status.phase == 'Failed')",
		"object.?status.?phase.orValue('') == ''",
		"object.metadata.?labels['app.kubernetes.io/name'].orValue('') == 'web'",
		"object.?spec.?containers.orValue([]).exists(c, c.image.startsWith('docker.io/'))",
		"old == null || object.spec != old.spec",
		"object.spec.replicas == 3 && object.spec.replicas + 1 == 4 && object.spec.replicas % 2 == 1",
		"object.spec.replicas == 3.0 && object.spec.replicas > 2.5 && object.spec.ratio < 1",
		"object.metadata.name.matches('^web-[0-9]+$')",
		"object.metadata.name.split('-')[1] == '1' && 'A'.lowerAscii() == 'a'",
		"[3, 1, 2].sort() == [1, 2, 3] && lists.range(2) == [0, 1] && [1, 1].distinct() == [1]",
		"sets.contains(['a', 'b'], ['a'])",
		"math.greatest(1, 2) == 2",
		"regex.extract(object.metadata.name, '[0-9]+').orValue('') == '1'",
		"cidr('10.0.0.0/8').containsIP(object.spec.ip) && isIP(object.spec.ip)",
		"cel.bind(n, object.spec.replicas, n > 1 && n < 5)",
		"object.metadata.labels.exists(k, v, k.endsWith('/name') && v == 'web')",
		"timestamp(object.metadata.creationTimestamp).getHours() == 3",
		"timestamp(object.metadata.creationTimestamp) + duration('1h') < timestamp('2026-01-02T05:00:00Z')",
		"object.kind in ['Pod', 'Node'] && 'name' in object.metadata",
		"type(object) == map && size(object.spec.containers) == 2",
	} {
		t.Run(text, func(t *testing.T) {
			f := mustCompile(t, []Rule{{When: text}}, Options{OnError: func(_ int, err error) { t.Error(err) }, Logger: quiet()})
			if r := f.For(gvr(t, "/v1/pods")); !r.Belongs(o) || !r.Sends(1, nil, o) {
				t.Error("is false")
			}
		})
	}
}
