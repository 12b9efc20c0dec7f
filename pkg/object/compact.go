package object

import (
	"slices"
	"unique"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Compact contains what a released object contains, in half of the memory. Any goroutine may call its methods.
type Compact struct {
	decisions
	text   string // namespace, slash, name, uid, resourceVersion, manager and owners
	ends   [5]uint32
	hidden bool // here, it needs no memory
	gvk    unique.Handle[schema.GroupVersionKind]
	owners []types.UID
}

// Compact returns the compact form of the object, which shares no memory with it.
func (o *Object) Compact() Compact {
	var buffer [textSize]byte
	c := Compact{gvk: o.gvk, owners: slices.Clone(o.Owners), hidden: o.Hidden}
	text := append(append(append(buffer[:0], o.Namespace...), '/'), o.Name...)
	c.ends[0], c.ends[1] = uint32(len(o.Namespace)), uint32(len(text))
	text = append(text, o.UID...)
	c.ends[2] = uint32(len(text))
	text = append(text, o.ResourceVersion...)
	c.ends[3] = uint32(len(text))
	text = append(text, o.Manager...)
	c.ends[4] = uint32(len(text))
	for _, uid := range o.Owners {
		text = append(text, uid...)
	}
	c.text = string(text)
	for i, rest := 0, c.text[c.ends[4]:]; i < len(c.owners); i++ {
		n := len(c.owners[i])
		c.owners[i], rest = types.UID(rest[:n]), rest[n:]
	}
	c.InheritDecisions(o)
	return c
}

// Object returns the object. The keeper has its bytes. Later changes to the decisions of one do not affect the other.
func (c *Compact) Object(keeper Keeper) *Object {
	o := &Object{Owners: c.owners, Hidden: c.hidden, keeper: keeper}
	o.key = c.text[:c.ends[1]]
	o.Namespace, o.Name = o.key[:c.ends[0]], o.key[c.ends[0]+1:]
	o.UID, o.ResourceVersion = types.UID(c.text[c.ends[1]:c.ends[2]]), c.ResourceVersion()
	o.Manager, o.gvk = c.text[c.ends[3]:c.ends[4]], c.gvk
	o.inherit(&c.decisions)
	return o
}

// Key returns the object's Key.
func (c *Compact) Key() string {
	if c.ends[0] == 0 {
		return c.text[1:c.ends[1]]
	}
	return c.text[:c.ends[1]]
}

// ResourceVersion returns the version of the object's state.
func (c *Compact) ResourceVersion() string { return c.text[c.ends[2]:c.ends[3]] }

// InheritDecisions replaces the decisions with those about another state: see [Object.InheritDecisions].
func (c *Compact) InheritDecisions(from *Object) { c.inherit(&from.decisions) }
