package enrich

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// model is what an Index should know, told in the simplest way.
type model struct {
	owner   map[string]string // by uid
	deleted []string          // uids
}

func (m *model) top(uid string) string {
	var path []string
	for at := uid; m.owner[at] != ""; at = m.owner[at] {
		path = append(path, at)
		if slices.Contains(path, m.owner[at]) {
			break
		}
		uid = m.owner[at]
	}
	if len(path) == 0 {
		return ""
	}
	if uid == path[0] {
		return "" // it owns itself
	}
	return uid
}

// Over random graphs of owners, cycles among them, and random changes and deletions, the index and the model agree.
func TestModel(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		const objects = 12
		x := New(Options{Needs: Needs{Owner: true}})
		m := &model{owner: map[string]string{}}
		handlers := []*Handler{handlerOf(x, "pods"), handlerOf(x, "replicasets.apps"), handlerOf(x, "widgets.example.com")}
		last := map[string]*object.Object{}
		for step := range 300 {
			n := random.IntN(objects)
			uid := strconv.Itoa(n)
			h := handlers[n%len(handlers)]
			dead := slices.Index(m.deleted, uid)
			switch {
			case last[uid] != nil && random.IntN(3) == 0:
				h.OnDelete(last[uid])
				delete(last, uid)
				if m.owner[uid] != "" {
					m.deleted = append(m.deleted, uid)
				}
			case dead >= 0: // an object does not come back
			default:
				var owners []metav1.OwnerReference
				delete(m.owner, uid)
				if random.IntN(4) > 0 {
					m.owner[uid] = strconv.Itoa(random.IntN(objects))
					owners = []metav1.OwnerReference{by("Kind", m.owner[uid], random.IntN(2) == 0)}
					if random.IntN(2) == 0 {
						owners = append(owners, by("Kind", "x", false))
					}
				}
				last[uid] = made(t, "Kind", uid, nil, owners...)
				h.OnUpdate(nil, last[uid])
			}
			for n := range objects {
				uid := strconv.Itoa(n)
				want := event.Owner{}
				if top := m.top(uid); top != "" {
					want = ownedBy("Kind", top)
				}
				if got := x.Context(
					gvr("pods"),
					&object.Object{Identity: object.Identity{UID: types.UID(uid)}},
					all,
				).Owner; got != want {
					t.Fatalf("seed %d, step %d: the top owner of %s is %v, want %v; owners %v", seed, step, uid, got, want, m.owner)
				}
			}
		}
	}
}

// A chain that is longer than any real one ends.
func TestDeepChain(t *testing.T) {
	x := New(Options{Needs: Needs{Owner: true}})
	h := handlerOf(x, "widgets.example.com")
	for n := range 3 * maxDepth {
		h.OnAdd(made(t, "Widget", strconv.Itoa(n), nil, by("Widget", strconv.Itoa(n+1), true)), true)
	}
	if got := x.Context(
		gvr("widgets.example.com"),
		made(t, "Widget", "0", nil),
		all,
	).Owner; got.UID != strconv.Itoa(
		maxDepth,
	) {
		t.Errorf("the owner of a deep chain is %v", got)
	}
}

// Informers add facts and request contexts concurrently. Each informer requests the context of the object that it has
// just added, while the facts of other informers come and go.
func TestConcurrentInformers(t *testing.T) {
	x := New(Options{Needs: all})
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			pods, sets, namespaces := handlerOf(x, "pods"), handlerOf(x, "replicasets.apps"), handlerOf(x, "namespaces")
			for n := range 300 {
				id := fmt.Sprintf("%d-%d", g, n)
				namespace := made(t, "Namespace", "n"+strconv.Itoa(n%7), map[string]string{"a": id})
				set := made(t, "ReplicaSet", "r"+id, nil, by("Deployment", "d"+id, true))
				pod := made(t, "Pod", "p"+id, map[string]string{"app": "web"}, by("ReplicaSet", "r"+id, true))
				namespaces.OnUpdate(nil, namespace)
				sets.OnAdd(set, false)
				pods.OnAdd(pod, false)
				if got := x.Context(gvr("pods"), pod, all).Owner; got.UID != "d"+id {
					t.Errorf("the owner of %s is %v", id, got)
				}
				sets.OnDelete(set)
				pods.OnDelete(pod)
				if got := x.Context(gvr("pods"), pod, all).Owner; got.UID != "d"+id {
					t.Errorf("the owner of %s, deleted, is %v", id, got)
				}
				namespaces.OnDelete(namespace)
			}
		})
	}
	group.Wait()
	if got, want := facts(x), 2*4*300+7; got != want {
		t.Errorf("%d facts are left, want %d", got, want)
	}
}
