package object

import "fmt"

// Keeper keeps the bytes of objects elsewhere than in memory.
type Keeper interface {
	// Fetch gives the Raw of the state that o's Identity names. The result belongs to the caller.
	Fetch(o *Object) ([]byte, error)
}

// Release drops the object's bytes (its managedFields with them, for good) and names who keeps them: from then on Bytes
// fetches them there, and Forget drops them again. See Map for who may call it.
func (o *Object) Release(keeper Keeper) {
	o.Raw, o.managed, o.view, o.keeper = nil, nil, nil, keeper
}

// Released is a copy of the object without its bytes. See Release.
func (o *Object) Released(keeper Keeper) *Object {
	c := *o
	c.Release(keeper)
	return &c
}

// Detached is a copy of the object that shares its bytes and nothing else: it keeps them when the object is released.
func (o *Object) Detached() *Object {
	c := *o
	c.managed, c.view, c.keeper = nil, nil, nil
	return &c
}

// IsReleased reports whether Release was called: the object then holds bytes for a while at most.
func (o *Object) IsReleased() bool { return o.keeper != nil }

// Bytes is Raw, fetched if need be. It stays until Forget, and nobody writes to it. An error means that the bytes can't
// be had now; the identity can. See Map for who may call it.
func (o *Object) Bytes() ([]byte, error) {
	if o.Raw == nil && o.keeper != nil {
		raw, err := o.keeper.Fetch(o)
		if err != nil {
			return nil, fmt.Errorf("fetch %s %s/%s@%s: %w", o.Kind(), o.Namespace, o.Name, o.ResourceVersion, err)
		}
		o.Raw = raw
	}
	return o.Raw, nil
}
