package enrich

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/redact"
)

var all = Needs{Owner: true, NamespaceLabels: true, InvolvedObject: true}

func gvr(resource string) schema.GroupVersionResource {
	name, group, _ := strings.Cut(resource, ".")
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: name}
}

// made builds an object as the API server sends it.
func made(t testing.TB, kind, uid string, labels map[string]string, owners ...metav1.OwnerReference) *object.Object {
	t.Helper()
	o := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind}}
	o.Namespace, o.Name, o.UID, o.ResourceVersion = "shop", "name-"+uid, types.UID(uid), "1"
	if kind == "Namespace" || kind == "Node" {
		o.Namespace = ""
	}
	o.Labels, o.OwnerReferences = labels, owners
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, string(raw))
}

func parsed(t testing.TB, raw string) *object.Object {
	t.Helper()
	o, err := object.New([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func by(kind, uid string, controls bool) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: "apps/v1",
		Kind:       kind,
		Name:       "name-" + uid,
		UID:        types.UID(uid),
		Controller: &controls,
	}
}

func ownedBy(kind, uid string) event.Owner {
	return event.Owner{APIVersion: "apps/v1", Kind: kind, Name: "name-" + uid, UID: uid}
}

// facts returns the number of objects about which an index has a fact, including deleted objects.
func facts(x *Index) int {
	uids := map[string]bool{}
	for _, f := range x.facts {
		uids[f.uid] = true
	}
	for _, key := range x.deleted.Keys() {
		if f, _ := x.get(key.(string)); f != nil {
			uids[f.uid] = true
		}
	}
	return len(uids)
}

func handlerOf(x *Index, resource string) *Handler { return x.Handler(gvr(resource), func() {}) }

func expect(t *testing.T, got *event.Context, want event.Context) {
	t.Helper()
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("context (-want +got):\n%s", diff)
	}
}

func TestOwners(t *testing.T) {
	x := New(Options{Needs: all})
	pods, sets := handlerOf(x, "pods"), handlerOf(x, "replicasets.apps")
	pod := made(t, "Pod", "p", nil, by("Other", "o", false), by("ReplicaSet", "r", true))
	pods.OnAdd(pod, false)
	expect(t, x.Context(gvr("pods"), pod, all), event.Context{Owner: ownedBy("ReplicaSet", "r")}) // as far as it is known
	set := made(t, "ReplicaSet", "r", nil, by("Deployment", "d", true))
	sets.OnAdd(set, false)
	expect(t, x.Context(gvr("pods"), pod, all), event.Context{Owner: ownedBy("Deployment", "d")})
	expect(t, x.Context(gvr("pods"), pod, Needs{NamespaceLabels: true}), event.Context{})
	if top := x.Context(gvr("deployments.apps"), made(t, "Deployment", "d", nil), all); *top != (event.Context{}) {
		t.Errorf("the top has an owner: %+v", top)
	}
	// The garbage collector deletes owners first.
	sets.OnDelete(set)
	expect(t, x.Context(gvr("pods"), pod, all), event.Context{Owner: ownedBy("Deployment", "d")})
	pods.OnDelete(pod)
	expect(t, x.Context(gvr("pods"), pod, all), event.Context{Owner: ownedBy("Deployment", "d")})
	// An orphan, and one that is adopted without a controller.
	pods.OnUpdate(pod, made(t, "Pod", "p", nil))
	expect(t, x.Context(gvr("pods"), pod, all), event.Context{})
	pods.OnUpdate(pod, made(t, "Pod", "p", nil, by("A", "a", false), by("B", "b", false)))
	expect(t, x.Context(gvr("pods"), pod, all), event.Context{Owner: ownedBy("A", "a")})
	// The same owners, and another of them controls.
	pods.OnUpdate(pod, made(t, "Pod", "p", nil, by("A", "a", false), by("B", "b", true)))
	expect(t, x.Context(gvr("pods"), pod, all), event.Context{Owner: ownedBy("B", "b")})
}

func TestLabels(t *testing.T) {
	x := New(Options{Needs: all})
	handlerOf(
		x,
		"namespaces",
	).OnAdd(parsed(t, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"shop","uid":"n1","labels":{"b":"2","a/x":"1","empty":"","\u0063":"d\u0065"}}}`), true)
	pod := made(t, "Pod", "p", map[string]string{"app": "web"}, by("ReplicaSet", "r", true))
	handlerOf(x, "pods").OnAdd(pod, true)
	const namespace = "a/x=1,b=2,c=de,empty="
	expect(
		t,
		x.Context(gvr("pods"), pod, all),
		event.Context{Owner: ownedBy("ReplicaSet", "r"), NamespaceLabels: namespace},
	)

	for _, form := range []struct{ resource, member string }{{"events", "involvedObject"}, {"events.events.k8s.io", "regarding"}} {
		ev := parsed(
			t,
			fmt.Sprintf(
				`{"kind":"Event","apiVersion":"v1","metadata":{"name":"e","namespace":"shop","uid":"e"},%q:{"kind":"Pod","namespace":"shop","name":"name-p","uid":"p","apiVersion":"v1"}}`,
				form.member,
			),
		)
		events := handlerOf(x, form.resource)
		events.OnAdd(ev, false)
		expect(
			t,
			x.Context(gvr(form.resource), ev, all),
			event.Context{Owner: ownedBy("ReplicaSet", "r"), NamespaceLabels: namespace, InvolvedLabels: "app=web"},
		)
		expect(t, x.Context(gvr(form.resource), ev, Needs{InvolvedObject: true}), event.Context{InvolvedLabels: "app=web"})
		expect(t, x.Context(gvr(form.resource), ev, Needs{Owner: true}), event.Context{})
	}
	unknown := parsed(
		t,
		`{"kind":"Event","apiVersion":"v1","metadata":{"name":"e","namespace":"other","uid":"e"},"involvedObject":{"kind":"Pod","name":"gone","uid":"g","apiVersion":"v1"}}`,
	)
	expect(
		t,
		x.Context(gvr("events"), unknown, all),
		event.Context{Owner: event.Owner{APIVersion: "v1", Kind: "Pod", Name: "gone", UID: "g"}},
	)
	// A kubelet gives the name of its node for a uid.
	handlerOf(x, "nodes").OnAdd(made(t, "Node", "n", map[string]string{"zone": "a"}), true)
	node := parsed(
		t,
		`{"kind":"Event","apiVersion":"v1","metadata":{"name":"e","namespace":"default","uid":"e"},"involvedObject":{"kind":"Node","name":"name-n","uid":"name-n"}}`,
	)
	expect(t, x.Context(gvr("events"), node, Needs{InvolvedObject: true}), event.Context{InvolvedLabels: "zone=a"})
	nothing := parsed(t, `{"kind":"Event","apiVersion":"v1","metadata":{"name":"e","namespace":"other","uid":"e"}}`)
	expect(t, x.Context(gvr("events"), nothing, all), event.Context{})
}

// A namespace that was deleted and made again has the labels of the new one, and until then those of the old one.
func TestNamespaceAgain(t *testing.T) {
	x := New(Options{Needs: Needs{NamespaceLabels: true}})
	h := handlerOf(x, "namespaces")
	pod := made(t, "Pod", "p", map[string]string{"not": "asked"})
	handlerOf(x, "pods").OnAdd(pod, false)
	for n := range 3 {
		namespace := parsed(
			t,
			fmt.Sprintf(
				`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"shop","uid":"n%d","labels":{"n":"%d"}}}`,
				n,
				n,
			),
		)
		h.OnAdd(namespace, false)
		want := event.Context{NamespaceLabels: fmt.Sprintf("n=%d", n)}
		expect(t, x.Context(gvr("pods"), pod, all), want)
		h.OnDelete(namespace)
		expect(t, x.Context(gvr("pods"), pod, all), want)
	}
	if got := facts(x); got != 3 {
		t.Errorf("%d facts, and the namespaces alone are asked for", got)
	}
}

// Facts of deleted objects are kept by number and by age, but not those of objects that are back.
func TestDeletedAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New(Options{Needs: Needs{Owner: true}})
		x.deleted = cache.NewLRUExpireCache(10)
		h := handlerOf(x, "replicasets.apps")
		pod := func(n int) *object.Object {
			return made(t, "ReplicaSet", fmt.Sprint(n), nil, by("Deployment", "d", true))
		}
		known := func(n int) bool { return x.Context(gvr("replicasets.apps"), pod(n), all).Owner.UID == "d" }
		for n := range 30 {
			h.OnAdd(pod(n), false)
			h.OnDelete(pod(n))
			h.OnDelete(pod(n)) // another informer says so too
		}
		if facts(x) != 10 || known(19) || !known(20) {
			t.Errorf("%d facts, the 20th is known: %v, the 21st: %v", facts(x), known(19), known(20))
		}
		h.OnAdd(pod(25), false) // it ceased to be selected, and is again
		time.Sleep(2 * deletedFor)
		h.OnDelete(pod(31))
		if facts(x) != 2 || !known(25) || !known(31) {
			t.Errorf("after a while: %d facts, of those that live %v, that were just deleted %v", facts(x), known(25), known(31))
		}
	})
}

// What is hidden from sinks is hidden here: in labels and in what an Event is about.
func TestRedacted(t *testing.T) {
	paths := []redact.Path{}
	for _, text := range []string{`metadata.labels["secret"]`, "involvedObject.name"} {
		path, err := redact.ParsePath(text)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	redactor := redact.New([]byte("0123456789abcdef0123456789abcdef"), redact.Rule{Paths: paths})
	x := New(Options{Needs: all, Bytes: func(r schema.GroupVersionResource, o *object.Object) ([]byte, error) {
		return redactor.Redact(r, o, o.Raw)
	}})
	pod := made(t, "Pod", "p", map[string]string{"secret": "hunter2", "app": "web"})
	handlerOf(x, "pods").OnAdd(pod, true)
	namespace := parsed(
		t,
		`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"shop","uid":"n","labels":{"secret":"hunter2"}}}`,
	)
	handlerOf(x, "namespaces").OnAdd(namespace, true)
	for _, uid := range []string{"p", "x"} {
		ev := parsed(
			t,
			fmt.Sprintf(
				`{"kind":"Event","apiVersion":"v1","metadata":{"name":"e","namespace":"shop","uid":"e"},"involvedObject":{"kind":"Pod","name":"hunter2","uid":%q,"apiVersion":"v1"}}`,
				uid,
			),
		)
		c := x.Context(gvr("events"), ev, all)
		if text := fmt.Sprint(
			c.NamespaceLabels,
			c.InvolvedLabels,
			c.Owner.Name,
		); strings.Contains(text, "hunter2") ||
			!strings.Contains(c.NamespaceLabels, "secret=hmac-sha256:") {
			t.Errorf("%+v", c)
		}
	}
}
