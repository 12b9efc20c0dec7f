package actor

import (
	"slices"
	"time"
)

// Kind is what a change did. A change has exactly one kind; several together are a set of kinds.
type Kind uint8

const (
	// Added is the creation of an object.
	Added Kind = 1 << iota
	// Updated is an update that is none of the following.
	Updated
	// Bound is the update of a Pod that sets spec.nodeName.
	Bound
	// Marked is the update that sets deletionTimestamp for the first time: a deletion was requested.
	Marked
	// Remarked is an update of an object that already had a deletionTimestamp, and changes its deletionTimestamp,
	// deletionGracePeriodSeconds or finalizers.
	Remarked
	// Deleted is the deletion of an object whose last state has no deletionTimestamp. If the last state is not known for
	// certain, the kind is Finished.
	Deleted
	// Finished is the deletion of an object whose last state has a deletionTimestamp.
	Finished
)

const deletion = Deleted | Finished

// Change is a change of an object, as a watch delivers it.
type Change struct {
	Resource, Namespace, Name, UID string // Resource is the plural name, such as pods, without a group
	Kind                           Kind
	// Before and After are the resourceVersions of the two states. After is that of the deletion if there is no new state.
	// 0: not known.
	Before, After uint64
	// Observed is when the change was read.
	Observed time.Time
	// Since is a time before which the change was not made. Zero: Options.Wait before Observed, which is right while the
	// watch delivers without delay. After an interruption, the caller must set an earlier time.
	Since time.Time
	// Ref is for the caller.
	Ref any
}

// Grade says how certain an actor is.
type Grade uint8

// The grades of an Actor are Sole and Proven.
const (
	none  Grade = iota // the request cannot have made the change
	rival              // it may have made the change, but is not given as its actor
	// Sole is the grade of the only request that can have made the change, if no audit event is missing.
	Sole
	// Proven is the grade of a request that made the change, whatever other requests there were.
	Proven
)

func (g Grade) String() string { return [...]string{"none", "rival", "sole", "proven"}[g] }

// Actor is who made a change: what the audit event of the request contains.
type Actor struct {
	Grade  Grade
	User   string // who was authenticated
	Groups []string
	// Impersonated is empty if the user acted as itself. Otherwise it is the user whose permissions counted.
	Impersonated       string
	ImpersonatedGroups []string
	// SourceIPs ends with the address of the connection. The client can choose the others.
	SourceIPs []string
	UserAgent string // the client chooses it
	AuditID   string // the client can choose it (header Audit-ID)
	Verb      string
}

// same reports whether two requests give the same actor. They are two copies of one audit event, or it makes no
// difference which of the two it was.
func (a *Actor) same(b *Actor) bool {
	return a.User == b.User && a.Impersonated == b.Impersonated && a.AuditID == b.AuditID && a.Verb == b.Verb &&
		a.UserAgent == b.UserAgent && slices.Equal(a.Groups, b.Groups) && slices.Equal(a.SourceIPs, b.SourceIPs) &&
		slices.Equal(a.ImpersonatedGroups, b.ImpersonatedGroups)
}

// Answer says who made a change. An actor is nil if it is unknown.
type Answer struct {
	Change Change
	// By made the change. For a deletion, it completed it.
	By *Actor
	// Requested is who requested a deletion. It is nil for other kinds.
	Requested *Actor
}
