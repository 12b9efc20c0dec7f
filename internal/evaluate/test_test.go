package evaluate

import (
	"strings"
	"testing"
)

// What the sinks are sent is what a bridge sends them. Each file passes.
func TestPlay(t *testing.T) {
	for name, tt := range map[string]struct{ configuration, test string }{
		"an object that is created again is another one": {"", `
  changes:
  - add: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}}
  - delete: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}}
  - add: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}}
  expect:
    live:
    - {operation: added, id: pods/shop/web.1001, attributes: {time: "2000-01-01T00:00:00Z"}}
    - {operation: deleted, id: pods/shop/web.deleted}
    - {operation: added, id: "pods/shop/web#2.1003"}
`},
		"an object has its uid and the resourceVersion of the change": {"", `
  changes:
  - add: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web, uid: u, resourceVersion: "7"}}
  - patch: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web, uid: v}, n: 12345678901234567}
  expect:
    live:
    - {operation: added, id: u.1001}
    - {operation: updated, id: u.1002, data: {n: 12345678901234567}}
`},
		"a patch removes what it sets to null": {"", `
  objects: [{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web, labels: {a: b, c: d}}}]
  changes: [{patch: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web, labels: {a: null}}}}]
  expect: {live: [{operation: updated, absent: [metadata.labels.a], data: {metadata: {labels: {c: d}}}}]}
`},
		"a selector that the API server evaluates": {"watch: [{resources: [pods], labelSelector: a=b}]", `
  changes:
  - add: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}}
  - patch: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web, labels: {a: b}}}
  - patch: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web, labels: {a: c}}}
  - delete: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}}
  - add: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: db, uid: u, labels: {a: b}}}
  - patch: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: db, labels: null}}
  expect:
    live:
    - {operation: added, id: pods/shop/web.1002}
    - {operation: deleted, id: pods/shop/web.1003.deleted, data: {metadata: {labels: {a: b}, resourceVersion: "1003"}}}
    - {operation: added, id: u.1005}
    - {operation: deleted, id: u.1006.deleted}
`},
		"a namespace that has a watch of its own": {"watch: [{resources: [pods], namespaces: [shop]}]", `
  changes:
  - add: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}}
  - add: {apiVersion: v1, kind: Pod, metadata: {namespace: other, name: web}}
  expect: {live: [{operation: added, attributes: {namespace: shop}}]}
`},
		"the labels of a namespace change": {"sinks: [{name: live, filters: [{resources: [pods], namespaceSelector: a=b}], stdout: {}}]", `
  objects:
  - {apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {a: b}}}
  - {apiVersion: v1, kind: Namespace, metadata: {name: other}}
  - {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}}
  - {apiVersion: v1, kind: Pod, metadata: {namespace: other, name: db}}
  changes:
  - patch: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}, n: 1}
  - patch: {apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {a: c}}}
  - patch: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}, n: 2}
  - patch: {apiVersion: v1, kind: Namespace, metadata: {name: other, labels: {a: b}}}
  - add: {apiVersion: v1, kind: Namespace, metadata: {name: new, labels: {a: b}}}
  - add: {apiVersion: v1, kind: Pod, metadata: {namespace: new, name: web}}
  - delete: {apiVersion: v1, kind: Namespace, metadata: {name: new}}
  - delete: {apiVersion: v1, kind: Pod, metadata: {namespace: new, name: web}}
  expect:
    live:
    - {operation: updated, id: pods/shop/web.1001}
    - {operation: left, id: pods/shop/web.1001.left.filter.change}
    - {operation: added, id: pods/other/db.1000.filter.change, attributes: {initiallist: ""}}
    - {operation: added, id: pods/new/web.1006}
    - {operation: deleted, id: pods/new/web.deleted}
`},
		"managers of the changed fields": {"sinks: [{name: live, payload: change, stdout: {}}]", `
  objects: [{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}, spec: {}}]
  changes:
  - patch:
      apiVersion: v1
      kind: Pod
      metadata:
        namespace: shop
        name: web
        managedFields: [{manager: argocd, operation: Update, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:a": {}}}}]
      spec: {a: 1}
  expect:
    live: [{operation: updated, data: {managers: [{manager: argocd, paths: [/spec/a]}]}, attributes: {changedby: argocd}}]
`},
		"objects that exist are not sent": {"", `
  objects: [{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}}]
  changes: [{add: {apiVersion: v1, kind: Node, metadata: {name: n1}}}]
  expect: {live: [{operation: added, id: nodes//n1.1001}]}
`},
		"a kind with an unusual plural": {"watch: [{resources: [sheep.example.com, oxen.example.com]}]", `
  changes:
  - add: {apiVersion: example.com/v1, kind: Sheep, metadata: {name: a}}
  - add: {apiVersion: example.com/v1, kind: Ox, metadata: {name: a}}
  expect: {live: [{operation: added, attributes: {resource: sheep}}, {operation: added, attributes: {resource: oxen}}]}
`},
	} {
		t.Run(name, func(t *testing.T) {
			configuration := tt.configuration
			if !strings.Contains(configuration, "sinks:") {
				configuration += "\nsinks: [{name: live, stdout: {}}]\n"
			}
			text := "resources: {Sheep: sheep, Ox.example.com: oxen}\ntests:\n- name: a" + tt.test
			r, out := output(t, TestOptions{}, write(t, text), configuration)
			if r.Err != nil || r.Failed() > 0 {
				t.Error(out)
			}
		})
	}
}

// The output says what differs, and why a change was sent or not.
func TestOutput(t *testing.T) {
	file := write(t, `tests:
- name: a
  changes:
  - add: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}, spec: {a: 1, b: "<x>"}}
  - patch: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}, spec: {a: 2}}
  - add: {apiVersion: v1, kind: Node, metadata: {name: n1}}
  - delete: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}}
  expect:
    live:
    - operation: added
      attributes: {kind: Node, x: ""}
      data: {spec: {a: 3, b: "<y>", c: [1]}, metadata: {"a.b": 1}}
      absent: [metadata.name]
    - {operation: updated, id: pods/shop/web.1002}
- name: b
  changes: [{add: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}}}]
  expect: {live: [{operation: added}]}
- name: c
  changes:
  - add: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}}
  - patch: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}, spec: {a: 1}}
  - delete: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}}
  expect: {live: [{operation: added}, {operation: updated}, {operation: deleted}]}
`)
	const configuration = `
watch: [{resources: [pods]}]
sinks: [{name: live, filters: [{operations: [added, deleted], resources: [pods]}], stdout: {}}]
`
	_, out := output(t, TestOptions{}, file, configuration)
	if want := "FAIL  " + file + `:2  a
  sink live (- expected, + sent)
    event 1: added pods/shop/web, because of change 1 (add pods/shop/web)
        attributes.kind
          - "Node"
          + "Pod"
        data.metadata.a.b
          - 1
          + (none)
        data.spec.a
          - 3
          + 1
        data.spec.b
          - "<y>"
          + "<x>"
        data.spec.c
          - [1]
          + (none)
        data.metadata.name
          - (none)
          + "web"
    - event 2: updated pods/shop/web.1002
    + deleted pods/shop/web
      not expected, but sent because of change 4 (delete pods/shop/web)
      yes  filters[0]
           yes  resources   pods (found: pods)
           yes  operations  added, deleted (found: deleted)
    nothing was sent because of change 2 (patch pods/shop/web)
      no   filters[0]
           yes  resources   pods (found: pods)
           no   operations  added, deleted (found: updated)
    nothing was sent because of change 3 (add nodes//n1)
      no   watch[0]  pods: does not include nodes
FAIL  ` + file + `:18  c
  sink live (- expected, + sent)
    - event 2: updated
    nothing was sent because of change 2 (patch pods/shop/web)
      no   filters[0]
           yes  resources   pods (found: pods)
           no   operations  added, deleted (found: updated)
FAIL  ` + file + ": 2 failed, 1 passed\n"; out != want {
		t.Errorf("got:\n%s\nwant:\n%s", out, want)
	}
}

// A message that the destination would reject is never the expected one.
func TestRejected(t *testing.T) {
	file := write(t, `tests:
- name: a
  changes: [{add: {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: `+strings.Repeat("x", 5000)+`}}}]
  expect: {live: [{operation: added}]}
`)
	r, out := output(t, TestOptions{}, file, "sinks: [{name: live, nats: {url: 'nats://a:4222', stream: {name: A}}}]")
	if r.Failed() != 1 || !strings.Contains(out, "the destination rejects the message\n          - (none)\n          + ") {
		t.Error(out)
	}
}
