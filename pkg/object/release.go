package object

import "fmt"

// Keeper keeps the bytes of objects elsewhere than in memory.
type Keeper interface {
	// Fetch gives the Raw of the state that o's Identity names. Nobody writes to the result.
	Fetch(o *Object) ([]byte, error)
}

// Released is the object without its bytes and its managedFields: Bytes fetches them from the keeper.
func (o *Object) Released(keeper Keeper) *Object {
	c := *o
	c.Raw, c.managed, c.keeper = nil, nil, keeper
	return &c
}

// WithoutManagedFields is the object without what ManagedFieldsJSON gives, for who keeps objects.
func (o *Object) WithoutManagedFields() *Object {
	if o.managed == nil {
		return o
	}
	c := *o
	c.managed = nil
	return &c
}

// IsReleased reports whether the object's bytes are elsewhere.
func (o *Object) IsReleased() bool { return o.keeper != nil }

// Bytes is Raw, or fetched from the keeper. Nobody writes to it. An error means that the bytes can't be had now; the
// identity can.
func (o *Object) Bytes() ([]byte, error) {
	if o.Raw != nil || o.keeper == nil {
		return o.Raw, nil
	}
	raw, err := o.keeper.Fetch(o)
	if err != nil {
		return nil, fmt.Errorf("fetch %s %s/%s@%s: %w", o.Kind(), o.Namespace, o.Name, o.ResourceVersion, err)
	}
	return raw, nil
}
