package event

import (
	"time"

	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Key names an object for the purpose of order: two messages with equal keys must not overtake each other.
// Objects of one name that follow each other (delete, re-create) share it. Comparable.
type Key struct {
	Group, Resource, Namespace, Name string
}

// Message is an event encoded for one sink. It is immutable after Encode. The tags are the names on disk, see
// AppendStored.
type Message struct {
	Type     Type                        `json:"t"`
	Time     time.Time                   `json:"at"` // when the bridge saw the change
	Resource schema.GroupVersionResource `json:"-"`
	Cluster  string                      `json:"c,omitempty"` // the configured name
	// ClusterUID is the uid of the namespace kube-system; empty if it is not known.
	ClusterUID string `json:"cu,omitempty"`
	// Identity of the object; in a control event only the ResourceVersion may be set.
	Identity object.Identity `json:"-"`

	InitialList       bool `json:"i,omitempty"`
	FinalStateUnknown bool `json:"f,omitempty"`
	LeftFilter        bool `json:"l,omitempty"`
	// Resent: a person sent it again, long after it was rejected. Newer states may have come before it.
	Resent bool `json:"-"`

	// Again: the destination has to take it although it may hold the event, under the same id.
	Again bool `json:"o,omitempty"`

	// Context becomes attributes; nil if there is none, or if Data contains it.
	Context *Context `json:"x,omitempty"`

	// ID is the CloudEvents id (see the package comment). It is unique within one cluster.
	ID string `json:"id"`
	// PartitionKey is the Kafka key; empty on sinks that have none.
	PartitionKey string `json:"pk,omitempty"`
	// Data is the payload, one JSON document. It may be shared with the informer's index and with other sinks.
	Data []byte `json:"-"`
	// Structured asks for the structured content mode. Sinks send Body, never Data.
	Structured bool `json:"s,omitempty"`

	// Marks are further attributes, which few messages have; nil: none.
	Marks *Marks `json:"-"`

	// GapInfo of a gap event, kept so that a queue can widen it.
	GapInfo *GapInfo `json:"gap,omitempty"`

	// What Encode has rendered already, in one piece of memory; empty in messages that were made in another way.
	subject, time, source, uniqueID string

	// Origin is where the message stands in what it came from, for the checkpoint. Sinks do not use it.
	Origin Origin `json:"-"`
}

// Origin is the place of a message in the changes of its source.
type Origin struct {
	Source string // what one informer watches
	// Position is the resourceVersion up to which its source had been handed over before this message.
	Position string
	// Seq is the number under which the message is settled in this process; 0 if nobody waits for it.
	Seq uint64
}

// Body returns the content that a sink sends: Data in binary mode, the whole CloudEvent as a JSON object
// in structured mode. It is built on each call in structured mode; the caller must not write to it.
func (m *Message) Body() []byte {
	if !m.Structured {
		return m.Data
	}
	return m.AppendStructured(make([]byte, 0, len(m.Data)+1024))
}

// ContentType returns the media type of Body, as the CloudEvents protocol bindings require it.
func (m *Message) ContentType() string {
	if m.Structured {
		return "application/cloudevents+json; charset=UTF-8"
	}
	return dataContentType
}

// Key is the message's order key. Control events have a key of their own for each resource.
func (m *Message) Key() Key {
	return Key{m.Resource.Group, m.Resource.Resource, m.Identity.Namespace, m.Identity.Name}
}

// messageOverhead is the memory of a queued message in addition to its strings and data, in bytes: the struct itself
// and its slot in the queue.
const messageOverhead = 400

// UniqueID is <cluster>/<id>: unique among all clusters that share a destination. A cluster that was restored from a
// copy of another one has objects with the same uids and resourceVersions.
func (m *Message) UniqueID() string {
	if n := len(m.uniqueID) - len(m.ID); n > 0 && m.uniqueID[n:] == m.ID {
		return m.uniqueID
	}
	return m.Cluster + "/" + m.ID
}

// Size returns the message's size for a queue's limit in bytes: its data, its own strings and a fixed overhead.
func (m *Message) Size() int64 {
	return int64(len(m.Data) + len(m.ID) + len(m.PartitionKey) + len(m.Identity.Name) + m.Context.size() + messageOverhead)
}

// GroupResource renders the resource as "deployments.apps", or "pods" for the core group.
func GroupResource(r schema.GroupVersionResource) string {
	if r.Group == "" {
		return r.Resource
	}
	return r.Resource + "." + r.Group
}
