package actors

import (
	"sync/atomic"

	"github.com/deltabridge/deltabridge/pkg/audit/actor"
	"github.com/deltabridge/deltabridge/pkg/event"
)

// Question is a change whose actors are not known yet. A nil *Question is a change whose actors are unknown. It is safe
// for concurrent use.
type Question struct {
	answer atomic.Pointer[event.Actors]
	kind   actor.Kind
}

// Known returns the actors, or nil if they are not known yet.
func (q *Question) Known() *event.Actors {
	if q == nil {
		return nil
	}
	return q.answer.Load()
}

// Unknown returns the actors of a change that are unknown.
func Unknown(deletion bool) *event.Actors {
	if deletion {
		return &event.Actors{Requester: &event.Actor{}}
	}
	return &event.Actors{}
}

// IsAnswered reports whether the actors are known, or known to be unknown.
func (q *Question) IsAnswered() bool { return q == nil || q.Known() != nil }

// Answer makes the actors known. They must not be nil.
func (q *Question) Answer(a *event.Actors) { q.answer.Store(a) }
