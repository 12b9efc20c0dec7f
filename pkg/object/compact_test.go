package object

import (
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func TestCompact(t *testing.T) {
	pod := mustNew(t, read(t, "pod.json"))
	pod.Hidden = true
	for name, o := range map[string]*Object{
		"pod":            pod,
		"cluster-scoped": {Identity: Identity{Name: "n", UID: "u", ResourceVersion: "7"}, Owners: []types.UID{"a", "b"}},
		"from parts":     {Identity: Identity{Namespace: "a", Name: "x", UID: "u"}},
		"empty":          {},
	} {
		t.Run(name, func(t *testing.T) {
			o.SetDecision(3, true)
			c, released := o.Compact(), o.Released(noKeeper{})
			back := c.Object(noKeeper{})
			if diff := cmp.Diff(found(released), found(back)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if c.Key() != o.Key() || back.Key() != o.Key() || c.ResourceVersion() != o.ResourceVersion {
				t.Errorf("key %q and %q, version %q", c.Key(), back.Key(), c.ResourceVersion())
			}
			if back.Hidden != o.Hidden || !back.IsReleased() || back.Raw != nil {
				t.Errorf("hidden %v, released %v, %d bytes", back.Hidden, back.IsReleased(), len(back.Raw))
			}
			if belongs, known := back.Decision(3); !belongs || !known {
				t.Error("the decision is not inherited")
			}
			back.SetDecision(3, false)
			if belongs, _ := c.Object(noKeeper{}).Decision(3); !belongs {
				t.Error("the decision of the copy counts")
			}
			if c.InheritDecisions(back); c.Object(noKeeper{}).GroupVersionKind() != o.GroupVersionKind() {
				t.Errorf("kind %s", c.Object(noKeeper{}).GroupVersionKind())
			}
			if belongs, known := c.Object(noKeeper{}).Decision(3); belongs || !known {
				t.Error("the later decision does not count")
			}
		})
	}
}

func TestCompactIsSmall(t *testing.T) {
	if c, o := unsafe.Sizeof(Compact{}), unsafe.Sizeof(Object{}); c > o/2 {
		t.Errorf("%d bytes, and an Object has %d", c, o)
	}
	// A string of the object would keep all its strings in memory.
	o := mustNew(t, read(t, "pod.json"))
	c := o.Compact()
	if len(o.Owners) == 0 || unsafe.StringData(string(c.owners[0])) == unsafe.StringData(string(o.Owners[0])) {
		t.Errorf("the owners share memory with those of the object: %v", o.Owners)
	}
}
