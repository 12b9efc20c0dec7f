package event

import (
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Type is the kind of an event. The zero value is not a valid type.
type Type uint8

// The types of events. Gap and Synced are control events, which are about a resource and not about an object. The
// numbers are stored on disk: add new types at the end.
const (
	Added Type = iota + 1
	Updated
	Deleted
	Gap
	Synced
	// Restated is not a change: it re-sends the present state of an object.
	Restated

	lastType = Restated
)

// String returns the value of the attribute "operation" for changes, and the type's last word for control events.
func (t Type) String() string {
	name := t.CloudEventsType()
	return name[strings.LastIndexByte(name, '.')+1:]
}

// IsControl reports whether events of this type are about a resource as a whole.
func (t Type) IsControl() bool { return t == Gap || t == Synced }

// Event is what happened to which object, before it is encoded for a sink.
type Event struct {
	Type     Type
	Time     time.Time // when the bridge saw it
	Resource schema.GroupVersionResource

	// Object is the state that the event is about: the new one, or for a deletion the last one.
	// Nil for control events.
	Object *object.Object
	// Old is the state before an update; nil otherwise.
	Old *object.Object

	InitialList bool // the object existed when the bridge first started
	// LeftAt marks a Deleted that means: the object lives on, but no longer passes the sink's filter. It is the
	// resourceVersion of the state that does not pass; Object is the last state that did.
	LeftAt string
	// Change names the change of the sink's filter, or of what is watched, that made an object enter or leave; empty:
	// none did.
	Change string
	// Selected: the API server selects the objects by label or field. A deletion can then mean that the object ceased to
	// be selected, and it can happen more than once.
	Selected bool

	// Again: the destination has to take it although it may hold the event, under the same id.
	Again bool

	// Context is information about Object from other objects; nil if it is not configured.
	Context *Context

	// GapInfo is set on Gap events, SyncedInfo on Synced events.
	GapInfo    *GapInfo
	SyncedInfo *SyncedInfo
}

// GapInfo says where states may be missing from the stream, and why. It is the data of a gap event.
type GapInfo struct {
	Resource string `json:"resource"` // plural and group, as in "deployments.apps"
	// From and To are resourceVersions: states after From and before To may be missing. Empty if unknown.
	From string `json:"from"`
	To   string `json:"to"`
	// Reason is one word of the set in the constants Reason…; Message is for people.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// Events counts the events that are known to be missing; 0 where it can't be known.
	Events int64 `json:"events,omitempty"`

	// Of a gap in the place of one event that the destination rejected: what it was, and where it is kept.

	Event      string `json:"event,omitempty"`      // its id
	Subject    string `json:"subject,omitempty"`    // its object, as in the attribute "subject"
	Operation  string `json:"operation,omitempty"`  // what happened to that
	DeadLetter string `json:"deadLetter,omitempty"` // where the event is kept, in words; empty: nowhere

	// Deletion is that event if it was a deletion, for a sink that has to make its readers forget the object: the gap
	// event itself does not name it. It is not part of the data.
	Deletion *Message `json:"-"`
}

// The reasons of gaps.
const (
	ReasonRelist   = "relist"   // the API server no longer had the history; final states and deletions were recovered
	ReasonOverflow = "overflow" // the queue was full and its policy is drop-oldest
	ReasonOversize = "oversize" // the broker takes no message of this size
	ReasonRefused  = "refused"  // the broker rejected this message
	ReasonDamaged  = "damaged"  // events that waited on the bridge's disk could not be read back
)

// SyncedInfo says that all objects that existed at the start were handed over, or with Resync that all that exist were
// restated. It is the data of a synced event.
type SyncedInfo struct {
	Resource        string `json:"resource"`
	Namespace       string `json:"namespace,omitempty"` // of a list of one namespace; empty: of all that are watched
	ResourceVersion string `json:"resourceVersion"`     // of the list; after a resync that up to which changes were sent
	Objects         int    `json:"objects"`             // how many the list held; after a resync how many were restated
	// Resync marks the end of a resync: what exists of the resource, and is for this sink, was told at Since or later.
	Resync bool `json:"resync,omitempty"`
	// Since is when the resync of the resource began; nil without Resync.
	Since *time.Time `json:"since,omitempty"`
}
