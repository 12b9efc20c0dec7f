package actor

import (
	"bytes"
	"time"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
)

// State is what the kind of a change depends on. The zero State is that of an object whose bytes are not available.
type State struct {
	Created time.Time // creationTimestamp

	known, deleted bool
	// grace is deletionTimestamp and deletionGracePeriodSeconds, and node is spec.nodeName.
	grace, finalizers, node string
}

// StateOf returns the state of an object of a resource (without a group, such as pods), from its JSON. The result
// shares no memory with the JSON. If a part of the object is missing, because secret values were replaced, the result
// is the zero State.
func StateOf(resource string, raw []byte) (s State) {
	meta := jsonscan.Member(raw, "metadata")
	created, err := time.Parse(time.RFC3339, string(jsonscan.Text(jsonscan.Member(meta, "creationTimestamp"))))
	if err != nil {
		return s
	}
	if resource == "pods" {
		spec := jsonscan.Member(raw, "spec")
		if !bytes.HasPrefix(spec, []byte("{")) {
			return s
		}
		s.node = string(jsonscan.Text(jsonscan.Member(spec, "nodeName")))
	}
	s.known, s.Created = true, created
	if at := jsonscan.Text(jsonscan.Member(meta, "deletionTimestamp")); len(at) > 0 {
		s.deleted, s.grace = true, string(at)+string(jsonscan.Member(meta, "deletionGracePeriodSeconds"))
		s.finalizers = string(jsonscan.Member(meta, "finalizers"))
	}
	return s
}

// DependsOnBefore reports whether the kind of an update that has led to the state depends on the state before it.
func (s *State) DependsOnBefore() bool { return s.deleted || s.node != "" }

// Update returns the kind of an update. It is 0 if the kind cannot be known. If the kind does not depend on the state
// before, that can be the zero State.
func (s *State) Update(before *State) Kind {
	switch {
	case !s.known || s.DependsOnBefore() && !before.known:
		return 0
	case s.deleted && !before.deleted:
		return Marked
	case s.deleted && (s.grace != before.grace || s.finalizers != before.finalizers):
		return Remarked
	case s.node != "" && before.node == "":
		return Bound
	}
	return Updated
}

// Deletion returns the kind of a deletion of an object whose last state it is.
func (s *State) Deletion() Kind {
	if s.known && !s.deleted {
		return Deleted
	}
	return Finished
}
