package event

import (
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Type is the type of an event. The zero value is not valid.
type Type uint8

// The event types. Gap, Synced and Progress are control events, which are about a resource rather than an object. The
// numeric values are stored on disk, so new types must be added at the end.
const (
	Added Type = iota + 1
	Updated
	Deleted
	Gap
	Synced
	// Restated is not a change. A restated event re-sends the current state of an object.
	Restated
	// Progress says up to which resourceVersion the destination has everything. Progress events are never stored.
	Progress
	// Audit is an audit event of an API server. It is neither a change nor a control event.
	Audit

	lastType = Audit
)

// String returns the value of the attribute "operation" for changes, and the last segment of the attribute "type" for
// control events.
func (t Type) String() string {
	name := t.CloudEventsType()
	return name[strings.LastIndexByte(name, '.')+1:]
}

// IsControl reports whether this is the type of a control event.
func (t Type) IsControl() bool { return t == Gap || t == Synced || t == Progress }

// Event is a change or a control event that is not yet encoded for a sink.
type Event struct {
	Type     Type
	Time     time.Time // when the bridge observed the event
	Resource schema.GroupVersionResource

	// Object is the state that the event is about: the new state, or the last state for a deletion. It is nil for control
	// events.
	Object *object.Object
	// Old is the state before an update. It is nil for other events.
	Old *object.Object

	InitialList bool // reports whether the object existed when the bridge first started
	// LeftAt is set if a Deleted event is a leave: the object still exists, but no longer passes the sink's filter. LeftAt
	// is the resourceVersion of the state that does not pass the filter. Object is the last state that passed.
	LeftAt string
	// Change identifies the change of the sink's filter or of the `watch` configuration that caused the object to enter or
	// leave. It is empty if the event has another cause.
	Change string
	// Selected reports whether the API server selects the objects by label or field. A deletion can then also mean that
	// the object is no longer selected, and can happen more than once.
	Selected bool

	// Delivery names an initial list that is sent to a new destination; see Message.Delivery. It is empty for all other
	// events.
	Delivery string

	// Context contains information about Object from other objects. It is nil if enrichment is not configured.
	Context *Context

	// IfFound limits a leave or a deletion to a destination that has the object: see Message.IfFound.
	IfFound bool
	// Final marks a leave that no other event follows: see Message.Final.
	Final bool

	// GapInfo is set for Gap events, SyncedInfo for Synced events, and ProgressInfo for Progress events.
	GapInfo      *GapInfo
	SyncedInfo   *SyncedInfo
	ProgressInfo *ProgressInfo
	// Audit is set for Audit events, and nothing else except Type and Time is.
	Audit *AuditInfo
}

// GapInfo describes where states may be missing from the stream, and the reason. It is the data of a gap event.
type GapInfo struct {
	Resource string `json:"resource"` // the plural name and the group, as in "deployments.apps"
	// From and To are resourceVersions. States after From and before To may be missing. Unknown values are empty.
	From string `json:"from"`
	To   string `json:"to"`
	// Reason is one of the Reason constants. Message is a human-readable description.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// Events is the number of events that are known to be missing, or 0 if the number is unknown.
	Events int64 `json:"events,omitempty"`

	// The following fields are set if the gap replaces one event that the destination rejected.

	Event      string `json:"event,omitempty"`      // the id of the rejected event
	Subject    string `json:"subject,omitempty"`    // the object of the rejected event, as in the attribute "subject"
	Operation  string `json:"operation,omitempty"`  // the operation of the rejected event
	DeadLetter string `json:"deadLetter,omitempty"` // describes where the rejected event is kept; empty if it is not kept

	// Position is the place of the gap in the destination of the objects. It is set only if control events are sent to
	// another topic or stream, by the sink.
	Position *Position `json:"position,omitempty"`

	// Deletion is the rejected event if it was a deletion. A sink that sends tombstones uses Deletion to identify the
	// object. It is not part of the data.
	Deletion *Message `json:"-"`
}

// Position is the end of the destination of a resource's objects at the time when a gap or progress event is sent:
// either of a topic or of a stream.
type Position struct {
	Topic string `json:"topic,omitempty"`
	// Offsets contains the offset of the next record, by partition. Partitions whose end is not known are missing.
	Offsets map[int]int64 `json:"offsets,omitempty"`

	Stream   string `json:"stream,omitempty"`
	Sequence uint64 `json:"sequence,omitempty"` // the sequence of the next message
}

// The reasons for gaps.
const (
	ReasonRelist   = "relist"   // The API server no longer had the history. Final states and deletions were recovered.
	ReasonOverflow = "overflow" // The queue was full and its policy is drop-oldest.
	ReasonOversize = "oversize" // The broker does not accept messages of this size.
	ReasonRefused  = "refused"  // The broker rejected this message.
	ReasonDamaged  = "damaged"  // Events could not be read where they were stored, or were removed before they were read.
)

// SyncedInfo reports that all objects of the initial list were sent or, if Resync is true, that all existing objects
// were restated. It is the data of a synced event.
type SyncedInfo struct {
	Resource        string `json:"resource"`
	Namespace       string `json:"namespace,omitempty"` // set if the list was limited to this namespace
	ResourceVersion string `json:"resourceVersion"`     // of the list; after a resync, the position of the sent changes
	Objects         int    `json:"objects"`             // the number of listed or, after a resync, restated objects
	// Resync marks the end of a resync. All objects of the resource that pass the sink's filter were re-sent at or after
	// Since.
	Resync bool `json:"resync,omitempty"`
	// Since is the time at which the resync of the resource began. It is nil if Resync is false.
	Since *time.Time `json:"since,omitempty"`
}

// ProgressInfo reports that the destination has every change of a resource up to a resourceVersion, or a gap event in
// its place. It is the data of a progress event.
type ProgressInfo struct {
	Resource        string `json:"resource"`
	ResourceVersion string `json:"resourceVersion"`
	// AsOf is the time at which the bridge received the change, bookmark or list with ResourceVersion, or the last
	// bookmark that repeated it.
	AsOf time.Time `json:"asOf"`
	// Position is a place in the destination of the objects that follows all events up to ResourceVersion. It is set only
	// if control events are sent to another topic or stream, by the sink.
	Position *Position `json:"position,omitempty"`
}
