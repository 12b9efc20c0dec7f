package object

import "sync/atomic"

// Slots is the number of decisions that an object can store.
const Slots = 64

// decisions are the results of Decision, one bit per slot. They are read and written atomically.
type decisions struct{ known, belongs uint64 }

// Decision returns the decision that SetDecision stored in a slot, 0 to Slots-1: whether the object belongs to the set
// that the slot represents. known is false if no decision was stored or if the slot is out of range.
func (d *decisions) Decision(slot int) (belongs, known bool) {
	bit := uint64(1) << uint(slot) // a slot that is out of range has no bit
	known = atomic.LoadUint64(&d.known)&bit != 0
	return known && atomic.LoadUint64(&d.belongs)&bit != 0, known
}

// SetDecision stores a decision for Decision. The decision about a state never changes, and evaluating it costs more
// than storing it. If the slot is out of range, SetDecision does nothing.
func (d *decisions) SetDecision(slot int, belongs bool) {
	bit := uint64(1) << uint(slot)
	if belongs {
		atomic.OrUint64(&d.belongs, bit)
	} else {
		atomic.AndUint64(&d.belongs, ^bit)
	}
	atomic.OrUint64(&d.known, bit)
}

// InheritDecisions replaces the decisions about o with the decisions about another state. The last state of a deleted
// object may be one that no update contained, and the deletion must follow the decisions about the state that was sent
// before.
func (o *Object) InheritDecisions(from *Object) { o.inherit(&from.decisions) }

func (d *decisions) inherit(from *decisions) {
	atomic.StoreUint64(&d.belongs, atomic.LoadUint64(&from.belongs))
	atomic.StoreUint64(&d.known, atomic.LoadUint64(&from.known))
}
