package object

import "fmt"

// Keeper stores the bytes of objects outside the objects, for example on disk.
type Keeper interface {
	// Fetch returns the Raw of the state that o's Identity identifies. Callers must not write to the result.
	Fetch(o *Object) ([]byte, error)
}

// Released returns a copy of the object without its bytes and its managedFields. Bytes fetches the bytes from the
// keeper.
func (o *Object) Released(keeper Keeper) *Object {
	c := *o
	c.Raw, c.managed, c.keeper = nil, nil, keeper
	return &c
}

// WithoutManagedFields returns the object without the managedFields that ManagedFieldsJSON returns. Use it before you
// keep an object, to save memory.
func (o *Object) WithoutManagedFields() *Object {
	if o.managed == nil {
		return o
	}
	c := *o
	c.managed = nil
	return &c
}

// IsReleased reports whether a keeper stores the object's bytes.
func (o *Object) IsReleased() bool { return o.keeper != nil }

// Bytes returns Raw, or fetches it from the keeper. Callers must not write to the result. If Bytes returns an error,
// the bytes are currently unavailable, but the fields of Identity are valid.
func (o *Object) Bytes() ([]byte, error) {
	if o.Raw != nil || o.keeper == nil {
		return o.Raw, nil
	}
	raw, err := o.keeper.Fetch(o)
	if err != nil {
		return nil, fmt.Errorf("fetch %s %s/%s, version %s: %w", o.Kind(), o.Namespace, o.Name, o.ResourceVersion, err)
	}
	return raw, nil
}
