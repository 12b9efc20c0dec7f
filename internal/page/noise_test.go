package page

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// The noisiest objects are found among many, with lower bounds of their counts, and are forgotten after a minute.
func TestNoise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n noise
		began := time.Now()
		for i := range 3000 {
			n.count(time.Now(), subject{"apps", "deployments", "shop", fmt.Sprint("quiet", i)})
			if i%3 == 0 {
				n.count(time.Now(), subject{"", "pods", "shop", "loud"})
			}
			if i%10 == 0 {
				n.count(time.Now(), subject{"", "nodes", "", "node"})
			}
			time.Sleep(10 * time.Millisecond)
		}
		all, since := n.top(time.Now(), 2)
		if len(all) != 2 || all[0].Name != "loud" || all[0].Count < 900 || all[0].Count > 1000 || all[0].Share != 100 ||
			all[1].Name != "node" || all[1].Count > 300 || all[1].Count < 150 || !since.Equal(began) {
			t.Errorf("%+v since %v", all, since)
		}
		rest, _ := n.top(time.Now(), sketchSize*sketches)
		for _, o := range rest {
			if strings.HasPrefix(o.Name, "quiet") && o.Count != 1 {
				t.Fatalf("%+v", o)
			}
		}
		time.Sleep(40 * time.Second)
		if all, since = n.top(time.Now(), 1); len(all) != 1 || all[0].Count >= 900 || time.Since(since) > time.Minute {
			t.Errorf("%+v since %v", all, since)
		}
		time.Sleep(time.Minute)
		if all, _ = n.top(time.Now(), 1); len(all) > 0 {
			t.Errorf("%+v", all)
		}
	})
}

// Objects are counted only while somebody may see them.
func TestCounting(t *testing.T) {
	p := newTestPage(t, healthy)
	calls := 0
	count := p.Counting(func(schema.GroupVersionResource, *object.Object) { calls++ })
	pod := func() {
		count(
			schema.GroupVersionResource{Resource: "pods"},
			&object.Object{Identity: object.Identity{Namespace: "shop", Name: "web"}},
		)
	}
	pod()
	public := p.hub.join(audience{})
	pod()
	viewer := p.hub.join(audience{objects: true})
	pod()
	p.Counting(nil)(schema.GroupVersionResource{Resource: "pods"}, &object.Object{})
	if all, _ := p.hub.noise.top(time.Now(), 9); len(all) != 2 || calls != 3 {
		t.Errorf("%+v after %d calls", all, calls)
	}
	p.hub.leave(viewer)
	p.hub.leave(public)
	if all, _ := p.hub.noise.top(time.Now(), 9); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}
